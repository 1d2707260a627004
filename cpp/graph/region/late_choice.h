// Expands a region's shape-dependent operations for specific shapes. If ranks alone settle the nodes, one expansion serves all sizes.
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

// The key of an expansion: ranks, sizes, or sizes and elements.
struct LateChoice {
  enum class Known : uint8_t { ranks, sizes, elements };

  Known known;
  std::vector<Shape> shapes;
  std::vector<std::optional<HostTensor>> values;

  bool matches(std::span<const ShapeView> given, std::span<const std::byte* const> elements) const;
};

// The expanded nodes of a region for such a key.
struct LateGraph {
  LateChoice choice;
  std::shared_ptr<const Graph> graph;
  GraphPart part;
};

// Expands the deferred nodes of a graph. `graph`: as built, with the input elements that the host reads marked. `values`: as for
// Region::bind(). Throws GraphError, UnsupportedError.
LateGraph expand_late(const ProgramGraph& graph, std::span<const ShapeView> shapes, std::span<const std::byte* const> values);

}  // namespace pumice
