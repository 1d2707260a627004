// State and output tensors of recurrent layers, and dispatches that copy states to and from a layer's memory.
#pragma once

#include <string>

#include "operators/table/lowering.h"

namespace pumice {

// Sizes of a recurrent layer that the dispatches need.
struct StateSizes {
  int64_t directions, batch, units, width;  // `width`: row length in the layer's memory
  bool batch_first;

  int64_t elements() const { return directions * batch * width; }  // number of elements per kind of state in the layer's memory
};

// Return the GLSL array type of a tensor, and a statement that stores `v` in element `index`, as float32 or in the kernel's storage type.
std::string glsl_array_type(const TensorDesc& desc);
std::string make_store_glsl(const TensorDesc& desc, const std::string& array, const std::string& index, const std::string& v);

// Adds the dispatch that fills `state`: hidden states at 0, and cell states at `cells` (-1: none). Omitted states are zero.
void add_initial_states(LowerContext& node, const StateSizes& sizes, const Operand& state, int64_t cells);
// Adds the dispatch that writes the output states, from hidden states at `hidden` and cell states at `cells`. Adds nothing if no output is
// used.
void add_final_states(LowerContext& node, const StateSizes& sizes, const Operand& state, int64_t hidden, int64_t cells);

}  // namespace pumice
