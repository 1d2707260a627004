// The constants and owned inputs that the device reads: packed for their kernels, in one persistent resource that is filled once.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "graph/passes/program_graph.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// The bytes that are staged at once, of weights that need not be in one piece.
inline constexpr uint64_t kStagedAtOnce = uint64_t{8} << 20;

// The place of a constant or an owned input in the persistent resource.
struct WeightUse {
  uint64_t offset = 0, bytes = 0;
  bool packed = false;  // in the row's own form
};

// An input of initialisation: a constant in its slot's dtype, or as many elements of it from `first` on.
struct WeightSource {
  HostTensor constant;
  Slot slot;  // owned
  int64_t first = 0;

  uint64_t bytes() const { return slot.desc->bytes(); }
  void write_to(std::byte* target) const { write_to(target, 0, slot.desc->element_bytes()); }
  // Writes `count` of its bytes, from byte `begin` on, where an element begins, to where they belong in `target`. Several threads may each
  // write some.
  void write_to(std::byte* target, uint64_t begin, uint64_t count) const;
};

// Places of all weights and the steps that fill them. The order of `sources` is that of the plans' owned input slots, which follow
// the graph's inputs.
struct Weights {
  std::vector<std::vector<std::optional<WeightUse>>> of_nodes;  // by node and input; empty for a node without any
  std::vector<std::optional<WeightUse>> of_outputs;             // by output of the program
  std::vector<std::optional<WeightUse>> of_inputs;              // by input of the program: owned, and needed as it is inside
  std::vector<WeightSource> sources;                            // their constants are released once the device has them
  std::shared_ptr<const InitializationPlan> initialization;
};

Weights place_weights(const std::shared_ptr<Context>& context, const ProgramGraph& graph);

}  // namespace pumice
