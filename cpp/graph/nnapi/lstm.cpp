#include "graph/nnapi/lstm.h"

#include <algorithm>
#include <array>

namespace pumice::nnapi {
namespace {

constexpr size_t kInput = 0, kForget = 1, kCell = 2, kOutput = 3, kGates = 4;

bool has_coupled_gate(const Operands& o, const LstmCell& cell) {
  return !o.has(cell.x_weights);
}
bool has_norm_weights(const Operands& o, const LstmCell& cell) {
  return cell.norms + kForget < o.count() && o.has(cell.norms + kForget);
}

void expect_presence(const Operands& o, size_t i, bool expected, const std::string& why) {
  if (o.has(i) != expected) o.fail(i, "NL6", std::string(expected ? "it is required " : "none expected ") + why);
}

}  // namespace

void check_optional_operands(Operands& o, const LstmCell& cell, bool allows_unused_projection_bias) {
  const bool coupled = has_coupled_gate(o, cell);
  const std::string gate = coupled ? "if the input gate has no weights" : "if the input gate has weights";
  expect_presence(o, cell.h_weights, !coupled, gate);
  expect_presence(o, cell.biases, !coupled, gate);
  const bool has_peepholes = o.has(cell.peepholes + 2);
  expect_presence(o, cell.peepholes + 1, has_peepholes,
                  "as operand " + std::to_string(cell.peepholes + 2) + (has_peepholes ? " is given" : " is omitted"));
  // With a coupled gate and the other two peepholes, an input-gate peephole is ignored.
  if (!has_peepholes || !coupled) expect_presence(o, cell.peepholes, has_peepholes, "with those of the other gates");
  if (!allows_unused_projection_bias && o.has(cell.projection_bias()))
    expect_presence(o, cell.projection, true, "because its bias is given");
  const bool has_layer_norm = has_norm_weights(o, cell);
  for (const size_t gate_index : {kCell, kOutput})
    expect_presence(o, cell.norms + gate_index, has_layer_norm, "with that of the forget gate");
  expect_presence(o, cell.norms, has_layer_norm && !coupled, "with that of the forget gate and " + gate);
}

void check_lstm_sizes(Operands& o, const LstmCell& cell, std::string_view rule) {
  expect_ranks(o, cell.x_weights, 2 * kGates, 2);
  expect_ranks(o, cell.peepholes, 3 + kGates, 1);
  expect_ranks(o, cell.projection, 1, 2);
  expect_ranks(o, cell.projection_bias(), 1, 1);
  expect_ranks(o, cell.h, 1, 2);
  expect_ranks(o, cell.c, 1, 2);
  expect_ranks(o, cell.norms, kGates, 1);
  const size_t x = cell.x_weights, h = cell.h_weights, p = cell.peepholes, b = cell.biases, n = cell.norms;
  expect_equal_sizes(o, {{x + 3, 0}, {x, 0},      {x + 1, 0}, {x + 2, 0}, {h, 0},     {h + 1, 0}, {h + 2, 0},
                         {h + 3, 0}, {p, 0},      {p + 1, 0}, {p + 2, 0}, {b, 0},     {b + 1, 0}, {b + 2, 0},
                         {b + 3, 0}, {cell.c, 1}, {n, 0},     {n + 1, 0}, {n + 2, 0}, {n + 3, 0}, {cell.projection, 1}},
                     rule);
  expect_equal_sizes(o, {{x + 3, 1}, {x, 1}, {x + 1, 1}, {x + 2, 1}}, rule);
  expect_equal_sizes(o, {{h + 3, 1}, {h, 1}, {h + 1, 1}, {h + 2, 1}, {cell.h, 1}, {cell.projection, 0}, {cell.projection_bias(), 0}}, rule);
  expect_equal_sizes(o, {{cell.h, 0}, {cell.c, 0}}, rule);
  if (!o.has(cell.projection)) expect_equal_sizes(o, {{x + 3, 0}, {h + 3, 1}}, "NL1");
}

namespace {

// State shared by the time steps of an LSTM layer.
struct LstmLayerContext {
  Expansion& e;
  const LstmCell& cell;
  const LstmOptions& options;
  std::vector<size_t> gates;  // gates in the order of the rows of the concatenated weights
  bool coupled, has_peepholes, has_layer_norm;

  ValueId concat(const std::vector<ValueId>& values, int64_t axis) {
    return values.size() == 1 ? values[0] : e.add("Concat", values, make_attrs({{"axis", axis}}));
  }
  ValueId unsqueeze(ValueId id, int64_t axis) { return e.add("Unsqueeze", {id, e.add_int64_vector({axis})}); }
  // Steps compute in float32, so that results are rounded to float16 only once.
  ValueId as_float(ValueId id) { return e.cast(id, DType::float32); }
};

// Returns the input weights of a gate: for x, then for the auxiliary input.
ValueId get_input_weights(LstmLayerContext& layer, bool has_aux, size_t gate) {
  Expansion& e = layer.e;
  const ValueId w = e[layer.cell.x_weights + gate];
  return has_aux ? layer.concat({w, e[layer.cell.aux_weights + gate]}, 1) : w;
}

// Operands of one direction of the ONNX LSTM operator, without the direction axis; peepholes may be kAbsent.
struct LstmNodeOperands {
  ValueId w, r, b, peepholes;
};

// The ONNX LSTM operator has a separate input gate. A coupled input gate is 1 - forget gate = sigmoid(-z) of the forget gate.
LstmNodeOperands make_lstm_node_operands(LstmLayerContext& layer, bool has_aux) {
  Expansion& e = layer.e;
  const LstmCell& cell = layer.cell;
  constexpr std::array kOrder{kInput, kOutput, kForget, kCell};
  const auto gate = [&](size_t g, auto value) { return g == kInput && layer.coupled ? e.add("Neg", {value(kForget)}) : value(g); };
  std::vector<ValueId> w, r, b, p;
  for (const size_t g : kOrder) {
    w.push_back(gate(g, [&](size_t k) { return get_input_weights(layer, has_aux, k); }));
    r.push_back(gate(g, [&](size_t k) { return e[cell.h_weights + k]; }));
    b.push_back(gate(g, [&](size_t k) { return e[cell.biases + k]; }));
  }
  b.push_back(e.add("Expand", {e.add_scalar(0, e.dtype(0)), e.add_sizes({e.mul_lengths(e.length(cell.biases + kOutput, 0), {4})})}));
  if (layer.has_peepholes) {
    p.push_back(gate(kInput, [&](size_t k) { return e[cell.peepholes + k]; }));
    p.push_back(e[cell.peepholes + 2]);
    p.push_back(e[cell.peepholes + 1]);
  }
  return {layer.concat(w, 0), layer.concat(r, 0), layer.concat(b, 0), layer.has_peepholes ? layer.concat(p, 0) : kAbsent};
}

// Adds an ONNX LSTM node; `operands` and states have a direction axis.
std::vector<ValueId> add_lstm_node(LstmLayerContext& layer, ValueId x, const LstmNodeOperands& operands, ValueId h, ValueId c,
                                   const std::string& direction) {
  std::vector<ValueId> inputs{x, operands.w, operands.r, operands.b, kAbsent, h, c};
  if (operands.peepholes != kAbsent) inputs.push_back(operands.peepholes);
  const std::string& activation = layer.options.activation;
  std::vector<std::string> activations{"Sigmoid", activation, activation};
  if (direction == "bidirectional") activations.insert(activations.end(), {"Sigmoid", activation, activation});
  return layer.e.add_multi_output(
      "LSTM", inputs, 3,
      make_attrs({{"activations", activations}, {"direction", direction}, {"layout", int64_t{!layer.options.time_major}}}));
}

LayerOutputs expand_to_lstm_node(LstmLayerContext& layer, ValueId x, bool has_aux, bool backward) {
  Expansion& e = layer.e;
  const int64_t direction = layer.options.time_major ? 0 : 1;
  LstmNodeOperands operands = make_lstm_node_operands(layer, has_aux);
  for (ValueId* operand : {&operands.w, &operands.r, &operands.b, &operands.peepholes})
    if (*operand != kAbsent) *operand = layer.unsqueeze(*operand, 0);
  const ValueId h = layer.unsqueeze(e[layer.cell.h], direction), c = layer.unsqueeze(e[layer.cell.c], direction);
  const auto node_outputs = add_lstm_node(layer, x, operands, h, c, backward ? "reverse" : "forward");
  const auto squeeze = [&](ValueId id, int64_t axis) { return e.add("Squeeze", {id, e.add_int64_vector({axis})}); };
  return {squeeze(node_outputs[0], direction + 1), {squeeze(node_outputs[1], direction), squeeze(node_outputs[2], direction)}};
}

struct LstmState {
  ValueId h, c;
};

// Returns the pre-activation of a gate. `c`: cell state for its peephole.
ValueId compute_pre_activation(LstmLayerContext& layer, ValueId z, size_t gate, ValueId c) {
  Expansion& e = layer.e;
  if (layer.has_peepholes && gate != kCell) {
    const size_t peephole = layer.cell.peepholes + (gate == kOutput ? 2 : gate);
    z = e.add("Add", {z, e.add("Mul", {layer.as_float(e[peephole]), c})});
  }
  if (!layer.has_layer_norm) return z;
  const ValueId w = layer.as_float(e[layer.cell.norms + gate]), b = layer.as_float(e[layer.cell.biases + gate]);
  return e.add("LayerNormalization", {z, w, b}, make_attrs({{"axis", int64_t{-1}}, {"epsilon", 1e-8}}));
}

ValueId clip_symmetric(Expansion& e, ValueId id, double limit) {
  return limit > 0 ? e.add("Clip", {id, e.add_scalar(-limit, DType::float32), e.add_scalar(limit, DType::float32)}) : id;
}

ValueId project_output(LstmLayerContext& layer, ValueId m) {
  Expansion& e = layer.e;
  if (!e.has(layer.cell.projection)) return m;
  std::vector<ValueId> inputs{m, layer.as_float(e[layer.cell.projection])};
  if (e.has(layer.cell.projection_bias())) inputs.push_back(layer.as_float(e[layer.cell.projection_bias()]));
  return clip_symmetric(e, e.add("Gemm", inputs, make_attrs({{"transB", int64_t{1}}})), layer.options.projection_clip);
}

// Adds one time step. `from_input`: input contributions of all gates, concatenated on the last axis.
LstmState add_lstm_step(LstmLayerContext& layer, ValueId from_input, ValueId recurrent_weights, const LstmState& before) {
  Expansion& e = layer.e;
  const ValueId z = e.add("Gemm", {before.h, recurrent_weights, from_input}, make_attrs({{"transB", int64_t{1}}}));
  const auto count = static_cast<int64_t>(layer.gates.size());
  const auto split = e.add_multi_output("Split", {z}, layer.gates.size(), make_attrs({{"axis", int64_t{1}}, {"num_outputs", count}}));
  const auto of = [&](size_t gate, ValueId c) {
    const auto at = static_cast<size_t>(std::ranges::find(layer.gates, gate) - layer.gates.begin());
    return compute_pre_activation(layer, split[at], gate, c);
  };
  const auto sigmoid = [&](ValueId id) { return e.add("Sigmoid", {id}); };
  const std::string& activation = layer.options.activation;
  const ValueId f = sigmoid(of(kForget, before.c));
  const ValueId i = layer.coupled ? e.add("Sub", {e.add_scalar(1, DType::float32), f}) : sigmoid(of(kInput, before.c));
  const ValueId g = apply_cell_activation(e, of(kCell, before.c), activation);
  const ValueId c = clip_symmetric(e, e.add("Add", {e.add("Mul", {f, before.c}), e.add("Mul", {i, g})}), layer.options.cell_clip);
  const ValueId m = e.add("Mul", {sigmoid(of(kOutput, c)), apply_cell_activation(e, c, activation)});
  return {project_output(layer, m), c};
}

// Unrolls the time steps. A single MatMul computes the input contributions of all steps.
LayerOutputs unroll_steps(LstmLayerContext& layer, ValueId x, bool has_aux, bool backward) {
  Expansion& e = layer.e;
  const LstmCell& cell = layer.cell;
  const int64_t axis = layer.options.time_major ? 0 : 1;
  const int64_t steps = e.rank(0) == 2 ? 1 : e.size(0, static_cast<size_t>(axis));
  std::vector<ValueId> w, r, b;
  for (const size_t g : layer.gates) {
    w.push_back(layer.as_float(get_input_weights(layer, has_aux, g)));
    r.push_back(layer.as_float(e[cell.h_weights + g]));
    b.push_back(layer.as_float(e[cell.biases + g]));
  }
  const ValueId transposed_weights = e.transpose(layer.concat(w, 0), {1, 0}), recurrent = layer.concat(r, 0);
  ValueId all = e.add("MatMul", {layer.as_float(x), transposed_weights});
  if (!layer.has_layer_norm) all = e.add("Add", {all, layer.concat(b, 0)});
  LstmState state{layer.as_float(e[cell.h]), layer.as_float(e[cell.c])};
  const auto each = e.add_multi_output("Split", {all}, static_cast<size_t>(steps), make_attrs({{"axis", axis}, {"num_outputs", steps}}));
  std::vector<ValueId> step_outputs(static_cast<size_t>(steps));
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t t = backward ? steps - 1 - k : k;
    const ValueId step_input = e.add("Squeeze", {each[static_cast<size_t>(t)], e.add_int64_vector({axis})});
    state = add_lstm_step(layer, step_input, recurrent, state);
    step_outputs[static_cast<size_t>(t)] = layer.unsqueeze(state.h, axis);
  }
  const DType dtype = e.dtype(0);
  return {e.cast(layer.concat(step_outputs, axis), dtype), {e.cast(state.h, dtype), e.cast(state.c, dtype)}};
}

LstmLayerContext make_layer_context(Expansion& e, const LstmCell& cell, const LstmOptions& options) {
  const Operands& o = e.rules();
  LstmLayerContext layer{
      e, cell, options, {kForget, kCell, kOutput}, has_coupled_gate(o, cell), o.has(cell.peepholes + 2), has_norm_weights(o, cell)};
  if (!layer.coupled) layer.gates.push_back(kInput);
  return layer;
}

}  // namespace

bool fits_lstm_node(const Expansion& e, const LstmCell& cell, const LstmOptions& options) {
  return !has_norm_weights(e.rules(), cell) && !e.has(cell.projection) && !(options.cell_clip > 0);
}

LayerOutputs add_lstm_layer(Expansion& e, ValueId x, ValueId aux, const LstmCell& cell, const LstmOptions& options, bool backward) {
  LstmLayerContext layer = make_layer_context(e, cell, options);
  const bool has_aux = aux != kAbsent;
  if (has_aux) x = layer.concat({x, aux}, 2);
  return fits_lstm_node(e, cell, options) ? expand_to_lstm_node(layer, x, has_aux, backward) : unroll_steps(layer, x, has_aux, backward);
}

std::vector<ValueId> add_bidirectional_lstm(Expansion& e, ValueId x, ValueId aux, const std::array<LstmCell, 2>& cells,
                                            const LstmOptions& options) {
  LstmLayerContext forward = make_layer_context(e, cells[0], options), backward = make_layer_context(e, cells[1], options);
  const bool has_aux = aux != kAbsent;
  if (has_aux) x = forward.concat({x, aux}, 2);
  const LstmNodeOperands first = make_lstm_node_operands(forward, has_aux), second = make_lstm_node_operands(backward, has_aux);
  LstmNodeOperands stacked{stack_directions(e, first.w, second.w), stack_directions(e, first.r, second.r),
                           stack_directions(e, first.b, second.b), kAbsent};
  if (first.peepholes != kAbsent) stacked.peepholes = stack_directions(e, first.peepholes, second.peepholes);
  const int64_t direction = options.time_major ? 0 : 1;
  const ValueId h = stack_directions(e, e[cells[0].h], e[cells[1].h], direction),
                c = stack_directions(e, e[cells[0].c], e[cells[1].c], direction);
  return add_lstm_node(forward, x, stacked, h, c, "bidirectional");
}

}  // namespace pumice::nnapi
