// Generates GLSL for a loop over a few 32-bit scalars.
#pragma once

#include <optional>

#include "graph/description/graph.h"
#include "shader/preamble/shader_options.h"

namespace pumice {

// Returns the macros for scalar_loop.comp that run this loop; nullopt if a node is not an elementwise operator on scalars, or a dtype is
// neither bool nor 32 bits wide. Shapes are checked when the loop is entered.
std::optional<Macros> make_scalar_loop_macros(const ControlFlow& flow);

}  // namespace pumice
