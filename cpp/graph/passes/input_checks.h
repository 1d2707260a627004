// Checks on the host, at each call, of lists that binding need not know (such as Slice starts given as an input), and of indices that are
// inputs of a call, for operators that reject out-of-range indices.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "core/tensor_desc.h"
#include "graph/passes/program_graph.h"
#include "operators/row/index_rule.h"

namespace pumice {

class ShapeInference;

// Returns the checks of a graph before fusion.
std::vector<InputCheck> input_checks(const ProgramGraph& graph);

// Descriptions and elements of the inputs of a check's node, for one binding.
struct CheckedInputs {
  std::vector<std::optional<TensorDesc>> descs;
  std::vector<std::optional<HostTensor>> elements;
  IndexBounds bounds;  // of indices
};

CheckedInputs checked_inputs(const InputCheck& check, const ShapeInference& known);

// `shapes` and `values`: of the graph's inputs; lists computed from null values are skipped. Throws GraphError, or IndexRangeError for
// indices.
void check_input(const ProgramGraph& graph, const InputCheck& check, const CheckedInputs& bound, std::span<const Shape> shapes,
                 std::span<const std::byte* const> values);

}  // namespace pumice
