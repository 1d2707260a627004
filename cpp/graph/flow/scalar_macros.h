// GLSL source of a loop over a few 32-bit scalars.
#pragma once

#include <optional>

#include "graph/description/graph.h"
#include "shader/preamble/shader_options.h"

namespace pumice {

// Returns the macros that make scalar_loop.comp run this loop; none if a node is not a scalar map or has a dtype of other than 32 bits
// (except bool). Independent of shapes, which are checked when the loop is entered.
std::optional<Macros> scalar_loop_macros(const ControlFlow& flow);

}  // namespace pumice
