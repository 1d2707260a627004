// Leases: memory and recordings for executions of a program.
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

// Fill pattern that exposes results that were not computed: NaN in all float types, -1 in integers.
constexpr uint32_t kFillPattern = 0xFFFFFFFF;

// Memory and recordings for one execution of a program, with host-visible slots. Returns to its pool when the last owner drops it. Not
// thread-safe.
class Lease {
 public:
  virtual ~Lease() = default;
  virtual const TensorDesc& input_desc(size_t i) const = 0;
  // Returns the description of an output. With control flow or host sync points it is known after start().
  virtual const TensorDesc& output_desc(size_t j) const = 0;
  // Returns the host memory of input i, packed row-major, to be written before start().
  virtual std::byte* input(size_t i) = 0;
  // Fills temporary tensors, inputs and outputs with a word, before inputs are written. This exposes results that were not computed, which
  // the previous execution's data would hide.
  virtual void fill_memory(uint32_t word, const Interrupted& interrupted = {}) = 0;
  // Copies one input to its slot, and a large one on to the device. `source_is_stable`: the source is unchanged until the execution has
  // finished, so the device may read it directly if it can access it.
  virtual void write_input(size_t i, const std::byte* source, bool /*stays*/ = false) {
    copy_in(input(i), {source, input_desc(i).element_bytes()});
  }
  // Copies one output from its slot, after the submission that start() returned has finished. Large outputs are then copied from the
  // device; `interrupted` is called during that wait, as in Context::wait.
  virtual void read_output(size_t j, std::byte* target, const Interrupted& /*interrupted*/ = {}) const {
    copy_out(output(j), {target, output_desc(j).element_bytes()});
  }
  // Starts an execution. Without control flow and host sync points it returns at once and ignores the limits; otherwise it returns when the
  // work has finished. `targets`: for each output, the target of the later read_output(), so that the device may write there directly if it
  // can access the memory; null or empty if unknown. Throws TimeoutError, or GraphError if a rule is broken at run time.
  virtual Submission start(const RunLimits& limits, std::span<std::byte* const> targets = {}) = 0;
  virtual uint64_t last_submission() const = 0;  // id of the last submission of all, including transfers
  virtual RunReport report() const = 0;          // report about the last start()
  // Returns the device time of the last start() in seconds, once it has finished; nullopt if it was not measured.
  virtual std::optional<double> device_seconds() const = 0;

 protected:
  // Returns the host memory of output j, packed row-major, from which read_output() copies.
  virtual const std::byte* output(size_t j) const = 0;
};

}  // namespace pumice
