// Host arithmetic that matches the device: exact for integers, rounded to the float type for floats.
#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "operators/expression/expression.h"
#include "operators/host/host_node.h"

namespace pumice {

// Whether all floats of the node have at most 32 bits, so that a device computes in fp32.
inline bool computes_in_fp32(const HostNode& node) {
  return node.outputs[0].dtype != DType::float64 && std::none_of(node.inputs.begin(), node.inputs.end(), [](const HostTensor* input) {
           return input && input->desc.dtype == DType::float64;
         });
}

// Evaluate the expression for one element, as integers or as floats. `rounds_to_fp32`: round the result of each float operation to fp32.
inline int64_t evaluate_element(const Expression& expression, const std::map<std::string, int64_t>& values, bool) {
  return expression.evaluate(values);
}
inline double evaluate_element(const Expression& expression, const std::map<std::string, double>& values, bool rounds_to_fp32) {
  return expression.evaluate(values, rounds_to_fp32);
}

}  // namespace pumice
