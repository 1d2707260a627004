// Decides which tensors share memory: views lie on what they view, parts of a concatenation in the whole.
#pragma once

#include <vector>

#include "graph/binding/weights.h"
#include "graph/description/shape_inference.h"
#include "graph/passes/program_graph.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// A tensor with memory of its own, or (parent >= 0) one that lies in another.
struct StorageRoot {
  uint64_t bytes = 0;
  int32_t parent = -1;
  uint64_t offset = 0;  // in the parent
  Lane lane;            // the part of the parent, whose start is the origin
  int32_t output = -1;  // output of the program that it is, else the arena holds it
};

// The place of a value. Place::temporary: `index` is its storage.
struct ValuePlace {
  Place place = Place::none;
  uint32_t index = 0;
  uint64_t offset = 0;
  bool whole = true;  // it is all of its storage
};

// The place of an input of a concatenation.
struct ConcatPart {
  int32_t root = -1;         // its part of the whole; -1: it has no elements
  bool joined = false;       // its producer writes there
  bool whole_words = false;  // no word holds elements of another part
};

struct Placement {
  std::vector<ValuePlace> values;  // by value; none for those on the host alone and for constants
  std::vector<StorageRoot> roots;
  std::vector<std::vector<ConcatPart>> parts;  // by node: of a concatenation by input, else empty
  std::vector<bool> views;                     // by node: nothing is to be done
};

// Chooses layouts (the strides of the descs in `shapes`) and places. Nodes whose outputs have a host value are left out.
Placement place_values(const ProgramGraph& graph, const Weights& weights, ShapeInference& shapes);

// The storage that holds a root and is part of no other, and where in it the root begins, in bytes.
std::pair<uint32_t, uint64_t> outermost(const Placement& placement, uint32_t root);

}  // namespace pumice
