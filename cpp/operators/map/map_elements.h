// Elements of maps in GLSL: their types, and how they are loaded and stored.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "operators/map/map_expression.h"
#include "operators/means/narrow.h"
#include "operators/row/operator_table.h"

namespace pumice {

std::string_view glsl_type(ExprType type);
bool is_real(ExprType type);

// The GLSL that declares, loads and stores elements of a dtype in a kernel of that storage; `t` is the array, `i` the element.
struct ElementText {
  std::string declared, load, store;
};
ElementText element_text(const NodeContext& node, DType dtype, DType storage, const std::string& t);

// The GLSL for four neighbours, from a multiple of four on: their declaration where they are read and where they are made, and how they are
// picked apart, read one by one and stored. `q` is what is held, `j` the one of four, `i` the element's index; words past the last of
// `count` are not written.
struct QuadText {
  std::string declared, made, pick, read, store;
};
// The GLSL for four elements of a dtype; none for elements of 64 bits, which are loaded one by one. `native`: the kernel's own storage is
// float16, to which the device converts.
std::optional<QuadText> quad_text(DType dtype, const std::string& t, bool native);

// GLSL that converts a float to an integer of that dtype: truncated, at the ends of the dtype's range where it is beyond them, 0 for NaN.
std::string saturated(const std::string& value, DType dtype);

}  // namespace pumice
