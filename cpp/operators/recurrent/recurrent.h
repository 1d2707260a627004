// Definitions shared by the operator rows and the lowering of LSTM, GRU and RNN.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "operators/table/operator_table.h"

namespace pumice {

enum RecurrentCellKind : uint8_t { kLstmCell, kGruCell, kRnnCell };  // OperatorRow::form for lower_recurrent()

// An operator's cell: its number of gates, and ONNX's default activations.
struct RecurrentCell {
  int64_t gates;
  std::vector<std::string> activations;
};
const RecurrentCell& find_recurrent_cell(int form);
bool is_recurrent(const OperatorRow& row);

// A graph pass may replace tensors of a bidirectional node by one tensor per direction. The index of a backward tensor is that of the
// forward tensor plus kBackward. An input is separate if its backward tensor is present; an output, if its bit is set in the attribute
// kSeparateDirections. With the attribute kBatchBeforeDirections, Y of layout 0 is [steps, batch, directions, units].
inline constexpr size_t kBackward = 3;
inline constexpr const char *kSeparateDirections = "separate_directions", *kBatchBeforeDirections = "batch_before_directions";
inline constexpr size_t kInitialStates[] = {5, 6};  // inputs of the hidden and cell states

bool has_separate_output(const Attributes& attributes, size_t output);
// Returns the direction axis of Y or of the states.
constexpr size_t find_direction_axis(bool batch_first, bool is_y) {
  return (batch_first ? 1 : 0) + (is_y ? 1 : 0);
}

int64_t count_directions(const Attributes& attributes);

// Returns the activations of each direction as GLSL expressions of x. Throws GraphError if the number of activations does not match the
// cell and directions, and UnsupportedError for an activation that ONNX does not define.
std::vector<std::array<std::string, 2>> make_activation_glsl(int form, std::string_view node, const Attributes& attributes);

}  // namespace pumice
