// Rules for boxes [x1, y1, x2, y2] and their image indices.
#pragma once

#include <string_view>

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

inline constexpr float kBoxScale = 0.125f;  // scale of 16-bit quantized boxes

void expect_box_scale(const Expansion& e, size_t i);
// Checks that boxes and the other operand have the same float type, or that the boxes are 16-bit and the other operand is 8-bit.
void expect_box_type(const Expansion& e, size_t boxes, size_t other, std::string_view rule);
// Returns operand i as float32, dequantized if necessary.
ValueId as_float32(Expansion& e, size_t i);
// Outputs boxes in operand i's type: rounded, or quantized in units of 1/8.
void add_box_output(Expansion& e, ValueId id, size_t i);
// Check that boxes are valid, if their elements are known now or at a call, and that known indices refer to images of operand `images`.
void check_boxes(const Operands& o, size_t i);
void check_image_indices(Operands& o, size_t i, size_t images, std::string_view rule);

}  // namespace pumice::nnapi
