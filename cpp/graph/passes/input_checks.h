// Lists that a program need not know to be bound, but whose rules the host can check where a call hands it the elements: where a slice
// begins, when an input tells it. And indices that are an input of a call themselves, of operations that refuse those out of range.
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

// The checks of a graph whose nodes are not fused yet.
std::vector<InputCheck> input_checks(const ProgramGraph& graph);

// CheckedInputs holds descriptions and elements of the inputs of a check's node, as a binding has them.
struct CheckedInputs {
  std::vector<std::optional<TensorDesc>> descs;
  std::vector<std::optional<HostTensor>> elements;
  IndexBounds bounds;  // of indices
};

CheckedInputs checked_inputs(const InputCheck& check, const ShapeInference& known);

// `shapes` and `values`: of the graph's inputs; a list that comes from values that are null is not checked. Throws GraphError, and
// IndexRangeError for indices.
void check_input(const ProgramGraph& graph, const InputCheck& check, const CheckedInputs& bound, std::span<const Shape> shapes,
                 std::span<const std::byte* const> values);

}  // namespace pumice
