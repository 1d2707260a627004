// What the nodes of a region are for one choice of shapes, where they depend on them: by the ranks alone where these will do.
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

// By what a choice is told from others.
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

// `graph`: as it was built, its inputs' elements that the host reads marked. `values`: as of Region::bind(). Throws GraphError,
// UnsupportedError.
LateGraph expand_late(const ProgramGraph& graph, std::span<const ShapeView> shapes, std::span<const std::byte* const> values);

}  // namespace pumice
