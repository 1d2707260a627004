// Evaluates small nodes on the host: shape arithmetic, and constant folding at compile time.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "operators/table/operator_table.h"

namespace pumice {

// Computes all outputs of a node whose inputs are known. Inputs that are omitted are null; attributes are already validated. Returns
// nullopt if the host cannot evaluate the operator, or if the result is undefined (integer division by zero). Throws GraphError if shape
// inference does, and for out-of-range indices. `sizes_assumed`: the input sizes are only assumed, so an out-of-range index is not an
// error. `descs`: output descriptions, if the caller has already run shape inference.
std::optional<std::vector<HostTensor>> evaluate_on_host(const OperatorRow& row, std::string_view node, const Attributes& attributes,
                                                        std::span<const HostTensor* const> inputs, bool sizes_assumed = false,
                                                        std::vector<TensorDesc> descs = {});

}  // namespace pumice
