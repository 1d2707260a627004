// The rules of a user's kernel: expressions over the sizes of a node's inputs and outputs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

// Sizes by the names that rules give them: `x0_1` is input 0 along axis 1, `x0_n` all its elements and `x0_r` its rank; outputs are `y0_1`
// and so on.
class RuleSizes {
 public:
  void add(char kind, size_t number, const Shape& shape);
  // The value of an expression in whole numbers. Throws Error for one that does not parse, or names a size that there is not.
  int64_t whole(const std::string& text) const;
  double real(const std::string& text) const;
  // The values of expressions with semicolons between them; none of an empty text.
  std::vector<int64_t> list(std::string_view text) const;

 private:
  std::map<std::string, int64_t> sizes_;
};

// The parts of a text between semicolons; none of an empty text.
std::vector<std::string> rule_parts(std::string_view text);

}  // namespace pumice
