// The budget limits what fused expressions cost a driver to compile: those of one kernel, and those of all kernels of a program.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/dtype.h"
#include "operators/expression/expression.h"

namespace pumice {

// A kernel that fusion makes: what it is known by, and the weight of the code that comes of it. Kernels of one key are one pipeline.
struct FusedKernel {
  std::string key;
  uint64_t weight = 0;
};

// Times that a map's kernel has its expression, by the type that it stores: for each of the elements that an invocation makes at once, and
// for each of the last four.
uint64_t map_copies(DType stored);
inline constexpr uint64_t kEpilogueCopies = 8;  // of the tiles and rows that most kernels store

class FusionBudget {
 public:
  // Whether a kernel may have the expression so often.
  static bool allows(const Expression& expression, bool has_doubles, uint64_t copies);

  // Exchanges a kernel (empty: none) of one place of the program for another one; false, and nothing is changed, where the program then has
  // more to compile than it may. A kernel that it has already costs nothing more.
  bool exchange(const FusedKernel& before, const FusedKernel& after);
  void remove(const FusedKernel& kernel);

 private:
  void add(const FusedKernel& kernel);

  struct Use {
    size_t places = 0;
    uint64_t weight = 0;
  };
  std::map<std::string, Use> uses_;
  uint64_t spent_ = 0;
};

}  // namespace pumice
