// A program that checks the indices which only the device knows: a node beside each that has some, and what they have found.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/passes/program_graph.h"
#include "operators/geometry/index_bounds.h"

namespace pumice {

class ShapeInference;

// An IndexCheck names a node of a bound program, the value that its indices are, and what these may be.
struct IndexCheck {
  std::string node, value;
  IndexBounds bounds;
  Shape shape;
  bool is_real;  // the indices are floats
};

// Adds the checks as the last outputs of the graph, which counts them in `index_checks`.
void add_index_checks(ProgramGraph& graph);
// The graph's checks, bound to these shapes, in their order.
std::vector<IndexCheck> bound_checks(const ProgramGraph& graph, const ShapeInference& shapes);
// Throws IndexRangeError: so many are out of range, the first of which is at `position`.
[[noreturn]] void raise_index(const IndexCheck& check, uint64_t count, int64_t position, int64_t index, const std::string& text);
// `made`: what check k has made. Throws IndexRangeError for the first that has found an index.
void raise_found(const std::vector<IndexCheck>& checks, const std::function<const std::byte*(size_t)>& made);

}  // namespace pumice
