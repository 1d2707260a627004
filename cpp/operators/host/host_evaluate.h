// Values of small nodes on the host: the arithmetic of shapes, and constants folded at compile.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "operators/row/operator_table.h"

namespace pumice {

// The outputs of one node, all of them, from inputs that are known (null where an optional one is left out); `attributes` are checked
// ones. None where the host does not evaluate the row, or where the values have no meaning
// (an integer divided by zero). Throws GraphError as the row's shape rule does, and for indices out of range. `tried`: the inputs are of
// sizes that they may have, and a position beyond such a size is no error. `descs`: those of all outputs, where the caller has run the
// shape rule already.
std::optional<std::vector<HostTensor>> evaluate_on_host(const OperatorRow& row, std::string_view node, const Attributes& attributes,
                                                        std::span<const HostTensor* const> inputs, bool tried = false,
                                                        std::vector<TensorDesc> descs = {});

}  // namespace pumice
