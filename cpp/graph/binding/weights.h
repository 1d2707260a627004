// Constants and owned inputs on the device: packed for their kernels, in one persistent buffer that is filled once.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "graph/passes/program_graph.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// Staging chunk size for weights that may be split.
inline constexpr uint64_t kStagingChunkBytes = uint64_t{8} << 20;

// Location of a weight in the persistent buffer.
struct PlacedWeight {
  uint64_t offset = 0, bytes = 0;
  bool packed = false;  // whether it has the packed format of its operator
};

// Source of a weight: a constant converted to the dtype of `slot`, or the range of its elements that begins at `first`.
struct WeightSource {
  HostTensor constant;
  TensorSlot slot;  // name and description of the input slot of the initialiser
  int64_t first = 0;

  uint64_t bytes() const { return slot.desc->bytes(); }
  void write_to(std::byte* target) const { write_to(target, 0, slot.desc->element_bytes()); }
  // Writes bytes [begin, begin + count) of the converted constant to their offsets in `target`; `begin` is an element boundary. Thread-safe
  // for disjoint ranges.
  void write_to(std::byte* target, uint64_t begin, uint64_t count) const;
};

// The layout of all weights, and the steps that fill them. `sources` are in the order of the owned input slots of the plan, which follow
// the inputs of the graph.
struct Weights {
  std::vector<std::vector<std::optional<PlacedWeight>>> by_node;  // indexed by node, then by input; empty for a node without weights
  std::vector<std::optional<PlacedWeight>> by_output;             // for each program output
  std::vector<std::optional<PlacedWeight>> by_input;              // for each program input: owned inputs that are also needed unpacked
  std::vector<WeightSource> sources;                              // constants are released after the upload
  std::shared_ptr<const InitializationPlan> initialization;
};

Weights place_weights(const std::shared_ptr<Context>& context, const ProgramGraph& graph);

}  // namespace pumice
