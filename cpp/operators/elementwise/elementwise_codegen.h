// Generates the GLSL that declares, loads and stores the elements of elementwise kernels.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "operators/common/low_precision_cast.h"
#include "operators/elementwise/elementwise_expression.h"
#include "operators/table/operator_table.h"

namespace pumice {

std::string_view get_glsl_type(ExprType type);
bool is_real(ExprType type);

// GLSL that accesses one element of an array. `input_type`: type of the array's elements. `load`, `store`: access to element `i`.
struct ElementGlsl {
  std::string input_type, load, store;
};
ElementGlsl make_element_glsl(const NodeContext& node, DType dtype, DType storage, const std::string& array);

// GLSL that accesses four adjacent elements, of which the first is at a multiple of four. `component` reads component `j` of a loaded
// vector `q`. `scalar_load` reads element `i`. `store` writes the words that contain `count` elements, starting at element `i`.
struct Vec4Glsl {
  std::string input_type, output_type, component, scalar_load, store;
};
// Returns the GLSL for vectors of a dtype; nullopt for 64-bit elements, which are loaded one at a time. `native`: the kernel's storage is
// float16, and the device supports that natively.
std::optional<Vec4Glsl> make_vec4_glsl(DType dtype, const std::string& array, bool native);

// Returns GLSL that converts a float expression to an integer dtype: it truncates, saturates, and maps NaN to 0.
std::string emit_saturating_cast(const std::string& value, DType dtype);

}  // namespace pumice
