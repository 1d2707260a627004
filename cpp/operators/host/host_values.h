// How the host computes an element: exactly for integers, and for floats as their type rounds.
#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "operators/expression/expression.h"
#include "operators/host/host_node.h"

namespace pumice {

// Whether all floats of the node have at most 32 bits: a device computes them in float32.
inline bool is_single(const HostNode& node) {
  return node.outputs[0].dtype != DType::float64 && std::none_of(node.inputs.begin(), node.inputs.end(), [](const HostTensor* input) {
           return input && input->desc.dtype == DType::float64;
         });
}

// The expression's value for an element: of integers, or of floats, each operation rounded as their type does.
inline int64_t value_of(const Expression& expression, const std::map<std::string, int64_t>& values, bool) {
  return expression.evaluate(values);
}
inline double value_of(const Expression& expression, const std::map<std::string, double>& values, bool single) {
  return expression.evaluate(values, single);
}

}  // namespace pumice
