// Helpers shared by image operations: windows in explicit and implicit form, and channel layout.
#pragma once

#include <vector>

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

// Returns the window operands: padding as numbers or (`implicit`) as a scheme, strides and, for pools, the size.
std::vector<Operand> window_operands(bool implicit, bool sized);

struct Window {
  Attributes attributes;  // attributes of Conv and the pooling operators
  size_t next;            // index of the next operand
};
// Reads the window that begins at operand `first`. `numbers`: for convolutions, number of operands between the strides and the
// activation, which is followed by the layout and the dilations.
Window read_window(const Expansion& e, size_t first, size_t numbers, bool sized);

// Whether the layout is channels-first: the flag at operand i, false if omitted.
bool read_nchw_flag(const Expansion& e, size_t i);
// Convert from the caller's layout to channels-first, and back.
ValueId to_nchw(Expansion& e, ValueId id, bool is_nchw);
ValueId from_nchw(Expansion& e, ValueId id, bool is_nchw);

}  // namespace pumice::nnapi
