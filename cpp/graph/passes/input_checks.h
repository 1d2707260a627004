// Checks that the host runs on every call: of lists that binding does not need, such as Slice starts passed as an input, and of input
// indices whose operator rejects out-of-range values.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "core/tensor_desc.h"
#include "graph/passes/program_graph.h"
#include "operators/table/index_bounds_rule.h"

namespace pumice {

class ShapeInference;

// Returns the input checks of a graph before fusion.
std::vector<InputCheck> find_input_checks(const ProgramGraph& graph);

// Descriptions and elements of the inputs of the checked node, for one binding.
struct CheckedInputs {
  std::vector<std::optional<TensorDesc>> descs;
  std::vector<std::optional<HostTensor>> elements;
  IndexBounds bounds;  // valid range of the indices
};

CheckedInputs bind_check_inputs(const InputCheck& check, const ShapeInference& known);

// Runs one check. `shapes` and `values`: shapes and elements of the graph inputs. Skips lists computed from null values. Throws GraphError
// if a list is invalid, IndexRangeError for an index out of range.
void check_input(const ProgramGraph& graph, const InputCheck& check, const CheckedInputs& bound, std::span<const Shape> shapes,
                 std::span<const std::byte* const> values);

}  // namespace pumice
