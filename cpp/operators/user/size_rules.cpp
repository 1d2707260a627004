#include "operators/user/size_rules.h"

#include <algorithm>

#include "core/error.h"
#include "core/strides.h"
#include "operators/expression/expression.h"

namespace pumice {

void SizeVariables::add(char kind, size_t number, const Shape& shape) {
  const std::string prefix = kind + std::to_string(number) + "_";
  int64_t elements = 1;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    sizes_[prefix + std::to_string(axis)] = shape[axis];
    elements = checked_mul(elements, shape[axis], "elements of a tensor");
  }
  sizes_[prefix + "n"] = elements;
  sizes_[prefix + "r"] = static_cast<int64_t>(shape.size());
}

int64_t SizeVariables::evaluate_int(const std::string& text) const {
  return Expression::parse(text).evaluate(sizes_);
}

double SizeVariables::evaluate_real(const std::string& text) const {
  return Expression::parse(text).evaluate(std::map<std::string, double>(sizes_.begin(), sizes_.end()));
}

std::vector<int64_t> SizeVariables::evaluate_list(std::string_view text) const {
  std::vector<int64_t> values;
  for (const std::string& expression : split_at_semicolons(text)) values.push_back(evaluate_int(expression));
  return values;
}

std::vector<std::string> split_at_semicolons(std::string_view text) {
  std::vector<std::string> expressions;
  while (!text.empty()) {
    const size_t end = std::min(text.find(';'), text.size());
    expressions.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return expressions;
}

}  // namespace pumice
