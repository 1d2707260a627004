// Facts that the rows of LSTM, GRU and RNN share with their lowering.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "operators/row/operator_table.h"

namespace pumice {

// A row's cell: its gates, and the activations that ONNX gives it where none are named.
struct RecurrentCell {
  int64_t gates;
  std::vector<std::string> activations;
};
const RecurrentCell& recurrent_cell(std::string_view op);

int64_t recurrent_directions(const Attributes& attributes);

// The GLSL of each activation over x, for each direction. Throws GraphError where there are not as many as the cell has, for all
// directions; UnsupportedError for one that ONNX does not list.
std::vector<std::array<std::string, 2>> recurrent_activations(std::string_view op, std::string_view node, const Attributes& attributes);

}  // namespace pumice
