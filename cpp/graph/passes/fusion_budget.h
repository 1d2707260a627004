// Limits the driver's compile time for fused expressions, per kernel and per program.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/dtype.h"
#include "operators/expression/expression.h"

namespace pumice {

// A fused kernel: its key and the weight of its code. Kernels with the same key share a pipeline.
struct FusedKernel {
  std::string key;
  uint64_t weight = 0;
};

// Returns how often a map's kernel contains its expression, for this stored type: once for each element of an invocation's vector, and four
// more times for the tail.
uint64_t map_copies(DType stored);
inline constexpr uint64_t kEpilogueCopies = 8;  // copies of the expression for the tiles and rows that most kernels store

class FusionBudget {
 public:
  // Whether a kernel may contain the expression `copies` times.
  static bool allows(const Expression& expression, bool has_doubles, uint64_t copies);

  // Replaces one kernel (empty: none) with another. Returns false and changes nothing if the program would exceed its budget. A kernel that
  // is already counted costs nothing more.
  bool exchange(const FusedKernel& before, const FusedKernel& after);
  void remove(const FusedKernel& kernel);

 private:
  void add(const FusedKernel& kernel);

  struct Use {
    size_t count = 0;
    uint64_t weight = 0;
  };
  std::map<std::string, Use> uses_;
  uint64_t spent_ = 0;
};

}  // namespace pumice
