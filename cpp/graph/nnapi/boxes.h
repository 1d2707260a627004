// Rules of boxes, [x1, y1, x2, y2], and of the images that they are of.
#pragma once

#include <string_view>

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

inline constexpr float kBoxScale = 0.125f;  // of boxes of 16 bits

void expect_box_scale(const Expansion& e, size_t i);
// Boxes and others have one float type, or 16 bits beside 8.
void expect_box_type(const Expansion& e, size_t boxes, size_t other, std::string_view rule);
// Operand i as float32: what integers stand for, or the floats themselves.
ValueId in_float32(Expansion& e, size_t i);
// Gives boxes as operand i's type: rounded, or quantized in eighths.
void give_boxes(Expansion& e, ValueId id, size_t i);
// Boxes are valid, where their numbers are known or a call hands them over; indices that are known name images of operand `images`.
void check_boxes(const Operands& o, size_t i);
void check_images(Operands& o, size_t i, size_t images, std::string_view rule);

}  // namespace pumice::nnapi
