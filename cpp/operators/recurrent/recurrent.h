// Facts that the rows of LSTM, GRU and RNN share with their lowering.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "operators/row/operator_table.h"

namespace pumice {

enum RecurrentForm : uint8_t { kLstmCell, kGruCell, kRnnCell };  // OperatorRow::form of the rows of lower_recurrent()

// A row's cell: its gates, and the activations that ONNX gives it where none are named.
struct RecurrentCell {
  int64_t gates;
  std::vector<std::string> activations;
};
const RecurrentCell& recurrent_cell(int form);
bool is_recurrent(const OperatorRow& row);

// A pass gives a node that runs both directions tensors for each of them: those of the second one are so many inputs or outputs behind
// those of the first. Inputs are apart where the second one is given, outputs where the attribute `apart` has their bit. Where the
// attribute `rows_first` is set, Y of layout 0 is [steps, batch, directions, units].
inline constexpr size_t kBackward = 3;
inline constexpr const char *kApart = "apart", *kRowsFirst = "rows_first";
inline constexpr size_t kInitialStates[] = {5, 6};  // hidden states and cells among the inputs

bool is_apart(const Attributes& attributes, size_t output);
// The axis of directions of Y or of states.
constexpr size_t direction_axis(bool batch_first, bool is_y) {
  return (batch_first ? 1 : 0) + (is_y ? 1 : 0);
}

int64_t recurrent_directions(const Attributes& attributes);

// The GLSL of each activation over x, for each direction. Throws GraphError where there are not as many as the cell has, for all
// directions; UnsupportedError for one that ONNX does not list.
std::vector<std::array<std::string, 2>> recurrent_activations(int form, std::string_view node, const Attributes& attributes);

}  // namespace pumice
