// Size rules of user kernels: expressions over the sizes of a node's inputs and outputs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

// Sizes by their names in rules. `x0_1` is axis 1 of input 0, `x0_n` its number of elements and `x0_r` its rank; outputs are `y0_1` and so
// on.
class SizeVariables {
 public:
  void add(char kind, size_t number, const Shape& shape);
  // Evaluates an integer expression. Throws Error for a syntax error or an unknown size.
  int64_t evaluate_int(const std::string& text) const;
  double evaluate_real(const std::string& text) const;
  // Evaluates a list of expressions that are separated by semicolons. An empty string is an empty list.
  std::vector<int64_t> evaluate_list(std::string_view text) const;

 private:
  std::map<std::string, int64_t> sizes_;
};

// Splits a string at semicolons; empty for an empty string.
std::vector<std::string> split_at_semicolons(std::string_view text);

}  // namespace pumice
