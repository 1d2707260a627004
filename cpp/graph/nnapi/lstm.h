// The LSTM cell that three operations share: where the operands of one direction are, their rules, and its nodes.
#pragma once

#include <array>

#include "graph/nnapi/sequences.h"

namespace pumice::nnapi {

// The first operand of each group; within a group the gates are input, forget, cell, output.
struct LstmCell {
  size_t x_weights, h_weights, peepholes, biases, projection, h, c, norms, aux_weights = kNoOperand;

  size_t projection_bias() const { return projection + 1; }
};

// The options of an operation are those of all its steps.
struct LstmOptions {
  std::string activation;
  double cell_clip, projection_clip;
  bool time_major;
};

// Rules of one direction: which operands are there (`takes_loose_bias`: a projection's bias without its weights too), and their sizes.
void check_presence(Operands& o, const LstmCell& cell, bool takes_loose_bias);
void check_sizes(Operands& o, const LstmCell& cell, std::string_view rule);
// Direction over a sequence of rank 3. The states are the last hidden one and the last cell.
Layer lstm_layer(Expansion& e, ValueId x, ValueId aux, const LstmCell& cell, const LstmOptions& options, bool backward);
// Whether a direction is a node of LSTM, which has no projection, normalization and clip of cells.
bool is_row(const Expansion& e, const LstmCell& cell, const LstmOptions& options);
// Both directions as one such node, of the same input: its results.
std::vector<ValueId> lstm_of_both(Expansion& e, ValueId x, ValueId aux, const std::array<LstmCell, 2>& cells, const LstmOptions& options);

}  // namespace pumice::nnapi
