// Expands the deferred operations of a region for specific shapes. If the ranks alone determine the nodes, one expansion serves all sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "graph/passes/program_graph.h"
#include "graph/region/program_value.h"

namespace pumice {

// The facts that an expansion depends on: only the ranks of the inputs, their sizes, or their sizes and elements.
struct ExpansionKey {
  enum class KeyKind : uint8_t { ranks, sizes, elements };

  KeyKind kind;
  std::vector<Shape> shapes;
  std::vector<std::optional<HostTensor>> values;

  bool matches(std::span<const ShapeView> call_shapes, std::span<const std::byte* const> elements) const;
};

// A region expanded for this key.
struct ExpandedGraph {
  ExpansionKey key;
  std::shared_ptr<const Graph> graph;
  Subgraph subgraph;
};

// Expands the deferred nodes of a graph. `graph`: the unexpanded graph, which marks the inputs whose elements the host reads. `values`: as
// for Region::bind(). Throws GraphError if the inputs are invalid, UnsupportedError if an operation is not supported.
ExpandedGraph expand_deferred_graph(const ProgramGraph& graph, std::span<const ShapeView> shapes, std::span<const std::byte* const> values);

}  // namespace pumice
