// Rules of boxes [x1, y1, x2, y2] and their image indices.
#pragma once

#include <string_view>

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

inline constexpr float kBoxScale = 0.125f;  // of 16-bit boxes

void expect_box_scale(const Expansion& e, size_t i);
// Boxes and the other operand have the same float type, or 16-bit boxes with 8-bit others.
void expect_box_type(const Expansion& e, size_t boxes, size_t other, std::string_view rule);
// Returns operand i as float32, dequantized if necessary.
ValueId in_float32(Expansion& e, size_t i);
// Returns boxes in operand i's type: rounded, or quantized in units of 1/8.
void give_boxes(Expansion& e, ValueId id, size_t i);
// Boxes must be valid, if known now or at a call; known indices must refer to images of operand `images`.
void check_boxes(const Operands& o, size_t i);
void check_images(Operands& o, size_t i, size_t images, std::string_view rule);

}  // namespace pumice::nnapi
