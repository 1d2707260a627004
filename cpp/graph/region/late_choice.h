// The nodes of a region whose operations depend on shapes, for one choice of shapes. Ranks alone tell choices apart where they settle the
// nodes.
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

// The facts that tell one choice of shapes from another: ranks, sizes, or sizes and elements.
struct LateChoice {
  enum class Known : uint8_t { ranks, sizes, elements };

  Known known;
  std::vector<Shape> shapes;
  std::vector<std::optional<HostTensor>> values;

  bool matches(std::span<const ShapeView> given, std::span<const std::byte* const> elements) const;
};

// The nodes of a region for such a choice.
struct LateGraph {
  LateChoice choice;
  std::shared_ptr<const Graph> graph;
  GraphPart part;
};

// Expands the late nodes of a graph. `graph` is as it was built, its inputs' elements that the host reads marked. `values`: as of
// Region::bind(). Throws GraphError, UnsupportedError.
LateGraph expand_late(const ProgramGraph& graph, std::span<const ShapeView> shapes, std::span<const std::byte* const> values);

}  // namespace pumice
