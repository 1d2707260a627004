// Host evaluation of small nodes: shape arithmetic and constant folding at compile time.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "operators/table/operator_table.h"

namespace pumice {

// Returns all outputs of a node with known inputs (null for an omitted optional one) and checked attributes. Returns nullopt if the host
// cannot evaluate the operator or the result is undefined (integer division by zero). Throws GraphError like the operator's shape rule, and
// for indices out of range. `sizes_assumed`: input sizes are only assumed, so an index beyond them is not an error. `descs`: outputs of the
// shape rule, if the caller has already run it.
std::optional<std::vector<HostTensor>> evaluate_on_host(const OperatorRow& row, std::string_view node, const Attributes& attributes,
                                                        std::span<const HostTensor* const> inputs, bool sizes_assumed = false,
                                                        std::vector<TensorDesc> descs = {});

}  // namespace pumice
