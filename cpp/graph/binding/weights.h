// Constants and owned inputs that the device reads: packed for their kernels, in one persistent resource that is filled once.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "graph/passes/program_graph.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// Bytes staged at once for weights that may be split.
inline constexpr uint64_t kStagingChunkBytes = uint64_t{8} << 20;

// A constant or an owned input in the persistent resource.
struct PlacedWeight {
  uint64_t offset = 0, bytes = 0;
  bool packed = false;  // in the packed format of its operator
};

// An input of initialisation: a constant in its slot's dtype, or a range of its elements starting at `first`.
struct WeightSource {
  HostTensor constant;
  Slot slot;  // set for an owned input slot
  int64_t first = 0;

  uint64_t bytes() const { return slot.desc->bytes(); }
  void write_to(std::byte* target) const { write_to(target, 0, slot.desc->element_bytes()); }
  // Writes bytes [begin, begin + count) to their offsets in `target`; `begin` is an element boundary. Thread-safe for disjoint ranges.
  void write_to(std::byte* target, uint64_t begin, uint64_t count) const;
};

// The layout of all weights and the steps that fill them. `sources` are in the order of the plan's owned input slots, which follow the
// graph's inputs.
struct Weights {
  std::vector<std::vector<std::optional<PlacedWeight>>> by_node;  // indexed by node and input; empty for a node without weights
  std::vector<std::optional<PlacedWeight>> by_output;             // indexed by output of the program
  std::vector<std::optional<PlacedWeight>> by_input;              // indexed by input of the program: owned inputs that are needed unpacked
  std::vector<WeightSource> sources;                              // constants are released once the device has them
  std::shared_ptr<const InitializationPlan> initialization;
};

Weights place_weights(const std::shared_ptr<Context>& context, const ProgramGraph& graph);

}  // namespace pumice
