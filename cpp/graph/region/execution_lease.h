// A lease: memory and recordings for one execution of a program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/tensor_desc.h"
#include "device/buffer.h"
#include "dispatch/recording.h"
#include "graph/region/run_report.h"

namespace pumice {

// Fill pattern that exposes results that were not computed: NaN for all float types, -1 for integers.
constexpr uint32_t kFillPattern = 0xFFFFFFFF;

// Memory and recordings for one execution at a time, with host-visible input and output slots. Returns to its pool when the last owner
// drops it. Not thread-safe.
class ExecutionLease {
 public:
  virtual ~ExecutionLease() = default;
  virtual const TensorDesc& input_desc(size_t i) const = 0;
  // Returns the description of an output. With control flow or host sync points it is known only after start().
  virtual const TensorDesc& output_desc(size_t j) const = 0;
  // Returns the host memory of input i (packed, row-major), to be written before start().
  virtual std::byte* input(size_t i) = 0;
  // Fills temporary tensors, inputs and outputs with a 32-bit word, before inputs are written. This exposes results that were not computed,
  // which data of the previous execution would hide.
  virtual void fill_memory(uint32_t word, const InterruptCallback& interrupted = {}) = 0;
  // Copies an input to its slot, and a large input on to the device. `source_is_stable`: the source does not change until the execution has
  // finished, so the device may read it directly if it can access the memory.
  virtual void write_input(size_t i, const std::byte* source, bool /*source_is_stable*/ = false) {
    copy_to_mapped(input(i), {source, input_desc(i).element_bytes()});
  }
  // Copies an output from its slot, after the submission returned by start() has finished. Large outputs are copied from the device;
  // `interrupted` is called during that wait, as in Context::wait().
  virtual void read_output(size_t j, std::byte* target, const InterruptCallback& /*interrupted*/ = {}) const {
    copy_from_mapped(output(j), {target, output_desc(j).element_bytes()});
  }
  // Starts an execution. Without control flow and host sync points it returns at once and ignores the limits; otherwise it returns when the
  // work has finished. `targets`: for each output, the memory that read_output() will write to, so that the device may write there
  // directly; null or empty if unknown. Throws TimeoutError, or GraphError if a rule is violated at run time.
  virtual Submission start(const RunLimits& limits, std::span<std::byte* const> targets = {}) = 0;
  virtual uint64_t last_submission() const = 0;  // id of the last submission, including transfers
  virtual RunReport report() const = 0;          // report on the last start()
  // Returns the device time of the last start() in seconds, after it has finished; nullopt if it was not measured.
  virtual std::optional<double> device_seconds() const = 0;

 protected:
  // Returns the host memory of output j (packed, row-major), from which read_output() copies.
  virtual const std::byte* output(size_t j) const = 0;
};

}  // namespace pumice
