// GLSL source of a loop over a few 32-bit scalars.
#pragma once

#include <optional>

#include "graph/description/graph.h"
#include "shader/preamble/shader_options.h"

namespace pumice {

// Returns the macros that make scalar_loop.comp run this loop; nullopt if a node is not an elementwise operator on scalars, or has a dtype
// that is neither 32 bits wide nor bool. Independent of shapes, which are checked when the loop is entered.
std::optional<Macros> scalar_loop_macros(const ControlFlow& flow);

}  // namespace pumice
