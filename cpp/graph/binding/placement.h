// Decides which tensors share memory: views alias their source, inputs of a Concat are slices of its output.
#pragma once

#include <vector>

#include "graph/binding/weights.h"
#include "graph/description/shape_inference.h"
#include "graph/passes/program_graph.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// A tensor with its own memory, or, if parent >= 0, a slice of another.
struct StorageRoot {
  uint64_t bytes = 0;
  int32_t parent = -1;
  uint64_t offset = 0;    // byte offset within the parent
  InterleavedRange lane;  // the slice as a lane of the parent, with the parent's start as origin
  int32_t output = -1;    // the program output that is stored here; -1: stored in the arena
};

// Where a value is stored. For Place::temporary, `index` is that of its StorageRoot.
struct ValueLocation {
  MemoryKind place = MemoryKind::none;
  uint32_t index = 0;
  uint64_t offset = 0;
  bool whole = true;  // whether the value covers its whole storage
};

// Where an input of a Concat is stored.
struct ConcatSlice {
  int32_t root = -1;              // StorageRoot of its slice of the output; -1 if it has no elements
  bool written_in_place = false;  // its producer writes directly to the output
  bool whole_words = false;       // shares no word with another input's slice
};

struct Placement {
  std::vector<ValueLocation> values;  // indexed by value; no place for constants and host-only values
  std::vector<StorageRoot> roots;
  std::vector<std::vector<ConcatSlice>> concat_slices;  // indexed by node: for a Concat, one entry per input, else empty
  std::vector<bool> views;                              // indexed by node: outputs alias the input, and nothing runs
};

// Chooses the layout (strides in `shapes`) and storage of each value. Skips nodes whose outputs have a host value.
Placement place_values(const ProgramGraph& graph, const Weights& weights, ShapeInference& shapes);

// Returns the outermost storage that contains a root, and the root's byte offset in it.
std::pair<uint32_t, uint64_t> outermost_storage(const Placement& placement, uint32_t root);

}  // namespace pumice
