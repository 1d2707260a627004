// A node to evaluate on the host.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "operators/table/operator_table.h"

namespace pumice {

using HostResults = std::optional<std::vector<HostTensor>>;  // nullopt: the result is undefined, as for an integer division by zero

// Wraps the output of a node with one output.
inline HostResults make_single_output(HostTensor value) {
  HostResults results(std::in_place);
  results->push_back(std::move(value));
  return results;
}

// A node and everything that is needed to evaluate it. `outputs` comes from shape inference.
struct HostNode {
  const OperatorRow& row;
  std::string_view name;
  const Attributes& attributes;
  std::span<const HostTensor* const> inputs;
  std::vector<TensorDesc> outputs;
  bool sizes_assumed = false;  // input sizes are only assumed, so violations are not errors yet

  bool has(size_t i) const { return i < inputs.size() && inputs[i]; }
  const HostTensor& input(size_t i) const { return *inputs[i]; }
  std::vector<int64_t> get_integers(size_t i) const { return has(i) ? inputs[i]->as_int64() : std::vector<int64_t>(); }
  size_t get_axis(int64_t fallback, const Shape& shape) const {
    const int64_t declared_axis = attributes.integer("axis", fallback);
    return static_cast<size_t>(declared_axis < 0 ? declared_axis + static_cast<int64_t>(shape.size()) : declared_axis);
  }
};

}  // namespace pumice
