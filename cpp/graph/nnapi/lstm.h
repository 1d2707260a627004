// The LSTM cell of three NNAPI operations: operand indices of one direction, rules, and expansion.
#pragma once

#include <array>

#include "graph/nnapi/recurrent_helpers.h"

namespace pumice::nnapi {

// Index of the first operand of each group. The gates of a group are in the order input, forget, cell, output.
struct LstmCell {
  size_t x_weights, h_weights, peepholes, biases, projection, h, c, norms, aux_weights = kNoOperand;

  size_t projection_bias() const { return projection + 1; }
};

// Options of all time steps.
struct LstmOptions {
  std::string activation;
  double cell_clip, projection_clip;
  bool time_major;
};

// Check the presence and sizes of the operands of one direction. `allows_unused_projection_bias`: accept a projection bias without
// projection weights.
void check_optional_operands(Operands& o, const LstmCell& cell, bool allows_unused_projection_bias);
void check_lstm_sizes(Operands& o, const LstmCell& cell, std::string_view rule);
// Adds one direction over a sequence of rank 3. Its final states are the last hidden state and the last cell state.
LayerOutputs add_lstm_layer(Expansion& e, ValueId x, ValueId aux, const LstmCell& cell, const LstmOptions& options, bool backward);
// Whether a direction can be an ONNX LSTM node, which supports neither projection, layer normalization nor cell clipping.
bool fits_lstm_node(const Expansion& e, const LstmCell& cell, const LstmOptions& options);
// Adds both directions over the same input as one LSTM node, and returns its outputs.
std::vector<ValueId> add_bidirectional_lstm(Expansion& e, ValueId x, ValueId aux, const std::array<LstmCell, 2>& cells,
                                            const LstmOptions& options);

}  // namespace pumice::nnapi
