// Tensors of states and results of recurrent layers, and the dispatches that bring states to a layer's own memory and from there.
#pragma once

#include <string>

#include "operators/row/lowering.h"

namespace pumice {

// The facts of a recurrent layer that its dispatches need.
struct StateSizes {
  int64_t directions, batch, units, width;  // `width` elements in a row of the layer's memory
  bool batch_first;

  int64_t elements() const { return directions * batch * width; }  // of one kind of states in the layer's memory
};

// The type of a kernel's array for a tensor, and the statement that stores `v` as element `index` of one: float32, or as the kernel
// computes.
std::string array_type(const TensorDesc& desc);
std::string stored(const TensorDesc& desc, const std::string& array, const std::string& index, const std::string& v);

// Adds the dispatch that fills `state`: hidden states from 0 on, and cells from `cells` on where there are any (-1: none). States that are
// not given are zero.
void add_first_states(LowerContext& node, const StateSizes& sizes, const Operand& state, int64_t cells);
// Adds the dispatch that makes outputs of the hidden states, which lie from `hidden` on, and of the cells; none where nobody wants them.
void add_last_states(LowerContext& node, const StateSizes& sizes, const Operand& state, int64_t hidden, int64_t cells);

}  // namespace pumice
