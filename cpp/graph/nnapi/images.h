// Helpers for image operations: windows with explicit or implicit padding, and channel layout.
#pragma once

#include <vector>

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

// Returns the operands of a window: padding as numbers or (`implicit`) as a scheme, strides and (`sized`) the window size.
std::vector<Operand> make_window_operands(bool implicit, bool sized);

struct WindowParams {
  Attributes attributes;  // attributes for Conv and the pooling operators
  size_t next;            // index of the operand after the window
};
// Reads the window that begins at operand `first`. `numbers`: for convolutions, the number of operands between the strides and the
// activation; the layout and the dilations follow the activation.
WindowParams read_window(const Expansion& e, size_t first, size_t numbers, bool sized);

// Returns whether the layout is NCHW: the flag operand i, false if omitted.
bool read_nchw_flag(const Expansion& e, size_t i);
// Convert from the layout of the caller to NCHW, and back.
ValueId to_nchw(Expansion& e, ValueId id, bool is_nchw);
ValueId from_nchw(Expansion& e, ValueId id, bool is_nchw);

}  // namespace pumice::nnapi
