// GLSL for elements in elementwise kernels: types, loads and stores.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "operators/common/low_precision_cast.h"
#include "operators/elementwise/elementwise_expression.h"
#include "operators/table/operator_table.h"

namespace pumice {

std::string_view glsl_type(ExprType type);
bool is_real(ExprType type);

// GLSL that declares, loads and stores elements of a dtype in a kernel with that storage; `t` is the array, `i` the element index.
struct ElementGlsl {
  std::string input_type, load, store;
};
ElementGlsl element_glsl(const NodeContext& node, DType dtype, DType storage, const std::string& t);

// GLSL for four adjacent elements whose first index is a multiple of four: declarations for inputs and outputs, component access, scalar
// load and store. `q`: the vector; `j`: the component; `i`: the element index. Words past the last of `count` elements are not written.
struct Vec4Glsl {
  std::string input_type, output_type, component, scalar_load, store;
};
// GLSL for four elements of a dtype; nullopt for 64-bit elements, which are loaded one at a time. `native`: the kernel's storage is
// float16, and the device does the conversion.
std::optional<Vec4Glsl> vec4_glsl(DType dtype, const std::string& t, bool native);

// GLSL that converts a float to an integer dtype: truncates, saturates at the dtype's range, and maps NaN to 0.
std::string saturating_cast(const std::string& value, DType dtype);

}  // namespace pumice
