// Leases, on which executions of a program run.
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

// What memory is filled with so that a result which was not computed shows: NaN in all types of floats, -1 in integers.
constexpr uint32_t kFilled = 0xFFFFFFFF;

// Memory and recordings for one execution of a program, with host-visible slots; leased for the whole of it. It goes back to its pool when
// the last owner drops it, and is not thread-safe.
class Lease {
 public:
  virtual ~Lease() = default;
  virtual const TensorDesc& input_desc(size_t i) const = 0;
  // The description of an output. Where a program has control flow or cuts, it is known after start().
  virtual const TensorDesc& output_desc(size_t j) const = 0;
  // The host's memory of input i, packed row-major, to be written before start().
  virtual std::byte* input(size_t i) = 0;
  // Repeats a word over the memory that an execution writes before it reads it: temporary tensors, inputs and outputs. Called before inputs
  // are written. A result that was not computed then shows, where memory of the execution before would have hidden that.
  virtual void fill_memory(uint32_t word, const Interrupted& interrupted = {}) = 0;
  // Copies the bytes of one input to its slot, large ones on to the device. `stays`: they are not changed before the execution has
  // finished, so that the device may read them itself where it reaches them.
  virtual void write_input(size_t i, const std::byte* source, bool /*stays*/ = false) {
    copy_in(input(i), {source, input_desc(i).element_bytes()});
  }
  // Copies the bytes of one output from its slot, once what start() has returned has finished. Large ones come from the device behind that:
  // `interrupted` is called in the wait for them, as in Context::wait.
  virtual void read_output(size_t j, std::byte* target, const Interrupted& /*interrupted*/ = {}) const {
    copy_out(output(j), {target, output_desc(j).element_bytes()});
  }
  // Starts an execution. Without control flow and cuts it returns at once and keeps to no limits; else it returns when the work has
  // finished. `targets`: by output, what read_output() will be given, so that the device may write there itself where it reaches the
  // memory; null, or none at all, where that is not known. Throws TimeoutError, GraphError.
  virtual Submission start(const RunLimits& limits, std::span<std::byte* const> targets = {}) = 0;
  virtual uint64_t last_submission() const = 0;  // of all that was submitted, transfers among it
  virtual RunReport report() const = 0;          // the report of the last start()
  // The seconds that the last start() took on the device, once it has finished; none where it was not to be measured.
  virtual std::optional<double> device_seconds() const = 0;

 protected:
  // The host's memory of output j, packed row-major, from which read_output() copies.
  virtual const std::byte* output(size_t j) const = 0;
};

}  // namespace pumice
