// What one execution of a program runs on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/tensor_desc.h"
#include "dispatch/recording.h"
#include "graph/region/run_report.h"

namespace pumice {

// Memory and recordings for one execution of a program, with host-visible slots; leased for the whole of it. It goes back to its pool when
// the last owner drops it, and is not thread-safe.
class Lease {
 public:
  virtual ~Lease() = default;
  virtual const TensorDesc& input_desc(size_t i) const = 0;
  // Of a program with control flow or cuts known after start().
  virtual const TensorDesc& output_desc(size_t j) const = 0;
  // Where to write input i before start(), and where output j is after wait(): packed row-major.
  virtual std::byte* input(size_t i) = 0;
  virtual const std::byte* output(size_t j) const = 0;
  // Without control flow and cuts returns at once and keeps to no limits; else when the work has finished. Throws TimeoutError, GraphError.
  virtual Submission start(const RunLimits& limits) = 0;
  virtual uint64_t last_submission() const = 0;
  virtual RunReport report() const = 0;  // of the last start()
  // Seconds on the device of the last start(), once it has finished; none where it was not to be measured.
  virtual std::optional<double> device_seconds() const = 0;
};

}  // namespace pumice
