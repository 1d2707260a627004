// Rules for boxes [x1, y1, x2, y2] and the image indices of boxes.
#pragma once

#include <string_view>

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

inline constexpr float kBoxScale = 0.125f;  // scale of quantized 16-bit boxes

void expect_box_scale(const Expansion& e, size_t i);
// Checks that boxes and the other operand have the same float dtype, or that the boxes are 16-bit and the other operand is 8-bit.
void expect_box_type(const Expansion& e, size_t boxes, size_t other, std::string_view rule);
// Returns operand i as float32, dequantized if it is quantized.
ValueId as_float32(Expansion& e, size_t i);
// Adds an output with boxes in the dtype of operand i: cast, or quantized in units of 1/8.
void add_box_output(Expansion& e, ValueId id, size_t i);
// Check that boxes are valid, and that image indices are within the batch of operand `images`, if the elements are known.
void check_boxes(const Operands& o, size_t i);
void check_image_indices(Operands& o, size_t i, size_t images, std::string_view rule);

}  // namespace pumice::nnapi
