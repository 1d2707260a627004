// Limits the driver's compile time for fused expressions, per kernel and per program.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/dtype.h"
#include "operators/expression/expression.h"

namespace pumice {

// A fused kernel: its key and the compile cost of its code. Kernels with the same key share a pipeline.
struct FusedKernel {
  std::string key;
  uint64_t weight = 0;
};

// Returns the number of copies of the expression in an elementwise kernel for this stored type: one for each vector element of an
// invocation, and four for the tail.
uint64_t count_elementwise_copies(DType stored);
inline constexpr uint64_t kEpilogueCopies = 8;  // copies of an epilogue expression in most kernels, for their tiles and rows

class FusionBudget {
 public:
  // Whether the compile cost of a kernel allows `copies` copies of the expression.
  static bool allows_expression(const Expression& expression, bool has_doubles, uint64_t copies);

  // Replaces one kernel (empty: none) by another. Returns false and changes nothing if the program would exceed its budget. A kernel that
  // is already counted costs nothing more.
  bool replace(const FusedKernel& before, const FusedKernel& after);
  void remove(const FusedKernel& kernel);

 private:
  void add(const FusedKernel& kernel);

  struct KernelUse {
    size_t count = 0;
    uint64_t weight = 0;
  };
  std::map<std::string, KernelUse> uses_;
  uint64_t spent_ = 0;
};

}  // namespace pumice
