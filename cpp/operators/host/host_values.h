// Host arithmetic: exact for integers, rounded to the float type for floats.
#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "operators/expression/expression.h"
#include "operators/host/host_node.h"

namespace pumice {

// Whether all floats of the node have at most 32 bits, so that a device would compute in fp32.
inline bool is_single(const HostNode& node) {
  return node.outputs[0].dtype != DType::float64 && std::none_of(node.inputs.begin(), node.inputs.end(), [](const HostTensor* input) {
           return input && input->desc.dtype == DType::float64;
         });
}

// Evaluates the expression for one element, in integers or floats. Each float operation is rounded to its type.
inline int64_t evaluate_element(const Expression& expression, const std::map<std::string, int64_t>& values, bool) {
  return expression.evaluate(values);
}
inline double evaluate_element(const Expression& expression, const std::map<std::string, double>& values, bool single) {
  return expression.evaluate(values, single);
}

}  // namespace pumice
