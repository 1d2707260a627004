// NNAPI RNN, its uni- and bidirectional sequences, and SVDF.
#include "graph/nnapi/operations.h"
#include "graph/nnapi/recurrent_helpers.h"

namespace pumice::nnapi {
namespace {

// Operand indices of one direction; kNoOperand if absent.
struct RnnCell {
  size_t w, r, b, h, aux = kNoOperand;
};
constexpr RnnCell kForwardCell{1, 2, 3, 4, 10}, kBackwardCell{5, 6, 7, 8, 11}, kSingleCell{1, 2, 3, 4};
constexpr size_t kAuxInput = 9;

void check_rnn_cell(Operands& o, const RnnCell& cell, size_t batch_axis, std::string_view rule) {
  expect_ranks(o, cell.w, 2, 2);
  o.expect_rank(cell.b, 1);
  o.expect_rank(cell.h, 2);
  expect_equal_sizes(o, {{cell.w, 0}, {cell.r, 0}, {cell.r, 1}, {cell.b, 0}, {cell.h, 1}}, rule);
  expect_equal_sizes(o, {{0, batch_axis}, {cell.h, 0}}, rule);
}

void check_rnn(Operands& o) {
  o.expect_rank(0, 2);
  check_rnn_cell(o, kSingleCell, 0, "N7.2");
  expect_equal_sizes(o, {{0, 1}, {1, 1}}, "N7.2");
  reject_empty(o, "NG2");
}

size_t get_batch_axis(bool time_major) {
  return time_major ? 1 : 0;
}

void check_rnn_sequence(Operands& o) {
  o.expect_rank(0, 3);
  const int64_t major = o.read_int(6);
  if (major != 0 && major != 1) o.fail(6, "N8.1", "0 or 1 expected; given " + std::to_string(major));
  check_rnn_cell(o, kSingleCell, get_batch_axis(major != 0), "N8.1");
  expect_equal_sizes(o, {{0, 2}, {1, 1}}, "N8.1");
  reject_empty(o, "NG2");
}

AuxInputMode find_rnn_aux_mode(const Operands& o) {
  const bool fw = o.has(kForwardCell.aux), bw = o.has(kBackwardCell.aux);
  if (fw != bw)
    o.fail(fw ? kBackwardCell.aux : kForwardCell.aux, "N9.3", "weights of both directions expected, or of none; given those of one");
  if (fw && !o.has(kAuxInput)) o.fail(kAuxInput, "N9.3", "an input for its weights, operands 10 and 11, expected; it is omitted");
  return !o.has(kAuxInput) ? AuxInputMode::none : fw ? AuxInputMode::cross : AuxInputMode::parallel;
}

void check_bidirectional_rnn(Operands& o) {
  o.expect_rank(0, 3);
  const size_t batch = get_batch_axis(o.read_int(13) != 0);
  const AuxInputMode aux_mode = find_rnn_aux_mode(o);
  for (const RnnCell& cell : {kForwardCell, kBackwardCell}) check_rnn_cell(o, cell, batch, "N9.1");
  expect_equal_sizes(o, {{0, 2}, {kForwardCell.w, 1}}, "N9.1");
  if (aux_mode == AuxInputMode::none) expect_equal_sizes(o, {{0, 2}, {kBackwardCell.w, 1}}, "N9.1");
  if (aux_mode != AuxInputMode::none) {
    o.expect_rank(kAuxInput, 3);
    for (const size_t axis : {0, 1}) expect_equal_sizes(o, {{0, axis}, {kAuxInput, axis}}, "N9.3");
  }
  if (aux_mode == AuxInputMode::parallel) expect_equal_sizes(o, {{kAuxInput, 2}, {kBackwardCell.w, 1}}, "N9.3");
  if (aux_mode == AuxInputMode::cross) {
    expect_ranks(o, kForwardCell.aux, 2, 2);
    expect_equal_sizes(o, {{0, 2}, {kAuxInput, 2}, {kBackwardCell.w, 1}, {kForwardCell.aux, 1}, {kBackwardCell.aux, 1}}, "N9.3");
    for (const RnnCell& cell : {kForwardCell, kBackwardCell}) expect_equal_sizes(o, {{cell.w, 0}, {cell.aux, 0}}, "N9.3");
  }
  reject_empty(o, "NG2");
}

// Operands of one direction of the ONNX RNN operator, without the direction axis.
struct RnnOperands {
  ValueId w, r, b;
};

RnnOperands make_rnn_node_operands(Expansion& e, const RnnCell& cell, bool has_aux) {
  ValueId w = e[cell.w];
  if (has_aux) w = e.add("Concat", {w, e[cell.aux]}, make_attrs({{"axis", int64_t{1}}}));
  const ValueId zero_bias = e.add("Expand", {e.add_scalar(0, e.dtype(0)), e.add_sizes({e.length(cell.b, 0)})});
  return {w, e[cell.r], e.add("Concat", {e[cell.b], zero_bias}, make_attrs({{"axis", int64_t{0}}}))};
}

// Returns the input, concatenated with the auxiliary input if there is one.
ValueId concat_inputs(Expansion& e, ValueId x, ValueId aux) {
  return aux == kAbsent ? x : e.add("Concat", {x, aux}, make_attrs({{"axis", int64_t{2}}}));
}

// Adds an ONNX RNN node; `operands` and the state have a direction axis.
std::vector<ValueId> add_rnn_node(Expansion& e, ValueId x, const RnnOperands& operands, ValueId h, const Attributes& attributes) {
  return e.add_multi_output("RNN", {x, operands.w, operands.r, operands.b, kAbsent, h}, 2, attributes);
}

struct RnnOptions {
  std::string activation;
  bool time_major;
};

// Adds one direction over a sequence as an RNN node.
LayerOutputs add_rnn_layer(Expansion& e, ValueId x, ValueId aux, const RnnCell& cell, const RnnOptions& options, bool backward) {
  const auto& [activation, time_major] = options;
  const auto unsqueeze = [&](ValueId id, int64_t axis) { return e.add("Unsqueeze", {id, e.add_int64_vector({axis})}); };
  const RnnOperands node_operands = make_rnn_node_operands(e, cell, aux != kAbsent);
  const int64_t direction = time_major ? 0 : 1;
  const auto node_outputs = add_rnn_node(e, concat_inputs(e, x, aux),
                                         {unsqueeze(node_operands.w, 0), unsqueeze(node_operands.r, 0), unsqueeze(node_operands.b, 0)},
                                         unsqueeze(e[cell.h], direction),
                                         make_attrs({{"activations", std::vector<std::string>{activation}},
                                                     {"direction", std::string(backward ? "reverse" : "forward")},
                                                     {"layout", int64_t{!time_major}}}));
  return {e.add("Squeeze", {node_outputs[0], e.add_int64_vector({time_major ? 1 : 2})}),
          {e.add("Squeeze", {node_outputs[1], e.add_int64_vector({direction})})}};
}

// Adds both directions over the same input as one RNN node, and returns its outputs.
std::vector<ValueId> add_bidirectional_rnn(Expansion& e, ValueId aux, const std::string& activation, bool time_major) {
  const RnnOperands first = make_rnn_node_operands(e, kForwardCell, aux != kAbsent),
                    second = make_rnn_node_operands(e, kBackwardCell, aux != kAbsent);
  const RnnOperands stacked{stack_directions(e, first.w, second.w), stack_directions(e, first.r, second.r),
                            stack_directions(e, first.b, second.b)};
  return add_rnn_node(e, concat_inputs(e, e[0], aux), stacked,
                      stack_directions(e, e[kForwardCell.h], e[kBackwardCell.h], time_major ? 0 : 1),
                      make_attrs({{"activations", std::vector<std::string>{activation, activation}},
                                  {"direction", std::string("bidirectional")},
                                  {"layout", int64_t{!time_major}}}));
}

void expand_rnn(Expansion& e) {
  const std::string activation = read_cell_activation(e, 5, "NG7");
  const ValueId x = e.add("Unsqueeze", {e[0], e.add_int64_vector({0})});
  const LayerOutputs layer = add_rnn_layer(e, x, kAbsent, kSingleCell, {activation, true}, false);
  e.add_output(layer.states[0]);
  e.add_output(e.add("Squeeze", {layer.y, e.add_int64_vector({0})}));
}

void expand_rnn_sequence(Expansion& e) {
  const LayerOutputs layer = add_rnn_layer(e, e[0], kAbsent, kSingleCell, {read_cell_activation(e, 5, "NG7"), e.read_int(6) != 0}, false);
  e.add_output(layer.y);
  e.add_output(layer.states[0]);
}

void expand_rnn_bidirectional(Expansion& e) {
  const std::string activation = read_cell_activation(e, 12, "NG7");
  const bool time_major = e.read_int(13) != 0;
  const AuxInputMode aux_mode = find_rnn_aux_mode(e.rules());
  const ValueId aux = aux_mode == AuxInputMode::cross ? e[kAuxInput] : kAbsent;
  if (runs_as_single_node(e.rules(), aux_mode, kForwardCell.b, kBackwardCell.b))
    return add_bidirectional_outputs(e, add_bidirectional_rnn(e, aux, activation, time_major), time_major, e.read_int(14) != 0);
  const LayerOutputs forward = add_rnn_layer(e, e[0], aux, kForwardCell, {activation, time_major}, false);
  const LayerOutputs backward =
      add_rnn_layer(e, aux_mode == AuxInputMode::parallel ? e[kAuxInput] : e[0], aux, kBackwardCell, {activation, time_major}, true);
  add_separate_direction_outputs(e, forward, backward, e.read_int(14) != 0);
}

// ---- SVDF

void check_svdf(Operands& o) {
  expect_ranks(o, 0, 3, 2);
  if (o.has(3)) o.expect_rank(3, 1);
  o.expect_rank(4, 2);
  const int64_t rank = o.read_int(5);
  if (rank < 1) o.fail(5, "N10.2", "a positive number expected; given " + std::to_string(rank));
  expect_equal_sizes(o, {{0, 1}, {1, 1}}, "N10.2");
  expect_equal_sizes(o, {{1, 0}, {2, 0}}, "N10.2");
  expect_equal_sizes(o, {{0, 0}, {4, 0}}, "N10.1");
  const auto filters = o.size(1, 0), memory = o.size(2, 1);
  if (filters && *filters % rank != 0)
    o.fail(5, "N10.2", "a number that divides " + std::to_string(*filters) + " filters expected; given " + std::to_string(rank));
  if (filters && o.has(3)) o.expect_size(3, 0, *filters / rank);
  if (filters && memory) o.expect_size(4, 1, checked_mul(*filters, *memory, "a state"));
  reject_empty(o, "NG2");
}

ValueId apply_svdf_activation(Expansion& e, ValueId y) {
  const int64_t code = e.read_int(6);
  return code == 2 ? e.apply_activation(y, Activation::relu1) : apply_cell_activation(e, y, read_cell_activation(e, 6, "N10.3"));
}

void expand_svdf(Expansion& e) {
  const AxisLength batch = e.length(0, 0), filters = e.length(1, 0), memory = e.length(2, 1);
  const int64_t rank = e.read_int(5);
  const ValueId before = e.reshape(e[4], {batch, filters, memory});
  const auto from = [&](int64_t first, ValueId end) {
    return e.add("Slice", {before, e.add_int64_vector({first}), end, e.add_int64_vector({2})});
  };
  // Replaces the last memory slot, whatever its content, by the newest activation.
  const ValueId newest = e.add("Unsqueeze", {e.add("Gemm", {e[0], e[1]}, make_attrs({{"transB", int64_t{1}}})), e.add_int64_vector({2})});
  const ValueId state = e.add("Concat", {from(0, e.add_int64_vector({-1})), newest}, make_attrs({{"axis", int64_t{2}}}));
  const ValueId filtered =
      e.add("ReduceSum", {e.add("Mul", {state, e[2]}), e.add_int64_vector({2})}, make_attrs({{"keepdims", int64_t{0}}}));
  const ValueId rank_groups = e.reshape(filtered, {batch, e.div_lengths(filters, {rank}), {rank}});
  ValueId y = e.add("ReduceSum", {rank_groups, e.add_int64_vector({2})}, make_attrs({{"keepdims", int64_t{0}}}));
  if (e.has(3)) y = e.add("Add", {y, e[3]});
  const ValueId kept_state = e.add("Slice", {state, e.add_int64_vector({1}), e.add_sizes({memory}), e.add_int64_vector({2})});
  const ValueId moved = e.add("Pad", {kept_state, e.add_int64_vector({0, 0, 0, 0, 0, 1})});
  e.add_output(e.reshape(moved, {batch, e.mul_lengths(filters, memory)}));
  e.add_output(apply_svdf_activation(e, y));
}

}  // namespace

Operations make_recurrent_operations() {
  return {
      {"nnapi::RNN",
       1,
       "One step: the activation of the bias, plus x by the weights, plus the state by its own. Outputs: the state twice.",
       {float_tensor_arg("x"), float_tensor_arg("weights"), float_tensor_arg("recurrent_weights"), float_tensor_arg("bias"),
        float_tensor_arg("state"), scalar_arg("activation")},
       {float_tensor_arg("state"), float_tensor_arg("y")},
       expand_rnn,
       {},
       check_rnn},
      {"nnapi::UNIDIRECTIONAL_SEQUENCE_RNN",
       3,
       "RNN over a sequence [batch, time, size], or time first. Outputs: all states, and the last.",
       {float_tensor_arg("x"), float_tensor_arg("weights"), float_tensor_arg("recurrent_weights"), float_tensor_arg("bias"),
        float_tensor_arg("state"), scalar_arg("activation"), scalar_arg("time_major")},
       {float_tensor_arg("y"), float_tensor_arg("state")},
       expand_rnn_sequence,
       {},
       check_rnn_sequence},
      {"nnapi::BIDIRECTIONAL_SEQUENCE_RNN",
       3,
       "RNN over a sequence, forward and backward. Outputs: all states of each, or both joined where merge_outputs is true; the last ones.",
       {float_tensor_arg("x"), float_tensor_arg("fw_weights"), float_tensor_arg("fw_recurrent_weights"), float_tensor_arg("fw_bias"),
        float_tensor_arg("fw_state"), float_tensor_arg("bw_weights"), float_tensor_arg("bw_recurrent_weights"), float_tensor_arg("bw_bias"),
        float_tensor_arg("bw_state"), optional_float_tensor_arg("aux"), optional_float_tensor_arg("fw_aux_weights"),
        optional_float_tensor_arg("bw_aux_weights"), scalar_arg("activation"), scalar_arg("time_major", kTruth),
        scalar_arg("merge_outputs", kTruth)},
       {{{"y", kFloat, false, true, 'T'}, OperandKind::tensor}},
       expand_rnn_bidirectional,
       {},
       check_bidirectional_rnn},
      {"nnapi::SVDF",
       1,
       "One step of filters of features and of time: the sum of each unit's filters over the memory, plus the bias, then the activation.",
       {float_tensor_arg("x"), float_tensor_arg("feature_weights"), float_tensor_arg("time_weights"), optional_float_tensor_arg("bias"),
        float_tensor_arg("state"), scalar_arg("rank"), scalar_arg("activation")},
       {float_tensor_arg("state"), float_tensor_arg("y")},
       expand_svdf,
       {},
       check_svdf},
  };
}

}  // namespace pumice::nnapi
