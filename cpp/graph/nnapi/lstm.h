// The LSTM cell shared by three operations: operand indices of one direction, rules, and nodes.
#pragma once

#include <array>

#include "graph/nnapi/recurrent_helpers.h"

namespace pumice::nnapi {

// First operand of each group; the gate order within a group is input, forget, cell, output.
struct LstmCell {
  size_t x_weights, h_weights, peepholes, biases, projection, h, c, norms, aux_weights = kNoOperand;

  size_t projection_bias() const { return projection + 1; }
};

// Options that apply to all steps.
struct LstmOptions {
  std::string activation;
  double cell_clip, projection_clip;
  bool time_major;
};

// Rules for one direction: which operands are present (`takes_loose_bias`: allows a projection bias without weights), and their sizes.
void check_presence(Operands& o, const LstmCell& cell, bool takes_loose_bias);
void check_sizes(Operands& o, const LstmCell& cell, std::string_view rule);
// Adds one direction over a sequence of rank 3. Its states are the last hidden state and the last cell state.
Layer lstm_layer(Expansion& e, ValueId x, ValueId aux, const LstmCell& cell, const LstmOptions& options, bool backward);
// Whether a direction can be an LSTM node, which supports no projection, normalization or cell clipping.
bool fits_lstm_node(const Expansion& e, const LstmCell& cell, const LstmOptions& options);
// Adds both directions on the same input as one LSTM node; returns its results.
std::vector<ValueId> bidirectional_lstm(Expansion& e, ValueId x, ValueId aux, const std::array<LstmCell, 2>& cells,
                                        const LstmOptions& options);

}  // namespace pumice::nnapi
