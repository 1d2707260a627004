// The text of a loop over a few single elements of 32 bits.
#pragma once

#include <optional>

#include "graph/description/graph.h"
#include "shader/preamble/shader_options.h"

namespace pumice {

// The macros with which scalar_loop.comp runs this loop; none where a node is no map of single elements, or has a dtype of other than 32
// bits (bool aside). Free of shapes: those of the values are looked at when the loop is entered.
std::optional<Macros> scalar_loop_macros(const ControlFlow& flow);

}  // namespace pumice
