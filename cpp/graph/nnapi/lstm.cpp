#include "graph/nnapi/lstm.h"

#include <algorithm>
#include <array>

namespace pumice::nnapi {
namespace {

constexpr size_t kInput = 0, kForget = 1, kCell = 2, kOutput = 3, kGates = 4;

bool is_coupled(const Operands& o, const LstmCell& cell) {
  return !o.has(cell.x_weights);
}
bool has_norms(const Operands& o, const LstmCell& cell) {
  return cell.norms + kForget < o.count() && o.has(cell.norms + kForget);
}

void expect_presence(const Operands& o, size_t i, bool expected, const std::string& why) {
  if (o.has(i) != expected) o.fail(i, "NL6", std::string(expected ? "it cannot be left out " : "none expected ") + why);
}

}  // namespace

void check_presence(Operands& o, const LstmCell& cell, bool takes_loose_bias) {
  const bool coupled = is_coupled(o, cell);
  const std::string gate = coupled ? "where the input gate has no weights" : "where the input gate has weights";
  expect_presence(o, cell.h_weights, !coupled, gate);
  expect_presence(o, cell.biases, !coupled, gate);
  const bool peeps = o.has(cell.peepholes + 2);
  expect_presence(o, cell.peepholes + 1, peeps,
                  "as operand " + std::to_string(cell.peepholes + 2) + (peeps ? " is given" : " is left out"));
  // With a coupled gate and the other two peepholes, an input-gate peephole is ignored.
  if (!peeps || !coupled) expect_presence(o, cell.peepholes, peeps, "beside those of the other gates");
  if (!takes_loose_bias && o.has(cell.projection_bias())) expect_presence(o, cell.projection, true, "where its bias is given");
  const bool normed = has_norms(o, cell);
  for (const size_t gate_index : {kCell, kOutput}) expect_presence(o, cell.norms + gate_index, normed, "beside that of the forget gate");
  expect_presence(o, cell.norms, normed && !coupled, "beside that of the forget gate and " + gate);
}

void check_sizes(Operands& o, const LstmCell& cell, std::string_view rule) {
  expect_ranks(o, cell.x_weights, 2 * kGates, 2);
  expect_ranks(o, cell.peepholes, 3 + kGates, 1);
  expect_ranks(o, cell.projection, 1, 2);
  expect_ranks(o, cell.projection_bias(), 1, 1);
  expect_ranks(o, cell.h, 1, 2);
  expect_ranks(o, cell.c, 1, 2);
  expect_ranks(o, cell.norms, kGates, 1);
  const size_t x = cell.x_weights, h = cell.h_weights, p = cell.peepholes, b = cell.biases, n = cell.norms;
  expect_one_size(o, {{x + 3, 0}, {x, 0},      {x + 1, 0}, {x + 2, 0}, {h, 0},     {h + 1, 0}, {h + 2, 0},
                      {h + 3, 0}, {p, 0},      {p + 1, 0}, {p + 2, 0}, {b, 0},     {b + 1, 0}, {b + 2, 0},
                      {b + 3, 0}, {cell.c, 1}, {n, 0},     {n + 1, 0}, {n + 2, 0}, {n + 3, 0}, {cell.projection, 1}},
                  rule);
  expect_one_size(o, {{x + 3, 1}, {x, 1}, {x + 1, 1}, {x + 2, 1}}, rule);
  expect_one_size(o, {{h + 3, 1}, {h, 1}, {h + 1, 1}, {h + 2, 1}, {cell.h, 1}, {cell.projection, 0}, {cell.projection_bias(), 0}}, rule);
  expect_one_size(o, {{cell.h, 0}, {cell.c, 0}}, rule);
  if (!o.has(cell.projection)) expect_one_size(o, {{x + 3, 0}, {h + 3, 1}}, "NL1");
}

namespace {

// State shared by a layer's steps.
struct Parts {
  Expansion& e;
  const LstmCell& cell;
  const LstmOptions& options;
  std::vector<size_t> gates;  // gates in the row order of the concatenated weights
  bool coupled, peeps, normed;

  ValueId joined(const std::vector<ValueId>& parts, int64_t axis) {
    return parts.size() == 1 ? parts[0] : e.add("Concat", parts, with({{"axis", axis}}));
  }
  ValueId one_more(ValueId id, int64_t axis) { return e.add("Unsqueeze", {id, e.integers({axis})}); }
  // Computes in float32, so that it rounds to float16 only once, at the end.
  ValueId single(ValueId id) { return e.cast(id, DType::float32); }
};

// Returns a gate's input weights, those of the auxiliary input after those of x.
ValueId input_weights(Parts& parts, bool has_aux, size_t gate) {
  Expansion& e = parts.e;
  const ValueId w = e[parts.cell.x_weights + gate];
  return has_aux ? parts.joined({w, e[parts.cell.aux_weights + gate]}, 1) : w;
}

// Operands of a direction for the LSTM operator, without the direction axis; peepholes may be absent.
struct RowOperands {
  ValueId w, r, b, peepholes;
};

// The LSTM operator has a separate input gate. A coupled one is 1 - forget gate, which is the sigmoid of the negated argument.
RowOperands row_operands(Parts& parts, bool has_aux) {
  Expansion& e = parts.e;
  const LstmCell& cell = parts.cell;
  constexpr std::array kOrder{kInput, kOutput, kForget, kCell};
  const auto gate = [&](size_t g, auto value) { return g == kInput && parts.coupled ? e.add("Neg", {value(kForget)}) : value(g); };
  std::vector<ValueId> w, r, b, p;
  for (const size_t g : kOrder) {
    w.push_back(gate(g, [&](size_t k) { return input_weights(parts, has_aux, k); }));
    r.push_back(gate(g, [&](size_t k) { return e[cell.h_weights + k]; }));
    b.push_back(gate(g, [&](size_t k) { return e[cell.biases + k]; }));
  }
  b.push_back(e.add("Expand", {e.scalar(0, e.dtype(0)), e.sizes({e.product(e.length(cell.biases + kOutput, 0), {4})})}));
  if (parts.peeps) {
    p.push_back(gate(kInput, [&](size_t k) { return e[cell.peepholes + k]; }));
    p.push_back(e[cell.peepholes + 2]);
    p.push_back(e[cell.peepholes + 1]);
  }
  return {parts.joined(w, 0), parts.joined(r, 0), parts.joined(b, 0), parts.peeps ? parts.joined(p, 0) : kAbsent};
}

// Adds the LSTM node; `operands` and states have the direction axis.
std::vector<ValueId> row_of(Parts& parts, ValueId x, const RowOperands& operands, ValueId h, ValueId c, const std::string& direction) {
  std::vector<ValueId> inputs{x, operands.w, operands.r, operands.b, kAbsent, h, c};
  if (operands.peepholes != kAbsent) inputs.push_back(operands.peepholes);
  const std::string& activation = parts.options.activation;
  std::vector<std::string> activations{"Sigmoid", activation, activation};
  if (direction == "bidirectional") activations.insert(activations.end(), {"Sigmoid", activation, activation});
  return parts.e.add_many("LSTM", inputs, 3,
                          with({{"activations", activations}, {"direction", direction}, {"layout", int64_t{!parts.options.time_major}}}));
}

Layer by_row(Parts& parts, ValueId x, bool has_aux, bool backward) {
  Expansion& e = parts.e;
  const int64_t direction = parts.options.time_major ? 0 : 1;
  RowOperands operands = row_operands(parts, has_aux);
  for (ValueId* one : {&operands.w, &operands.r, &operands.b, &operands.peepholes})
    if (*one != kAbsent) *one = parts.one_more(*one, 0);
  const ValueId h = parts.one_more(e[parts.cell.h], direction), c = parts.one_more(e[parts.cell.c], direction);
  const auto made = row_of(parts, x, operands, h, c, backward ? "reverse" : "forward");
  const auto without = [&](ValueId id, int64_t axis) { return e.add("Squeeze", {id, e.integers({axis})}); };
  return {without(made[0], direction + 1), {without(made[1], direction), without(made[2], direction)}};
}

struct State {
  ValueId h, c;
};

// Returns a gate's pre-activation. `c`: the cell state for its peephole.
ValueId pre_activation(Parts& parts, ValueId z, size_t gate, ValueId c) {
  Expansion& e = parts.e;
  if (parts.peeps && gate != kCell) {
    const size_t peephole = parts.cell.peepholes + (gate == kOutput ? 2 : gate);
    z = e.add("Add", {z, e.add("Mul", {parts.single(e[peephole]), c})});
  }
  if (!parts.normed) return z;
  const ValueId w = parts.single(e[parts.cell.norms + gate]), b = parts.single(e[parts.cell.biases + gate]);
  return e.add("LayerNormalization", {z, w, b}, with({{"axis", int64_t{-1}}, {"epsilon", 1e-8}}));
}

ValueId clipped(Expansion& e, ValueId id, double most) {
  return most > 0 ? e.add("Clip", {id, e.scalar(-most, DType::float32), e.scalar(most, DType::float32)}) : id;
}

ValueId projected(Parts& parts, ValueId m) {
  Expansion& e = parts.e;
  if (!e.has(parts.cell.projection)) return m;
  std::vector<ValueId> inputs{m, parts.single(e[parts.cell.projection])};
  if (e.has(parts.cell.projection_bias())) inputs.push_back(parts.single(e[parts.cell.projection_bias()]));
  return clipped(e, e.add("Gemm", inputs, with({{"transB", int64_t{1}}})), parts.options.projection_clip);
}

// Adds one step of the recurrence. `from_input`: the input contributions of all gates, concatenated on the last axis.
State step(Parts& parts, ValueId from_input, ValueId recurrent_weights, const State& before) {
  Expansion& e = parts.e;
  const ValueId z = e.add("Gemm", {before.h, recurrent_weights, from_input}, with({{"transB", int64_t{1}}}));
  const auto count = static_cast<int64_t>(parts.gates.size());
  const auto split = e.add_many("Split", {z}, parts.gates.size(), with({{"axis", int64_t{1}}, {"num_outputs", count}}));
  const auto of = [&](size_t gate, ValueId c) {
    const auto at = static_cast<size_t>(std::ranges::find(parts.gates, gate) - parts.gates.begin());
    return pre_activation(parts, split[at], gate, c);
  };
  const auto sigmoid = [&](ValueId id) { return e.add("Sigmoid", {id}); };
  const std::string& activation = parts.options.activation;
  const ValueId f = sigmoid(of(kForget, before.c));
  const ValueId i = parts.coupled ? e.add("Sub", {e.scalar(1, DType::float32), f}) : sigmoid(of(kInput, before.c));
  const ValueId g = cell_activated(e, of(kCell, before.c), activation);
  const ValueId c = clipped(e, e.add("Add", {e.add("Mul", {f, before.c}), e.add("Mul", {i, g})}), parts.options.cell_clip);
  const ValueId m = e.add("Mul", {sigmoid(of(kOutput, c)), cell_activated(e, c, activation)});
  return {projected(parts, m), c};
}

// Unrolls the steps. One product computes the input contributions of all steps.
Layer by_steps(Parts& parts, ValueId x, bool has_aux, bool backward) {
  Expansion& e = parts.e;
  const LstmCell& cell = parts.cell;
  const int64_t axis = parts.options.time_major ? 0 : 1;
  const int64_t steps = e.rank(0) == 2 ? 1 : e.size(0, static_cast<size_t>(axis));
  std::vector<ValueId> w, r, b;
  for (const size_t g : parts.gates) {
    w.push_back(parts.single(input_weights(parts, has_aux, g)));
    r.push_back(parts.single(e[cell.h_weights + g]));
    b.push_back(parts.single(e[cell.biases + g]));
  }
  const ValueId across = e.transposed(parts.joined(w, 0), {1, 0}), recurrent = parts.joined(r, 0);
  ValueId all = e.add("MatMul", {parts.single(x), across});
  if (!parts.normed) all = e.add("Add", {all, parts.joined(b, 0)});
  State state{parts.single(e[cell.h]), parts.single(e[cell.c])};
  const auto each = e.add_many("Split", {all}, static_cast<size_t>(steps), with({{"axis", axis}, {"num_outputs", steps}}));
  std::vector<ValueId> made(static_cast<size_t>(steps));
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t t = backward ? steps - 1 - k : k;
    const ValueId now = e.add("Squeeze", {each[static_cast<size_t>(t)], e.integers({axis})});
    state = step(parts, now, recurrent, state);
    made[static_cast<size_t>(t)] = parts.one_more(state.h, axis);
  }
  const DType dtype = e.dtype(0);
  return {e.cast(parts.joined(made, axis), dtype), {e.cast(state.h, dtype), e.cast(state.c, dtype)}};
}

Parts parts_of(Expansion& e, const LstmCell& cell, const LstmOptions& options) {
  const Operands& o = e.rules();
  Parts parts{e, cell, options, {kForget, kCell, kOutput}, is_coupled(o, cell), o.has(cell.peepholes + 2), has_norms(o, cell)};
  if (!parts.coupled) parts.gates.push_back(kInput);
  return parts;
}

}  // namespace

bool is_row(const Expansion& e, const LstmCell& cell, const LstmOptions& options) {
  return !has_norms(e.rules(), cell) && !e.has(cell.projection) && !(options.cell_clip > 0);
}

Layer lstm_layer(Expansion& e, ValueId x, ValueId aux, const LstmCell& cell, const LstmOptions& options, bool backward) {
  Parts parts = parts_of(e, cell, options);
  const bool has_aux = aux != kAbsent;
  if (has_aux) x = parts.joined({x, aux}, 2);
  return is_row(e, cell, options) ? by_row(parts, x, has_aux, backward) : by_steps(parts, x, has_aux, backward);
}

std::vector<ValueId> lstm_of_both(Expansion& e, ValueId x, ValueId aux, const std::array<LstmCell, 2>& cells, const LstmOptions& options) {
  Parts forward = parts_of(e, cells[0], options), backward = parts_of(e, cells[1], options);
  const bool has_aux = aux != kAbsent;
  if (has_aux) x = forward.joined({x, aux}, 2);
  const RowOperands first = row_operands(forward, has_aux), second = row_operands(backward, has_aux);
  RowOperands both{both_directions(e, first.w, second.w), both_directions(e, first.r, second.r), both_directions(e, first.b, second.b),
                   kAbsent};
  if (first.peepholes != kAbsent) both.peepholes = both_directions(e, first.peepholes, second.peepholes);
  const int64_t direction = options.time_major ? 0 : 1;
  const ValueId h = both_directions(e, e[cells[0].h], e[cells[1].h], direction),
                c = both_directions(e, e[cells[0].c], e[cells[1].c], direction);
  return row_of(forward, x, both, h, c, "bidirectional");
}

}  // namespace pumice::nnapi
