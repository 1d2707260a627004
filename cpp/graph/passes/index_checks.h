// Runtime checks of indices known only on the device: adds a check node for each indexing node, and decodes the results.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/passes/program_graph.h"
#include "operators/geometry/index_bounds.h"

namespace pumice {

class ShapeInference;

// An index check of a bound program: the names of the node and of the index value, and the valid range.
struct IndexCheck {
  std::string node, value;
  IndexBounds bounds;
  Shape shape;
  bool is_real;  // whether the indices are floats
};

// Adds check nodes, whose outputs become the last outputs of the graph, and sets its `index_checks`.
void add_index_checks(ProgramGraph& graph);
// Returns the index checks of the graph, in order, for these shapes.
std::vector<IndexCheck> bind_index_checks(const ProgramGraph& graph, const ShapeInference& shapes);
// Throws IndexRangeError: `count` indices are out of range, the first of them at `position`.
[[noreturn]] void throw_index_error(const IndexCheck& check, uint64_t count, int64_t position, int64_t index, const std::string& text);
// `get_output`: returns the output of check k. Throws IndexRangeError for the first failed check.
void throw_failed_checks(const std::vector<IndexCheck>& checks, const std::function<const std::byte*(size_t)>& get_output);

}  // namespace pumice
