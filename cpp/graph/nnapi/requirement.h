// What an operation asks of its operands beyond the rows that it became, where something was not known yet when it was added.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graph/nnapi/operands.h"

namespace pumice::nnapi {

// The row of the node that carries one: its result is its first input. Inputs 1 to 3 are lists that the host reads, those behind them
// tensors of which the shapes alone matter, or lists whose elements the device may know alone.
inline constexpr std::string_view kRequire = "pumice::Require";
inline constexpr size_t kFirstRequiredList = 1, kFirstRequiredTensor = 4;

struct Requirement {
  Operands operands;                              // as they were known
  std::vector<std::optional<size_t>> operand_of;  // by input of the node
};

// Throws GraphError that names the operation's node, as it would have been thrown when the operation was added. `elements`: null where
// they are not known to the host; then the rules about them are not checked.
void check(const Requirement& requirement, std::span<const TensorDesc* const> inputs, std::span<const HostTensor* const> elements);

}  // namespace pumice::nnapi
