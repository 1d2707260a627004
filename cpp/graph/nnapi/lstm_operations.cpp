// NNAPI LSTM operations: single step, and uni- and bidirectional sequences.
#include <set>
#include <string>
#include <utility>

#include "graph/nnapi/lstm.h"
#include "graph/nnapi/operations.h"

namespace pumice::nnapi {
namespace {

constexpr LstmCell kStep{1, 5, 9, 12, 16, 18, 19, 23}, kSequence{1, 5, 9, 12, 16, 18, 19, 24};
constexpr LstmCell kForward{1, 5, 9, 12, 16, 35, 36, 53, 40}, kBackward{18, 22, 26, 29, 33, 37, 38, 57, 44};
constexpr size_t kAux = 39;

// ---- rules

void check_clip(const Operands& o, size_t i) {
  const auto& elements = o.facts()[i].elements;
  if (!elements) o.reject(i, "which is not a constant");
  if (const double actual = elements->as_double().at(0); !(actual >= 0))
    o.fail(i, "NL6", "a non-negative number expected; given " + std::to_string(actual));
}

void check_lstm_step(Operands& o) {
  o.expect_rank(0, 2);
  check_optional_operands(o, kStep, false);
  check_lstm_sizes(o, kStep, "NL7");
  expect_equal_sizes(o, {{0, 0}, {kStep.h, 0}}, "NL7");
  expect_equal_sizes(o, {{0, 1}, {kStep.x_weights + 3, 1}}, "NL7");
  for (const size_t i : {21, 22}) check_clip(o, i);
  reject_empty(o, "NG2");
}

void check_lstm_sequence(Operands& o) {
  o.expect_rank(0, 3);
  check_optional_operands(o, kSequence, true);
  check_lstm_sizes(o, kSequence, "NL7");
  expect_equal_sizes(o, {{0, o.read_int(23) != 0 ? size_t{1} : size_t{0}}, {kSequence.h, 0}}, "NL7");
  expect_equal_sizes(o, {{0, 2}, {kSequence.x_weights + 3, 1}}, "NL7");
  reject_empty(o, "NG2");
}

// Returns how the auxiliary input is used, and checks that both directions have weights for it or neither has. A coupled input gate has no
// weights.
AuxInputMode find_lstm_aux_mode(const Operands& o) {
  const auto has_aux_weights = [&](const LstmCell& cell) {
    const bool has_weights = o.has(cell.aux_weights + 3);
    for (size_t gate = 0; gate < 3; ++gate) {
      const bool expected = has_weights && (gate != 0 || o.has(cell.x_weights));
      if (o.has(cell.aux_weights + gate) != expected)
        o.fail(cell.aux_weights + gate, "N6.4",
               std::string(expected ? "weights of all gates expected" : "none expected") + " with operand " +
                   std::to_string(cell.aux_weights + 3));
    }
    return has_weights;
  };
  const bool fw = has_aux_weights(kForward), bw = has_aux_weights(kBackward);
  if (fw != bw) o.fail((fw ? kBackward : kForward).aux_weights + 3, "N6.4", "weights of both directions expected, or of none");
  if (fw && !o.has(kAux)) o.fail(kAux, "N6.4", "an input for its weights expected; it is omitted");
  return !o.has(kAux) ? AuxInputMode::none : fw ? AuxInputMode::cross : AuxInputMode::parallel;
}

// Checks that both directions have the same optional operands.
void expect_same_optional_operands(const Operands& o) {
  for (const auto& [fw, bw] :
       {std::pair{kForward.x_weights, kBackward.x_weights}, std::pair{kForward.peepholes + 2, kBackward.peepholes + 2},
        std::pair{kForward.projection, kBackward.projection}, std::pair{kForward.norms + 1, kBackward.norms + 1}})
    if (o.has(fw) != o.has(bw))
      o.fail(bw, "N6.5", "it must be " + std::string(o.has(fw) ? "given" : "omitted") + ", as " + o.describe_operand(fw) + " is");
}

void check_aux_input(Operands& o, AuxInputMode aux_mode) {
  if (aux_mode == AuxInputMode::none) return expect_equal_sizes(o, {{0, 2}, {kBackward.x_weights + 3, 1}}, "N6.1");
  o.expect_rank(kAux, 3);
  for (const size_t axis : {0, 1}) expect_equal_sizes(o, {{0, axis}, {kAux, axis}}, "N6.4");
  if (aux_mode == AuxInputMode::parallel) return expect_equal_sizes(o, {{kAux, 2}, {kBackward.x_weights + 3, 1}}, "N6.4");
  for (const LstmCell& cell : {kForward, kBackward}) {
    const size_t w = cell.aux_weights;
    expect_ranks(o, w, 4, 2);
    expect_equal_sizes(o, {{cell.x_weights + 3, 0}, {w, 0}, {w + 1, 0}, {w + 2, 0}, {w + 3, 0}}, "N6.4");
    expect_equal_sizes(o, {{0, 2}, {kAux, 2}, {cell.x_weights + 3, 1}, {w, 1}, {w + 1, 1}, {w + 2, 1}, {w + 3, 1}}, "N6.4");
  }
}

void check_bidirectional_lstm(Operands& o) {
  o.expect_rank(0, 3);
  const AuxInputMode aux_mode = find_lstm_aux_mode(o);
  expect_same_optional_operands(o);
  for (const LstmCell& cell : {kForward, kBackward}) {
    check_optional_operands(o, cell, false);
    check_lstm_sizes(o, cell, "NL7");
    expect_equal_sizes(o, {{0, o.read_int(52) != 0 ? size_t{1} : size_t{0}}, {cell.h, 0}}, "NL7");
  }
  expect_equal_sizes(o, {{0, 2}, {kForward.x_weights + 3, 1}}, "N6.1");
  check_aux_input(o, aux_mode);
  for (const size_t i : {49, 50}) check_clip(o, i);
  reject_empty(o, "NG2");
}

// ---- nodes

LstmOptions read_lstm_options(const Expansion& e, size_t activation, bool time_major) {
  return {read_cell_activation(e, activation, "NG7"), e.read_real(activation + 1), e.read_real(activation + 2), time_major};
}

void expand_lstm_step(Expansion& e) {
  const ValueId x = e.add("Unsqueeze", {e[0], e.add_int64_vector({0})});
  const LayerOutputs layer = add_lstm_layer(e, x, kAbsent, kStep, read_lstm_options(e, 20, true), false);
  const AxisLength units = e.length(kStep.biases + 3, 0), gates{e.has(kStep.x_weights) ? 4 : 3};
  e.add_output(e.add("Expand", {e.add_scalar(0, e.dtype(0)), e.add_sizes({e.length(0, 0), e.mul_lengths(units, gates)})}));
  for (const ValueId state : layer.states) e.add_output(state);
  e.add_output(e.add("Squeeze", {layer.y, e.add_int64_vector({0})}));
}

void expand_lstm_sequence(Expansion& e) {
  const LayerOutputs layer = add_lstm_layer(e, e[0], kAbsent, kSequence, read_lstm_options(e, 20, e.read_int(23) != 0), false);
  e.add_output(layer.y);
  for (const ValueId state : layer.states) e.add_output(state);
}

void expand_lstm_bidirectional(Expansion& e) {
  const LstmOptions options = read_lstm_options(e, 48, e.read_int(52) != 0);
  const AuxInputMode aux_mode = find_lstm_aux_mode(e.rules());
  const ValueId aux = aux_mode == AuxInputMode::cross ? e[kAux] : kAbsent;
  const bool fit_lstm_nodes = fits_lstm_node(e, kForward, options) && fits_lstm_node(e, kBackward, options);
  if (fit_lstm_nodes && runs_as_single_node(e.rules(), aux_mode, kForward.biases + 3, kBackward.biases + 3))
    return add_bidirectional_outputs(e, add_bidirectional_lstm(e, e[0], aux, {kForward, kBackward}, options), options.time_major,
                                     e.read_int(51) != 0);
  const LayerOutputs forward = add_lstm_layer(e, e[0], aux, kForward, options, false);
  const LayerOutputs backward = add_lstm_layer(e, aux_mode == AuxInputMode::parallel ? e[kAux] : e[0], aux, kBackward, options, true);
  add_separate_direction_outputs(e, forward, backward, e.read_int(51) != 0);
}

// ---- operands

class LstmOperandList {
 public:
  LstmOperandList& add_gates(const std::string& prefix, std::initializer_list<std::string_view> gates, size_t optional) {
    size_t at = 0;
    for (const std::string_view gate : gates) add_tensor(prefix + std::string(gate), at++ < optional);
    return *this;
  }
  LstmOperandList& add_tensor(const std::string& name, bool optional = false) {
    static std::set<std::string> role_names;  // owns the generated names, which the operation table refers to
    roles.push_back({{*role_names.insert(name).first, kFloat, optional, false, 'T'}, OperandKind::tensor});
    return *this;
  }
  LstmOperandList& add_scalar(std::string_view name, DTypeSet dtypes = kFloat) {
    roles.push_back(scalar_arg(name, dtypes));
    return *this;
  }
  LstmOperandList& add_cell(const std::string& prefix) {
    add_gates(prefix + "input_weights_", {"i", "f", "c", "o"}, 1).add_gates(prefix + "recurrent_weights_", {"i", "f", "c", "o"}, 1);
    add_gates(prefix + "peephole_", {"i", "f", "o"}, 3).add_gates(prefix + "bias_", {"i", "f", "c", "o"}, 1);
    return add_gates(prefix + "projection_", {"weights", "bias"}, 2);
  }
  LstmOperandList& add_states(const std::string& prefix) { return add_gates(prefix, {"state", "cell"}, 0); }
  LstmOperandList& add_options() { return add_scalar("activation", kInt).add_scalar("cell_clip").add_scalar("projection_clip"); }
  LstmOperandList& add_norms(const std::string& prefix) { return add_gates(prefix + "norm_", {"i", "f", "c", "o"}, 4); }

  std::vector<Operand> roles;
};

}  // namespace

Operations make_lstm_operations() {
  return {
      {"nnapi::LSTM",
       1,
       "One step of a cell with gates, peepholes, projection and layer normalization. Outputs: zeros in place of scratch memory, the "
       "hidden "
       "state, the cell, the hidden state.",
       LstmOperandList().add_tensor("x").add_cell("").add_states("").add_options().add_norms("").roles,
       {float_tensor_arg("scratch"), float_tensor_arg("state"), float_tensor_arg("cell"), float_tensor_arg("y")},
       expand_lstm_step,
       {},
       check_lstm_step},
      {"nnapi::UNIDIRECTIONAL_SEQUENCE_LSTM",
       3,
       "LSTM over a sequence [batch, time, size], or time first. Outputs: all hidden states, the last one, and the last cell.",
       LstmOperandList().add_tensor("x").add_cell("").add_states("").add_options().add_scalar("time_major", kTruth).add_norms("").roles,
       {float_tensor_arg("y"), float_tensor_arg("state"), float_tensor_arg("cell")},
       expand_lstm_sequence,
       {},
       check_lstm_sequence},
      {"nnapi::BIDIRECTIONAL_SEQUENCE_LSTM",
       3,
       "LSTM over a sequence, forward and backward. Outputs: all hidden states of each, or both joined where merge_outputs is true; the "
       "last "
       "hidden state and cell of each.",
       LstmOperandList()
           .add_tensor("x")
           .add_cell("fw_")
           .add_cell("bw_")
           .add_states("fw_")
           .add_states("bw_")
           .add_tensor("aux", true)
           .add_gates("fw_aux_weights_", {"i", "f", "c", "o"}, 4)
           .add_gates("bw_aux_weights_", {"i", "f", "c", "o"}, 4)
           .add_options()
           .add_scalar("merge_outputs", kTruth)
           .add_scalar("time_major", kTruth)
           .add_norms("fw_")
           .add_norms("bw_")
           .roles,
       {{{"y", kFloat, false, true, 'T'}, OperandKind::tensor}},
       expand_lstm_bidirectional,
       {},
       check_bidirectional_lstm},
  };
}

}  // namespace pumice::nnapi
