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
  uint64_t offset = 0;  // within the parent
  Lane lane;            // slice of the parent, with the parent's start as origin
  int32_t output = -1;  // program output stored here, else -1: in the arena
};

// Where a value is stored. Place::temporary: `index` is its StorageRoot.
struct ValuePlace {
  Place place = Place::none;
  uint32_t index = 0;
  uint64_t offset = 0;
  bool whole = true;  // covers its whole storage
};

// Where an input of a Concat is stored.
struct ConcatPart {
  int32_t root = -1;         // its slice of the output; -1 if it has no elements
  bool joined = false;       // its producer writes directly into the output
  bool whole_words = false;  // shares no word with another input's slice
};

struct Placement {
  std::vector<ValuePlace> values;  // by value; none for constants and host-only values
  std::vector<StorageRoot> roots;
  std::vector<std::vector<ConcatPart>> parts;  // by node: of a Concat by input, else empty
  std::vector<bool> views;                     // by node: outputs alias the input, nothing to run
};

// Chooses layouts (the strides of the descs in `shapes`) and storage. Skips nodes whose outputs have a host value.
Placement place_values(const ProgramGraph& graph, const Weights& weights, ShapeInference& shapes);

// Returns the outermost storage that contains a root, and the root's byte offset in it.
std::pair<uint32_t, uint64_t> outermost(const Placement& placement, uint32_t root);

}  // namespace pumice
