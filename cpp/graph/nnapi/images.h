// Parts that operations over images share: windows given in two forms, and the layout of the channels.
#pragma once

#include <vector>

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

// Operands of a window, padding as numbers or, `implicit`, as a scheme: strides, and of pools the size.
std::vector<Operand> window_operands(bool implicit, bool sized);

struct Window {
  Attributes attributes;  // as Conv and the pools take them
  size_t next;            // the operand behind
};
// Reads the window that begins at operand `first`. `numbers`: operands between it and the activation, behind which are the layout and,
// of convolutions, the dilations.
Window window_of(const Expansion& e, size_t first, size_t numbers, bool sized);

// Whether the channels come before the places: what the flag at operand i says, no where it is left out.
bool is_planes(const Expansion& e, size_t i);
// Convert from the caller's layout to that of the operator table, and back.
ValueId planes_of(Expansion& e, ValueId id, bool planes);
ValueId image_of(Expansion& e, ValueId id, bool planes);

}  // namespace pumice::nnapi
