// NNAPI QUANTIZED_16BIT_LSTM: LSTM with 8-bit operands and a 16-bit cell state, in integer arithmetic with lookup tables.
#include <algorithm>
#include <cmath>

#include "core/number_format.h"
#include "graph/nnapi/fixed_point.h"
#include "graph/nnapi/operations.h"
#include "graph/nnapi/recurrent_helpers.h"

namespace pumice::nnapi {
namespace {

constexpr size_t kWeights = 1, kRecurrent = 5, kBiases = 9, kCellState = 13, kHidden = 14;
constexpr float kOperandScale = 1.0f / 128;
constexpr int32_t kOperandZero = 128;
constexpr int kIntegerBits = 3;

void check_16bit_lstm(Operands& o) {
  o.expect_rank(0, 2);
  expect_ranks(o, kWeights, 8, 2);
  expect_ranks(o, kBiases, 4, 1);
  expect_ranks(o, kCellState, 2, 2);
  expect_equal_sizes(o, {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}}, "N4.1");
  expect_equal_sizes(o,
                     {{1, 0},
                      {2, 0},
                      {3, 0},
                      {4, 0},
                      {5, 0},
                      {5, 1},
                      {6, 0},
                      {6, 1},
                      {7, 0},
                      {7, 1},
                      {8, 0},
                      {8, 1},
                      {9, 0},
                      {10, 0},
                      {11, 0},
                      {12, 0},
                      {kCellState, 1},
                      {kHidden, 1}},
                     "N4.1");
  expect_equal_sizes(o, {{0, 0}, {kCellState, 0}, {kHidden, 0}}, "N4.1");
  reject_empty(o, "NG2");
}

void expect_quantization(const Expansion& e, size_t i, const Quantization& expected) {
  const Quantization actual = e.quantization(i);
  if (actual.scale != expected.scale || actual.zero_point.value_or(0) != expected.zero_point.value_or(0))
    e.fail(i, "N4.1", to_string(expected) + " expected; given " + to_string(actual));
}

// Checks all scales and zero points. Returns the scale of the biases and accumulators.
float check_scales(const Expansion& e) {
  for (const size_t i : {size_t{0}, kHidden}) expect_quantization(e, i, {{kOperandScale}, kOperandZero, {}});
  const Quantization weights = e.quantization(kWeights);
  for (size_t i = kWeights + 1; i < kBiases; ++i) expect_quantization(e, i, weights);
  const float scale = weights.scale[0] / 128;
  for (size_t i = kBiases; i < kCellState; ++i)
    if (!e.quantization(i).scale.empty()) expect_quantization(e, i, {{scale}, 0, {}});
  const Quantization cell = e.quantization(kCellState);
  if (std::abs(std::log2(static_cast<double>(cell.scale[0])) + 11) > 1e-3 || cell.zero_point.value_or(0) != 0)
    e.fail(kCellState, "N4.1", "a scale of 2^-11 and a zero point of 0 expected; given " + to_string(cell));
  return scale;
}

// Returns the accumulators of all gates in operand order. Activations are concatenated as x, h, but weights as h, x: NNAPI multiplies the
// first element of x by the first weight of h.
ValueId accumulate_gates(Expansion& e) {
  std::vector<ValueId> weight_rows, biases;
  const auto concat = [&](const std::vector<ValueId>& parts, int64_t axis) { return e.add("Concat", parts, make_attrs({{"axis", axis}})); };
  for (size_t gate = 0; gate < 4; ++gate) {
    weight_rows.push_back(concat({e[kRecurrent + gate], e[kWeights + gate]}, 1));
    biases.push_back(e[kBiases + gate]);
  }
  const ValueId transposed_weights = e.transpose(concat(weight_rows, 0), {1, 0});
  const ValueId zero = e.add_scalar(kOperandZero, DType::uint8);
  const ValueId weights_zero = e.add_scalar(e.quantization(kWeights).zero_point.value_or(0), DType::uint8);
  const ValueId sums = e.add("MatMulInteger", {concat({e[0], e[kHidden]}, 1), transposed_weights, zero, weights_zero});
  return e.add("Add", {sums, concat(biases, 0)});
}

void expand_lstm_16bit(Expansion& e) {
  const float scale = check_scales(e);
  e.expect_one_of_quantizations({{e.quantization(kCellState).scale, 0, {}}, {{kOperandScale}, kOperandZero, {}}});
  FixedPointNodeBuilder f(e);
  const ValueId z = f.clamp_int16(f.apply_multiplier(accumulate_gates(e), make_multiplier(4096.0 * static_cast<double>(scale))));
  const ValueId gate_values = f.apply_gate_functions(e.cast(z, DType::int32), kIntegerBits, 4, 2, e.length(kBiases, 0));
  const auto gates = e.add_multi_output("Split", {gate_values}, 4, make_attrs({{"axis", int64_t{1}}, {"num_outputs", int64_t{4}}}));
  const auto tanh = make_tanh_table(kIntegerBits);
  // The cell state has one more integer bit: its tanh is that of the doubled value, saturated to 16 bits.
  std::vector<double> cell_tanh;
  for (int cell = -32768; cell <= 32767; ++cell)
    cell_tanh.push_back(tanh[static_cast<size_t>(std::clamp(2 * cell, -32768, 32767) + 32768)]);
  const ValueId i = gates[0], forget = gates[1], g = gates[2], o = gates[3];
  const ValueId before = e.cast(e[kCellState], DType::int32);
  const ValueId c = f.clamp_int16(f.add(f.divide_by_pot(f.saturating_mul(i, g), 4), f.saturating_mul(forget, before)));
  const ValueId h = f.clamp_to(f.divide_by_pot(f.saturating_mul(o, f.look_up_table(cell_tanh, c)), 8), -128, 127);
  e.add_output(e.cast(c, DType::int16), e.quantization(kCellState));
  e.add_output(e.cast(f.add(h, f.constant(kOperandZero, DType::int32)), DType::uint8), e.quantization(kHidden));
}

}  // namespace

Operations make_quantized_16bit_lstm_operations() {
  constexpr DTypeSet bytes = make_dtype_set(DType::uint8), cells = make_dtype_set(DType::int16);
  std::vector<Operand> inputs{tensor_arg("x", bytes)};
  for (const std::string_view name : {"input_weights_i", "input_weights_f", "input_weights_c", "input_weights_o", "recurrent_weights_i",
                                      "recurrent_weights_f", "recurrent_weights_c", "recurrent_weights_o"})
    inputs.push_back(tensor_arg(name, bytes));
  for (const std::string_view name : {"bias_i", "bias_f", "bias_c", "bias_o"}) inputs.push_back(tensor_arg(name, kInt));
  inputs.insert(inputs.end(), {tensor_arg("cell", cells), tensor_arg("state", bytes)});
  return {{"nnapi::QUANTIZED_16BIT_LSTM",
           3,
           "One step of a cell of 16-bit integers with gates of 8-bit operands. Outputs: the cell and the hidden state.",
           std::move(inputs),
           {tensor_arg("cell", cells), tensor_arg("state", bytes)},
           expand_lstm_16bit,
           {},
           check_16bit_lstm}};
}

}  // namespace pumice::nnapi
