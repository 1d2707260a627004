// Plans tensor memory: chooses layouts, makes views alias their input, and makes the inputs of a Concat slices of its output.
#pragma once

#include <vector>

#include "graph/binding/weights.h"
#include "graph/description/shape_inference.h"
#include "graph/passes/program_graph.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// A memory allocation of a tensor or, if parent >= 0, a slice of another allocation.
struct StorageRoot {
  uint64_t bytes = 0;
  int32_t parent = -1;
  uint64_t offset = 0;           // byte offset within the parent
  InterleavedRange interleaved;  // interleaved byte range of the slice, relative to the start of the parent
  int32_t output = -1;           // index of the program output stored here; -1: stored in the arena
};

// Where a value is stored. For MemoryKind::temporary, `index` is the index of its StorageRoot.
struct ValueLocation {
  MemoryKind memory = MemoryKind::none;
  uint32_t index = 0;
  uint64_t offset = 0;
  bool covers_root = true;  // whether the value covers the whole StorageRoot
};

// Memory of one input of a Concat.
struct ConcatSlice {
  int32_t root = -1;              // index of the StorageRoot of its slice of the output; -1 if the input is empty
  bool written_in_place = false;  // whether its producer writes directly to the Concat's output
  bool whole_words = false;       // whether no 32-bit word is shared with the slice of another input
};

struct MemoryPlan {
  std::vector<ValueLocation> values;  // indexed by value; MemoryKind::none for constants and host-only values
  std::vector<StorageRoot> roots;
  std::vector<std::vector<ConcatSlice>> concat_slices;  // indexed by node, then by input; empty except for Concat nodes
  std::vector<bool> views;                              // indexed by node: whether its outputs alias its input, so that no kernel runs
};

// Chooses the strides (in `shapes`) and the memory of each value. Skips nodes whose outputs are known on the host.
MemoryPlan plan_memory(const ProgramGraph& graph, const Weights& weights, ShapeInference& shapes);

// Returns the index of the outermost StorageRoot that contains `root`, and the byte offset of `root` in it.
std::pair<uint32_t, uint64_t> find_outermost_storage(const MemoryPlan& memory_plan, uint32_t root);

}  // namespace pumice
