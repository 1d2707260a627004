// One node for the host's evaluations, and those of the operators that find elements by indices.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "operators/row/operator_table.h"

namespace pumice {

using HostResults = std::optional<std::vector<HostTensor>>;  // none: without a value, as of an integer divided by zero

// The results of a node of one output.
inline HostResults one(HostTensor value) {
  HostResults results(std::in_place);
  results->push_back(std::move(value));
  return results;
}

// One node with all that its evaluation needs; the output descs are its shape rule's.
struct HostNode {
  const OperatorRow& row;
  std::string_view name;
  const Attributes& attributes;
  std::span<const HostTensor* const> inputs;
  std::vector<TensorDesc> outputs;
  bool tried = false;  // for sizes that the inputs may have: what they break is no error yet

  bool has(size_t i) const { return i < inputs.size() && inputs[i]; }
  const HostTensor& input(size_t i) const { return *inputs[i]; }
  std::vector<int64_t> integers(size_t i) const { return has(i) ? inputs[i]->as_int64() : std::vector<int64_t>(); }
  size_t axis(int64_t fallback, const Shape& shape) const {
    const int64_t given = attributes.integer("axis", fallback);
    return static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(shape.size()) : given);
  }
};

}  // namespace pumice
