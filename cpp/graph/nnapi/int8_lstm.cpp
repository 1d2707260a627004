// NNAPI QUANTIZED_LSTM: LSTM with signed 8-bit operands, layer normalization, peepholes and projection, in integer arithmetic.
#include <algorithm>
#include <cmath>

#include "core/number_format.h"
#include "graph/nnapi/fixed_point.h"
#include "graph/nnapi/lstm.h"
#include "graph/nnapi/operations.h"

namespace pumice::nnapi {
namespace {

constexpr LstmCell kOperands{1, 5, 9, 12, 16, 18, 19, 20};
constexpr size_t kCellClip = 24, kProjectionClip = 25, kGateScales = 26, kHiddenZero = 30, kHiddenScale = 31, kCount = 32;
constexpr size_t kForgetGate = 1, kCandidate = 2, kOutputGate = 3;
constexpr int kGateBits = 3;  // integer bits of the arguments of gate functions

void check_int8_lstm(Operands& o) {
  o.expect_rank(0, 2);
  check_optional_operands(o, kOperands, true);
  check_lstm_sizes(o, kOperands, "NL7");
  expect_equal_sizes(o, {{0, 0}, {kOperands.h, 0}}, "NL7");
  expect_equal_sizes(o, {{0, 1}, {kOperands.x_weights + 3, 1}}, "NL7");
  for (size_t i = kCellClip; i < kCount; ++i) {
    const auto& elements = o.facts()[i].elements;
    if (!elements) o.reject(i, "which is not a constant");
    const double actual = elements->as_double().at(0);
    if (i <= kProjectionClip && !(actual >= 0)) o.fail(i, "NL6", "a non-negative number expected; given " + format_general(actual));
    if (i > kProjectionClip && i != kHiddenZero && !(actual > 0 && std::isfinite(actual)))
      o.fail(i, "N3.1", "a positive scale expected; given " + format_general(actual));
  }
  reject_empty(o, "NG2");
}

float get_scale(const Expansion& e, size_t i) {
  return e.quantization(i).scale.at(0);
}

void check_zero_points(const Expansion& e) {
  for (size_t i = 1; i < kCellClip; ++i)
    if (e.has(i) && i != kOperands.h && e.quantization(i).zero_point.value_or(0) != 0)
      e.fail(i, "N3.1", "a zero point of 0 expected; given " + to_string(e.quantization(i)));
}

// Returns P if the scale of the cell state is 2^P.
int read_cell_exponent(const Expansion& e) {
  const double exact = std::log2(static_cast<double>(get_scale(e, kOperands.c))), rounded = std::round(exact);
  if (std::abs(exact - rounded) >= 1e-3 || rounded < -15 || rounded > -9)
    e.fail(kOperands.c, "N3.3", "a scale of 2^-15 to 2^-9 expected; given " + to_string(e.quantization(kOperands.c)));
  return static_cast<int>(rounded);
}

// State for expanding one LSTM step.
struct Int8LstmStep {
  Expansion& e;
  FixedPointNodeBuilder f;
  int exponent;               // scale of the cell state is 2^exponent
  std::vector<size_t> gates;  // gates that have weights, in operand order

  ValueId add_int64(double value) { return f.constant(value, DType::int64); }
  ValueId mul(ValueId a, ValueId b) { return e.add("Mul", {a, b}); }
  ValueId div(ValueId a, ValueId b) { return e.add("Div", {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return e.add("Sub", {a, b}); }
  ValueId as_int32(ValueId id) { return e.cast(id, DType::int32); }
  float get_gate_scale(size_t gate) const { return static_cast<float>(e.read_real(kGateScales + gate)); }
};

// Returns the int32 matrix product of operand `i`, minus its zero point, with the weights of all gates, which begin at operand `weights`;
// concatenated by gate.
ValueId accumulate_input(Int8LstmStep& s, size_t i, size_t weights) {
  std::vector<ValueId> rows;
  for (const size_t gate : s.gates) rows.push_back(s.e[weights + gate]);
  const ValueId across = s.e.transpose(s.e.add("Concat", rows, make_attrs({{"axis", int64_t{0}}})), {1, 0});
  const ValueId zero = s.e.add_scalar(s.e.quantization(i).zero_point.value_or(0), DType::int8);
  return s.e.add("MatMulInteger", {s.e[i], across, zero});
}

// Returns the inverse square root of a value in [2^27, 2^29) by Newton's method, given a quarter of the value. Each step saturates to 32
// bits.
ValueId newton_inverse_sqrt(Int8LstmStep& s, ValueId quarter) {
  const auto high = [&](ValueId a, ValueId b) { return s.f.apply_multiplier(s.mul(a, b), {1, 0}); };
  const auto clamp_to = [&](ValueId id, double factor) {
    return s.f.clamp_to(s.mul(id, s.add_int64(factor)), -2147483648.0, 2147483647.0);
  };
  ValueId x = s.add_int64(std::ldexp(1.0, 28));
  for (int step = 0; step < 5; ++step) {
    const ValueId cube = clamp_to(high(high(x, x), x), 64);
    x = clamp_to(s.sub(high(s.add_int64(3 * std::ldexp(1.0, 27)), x), high(quarter, cube)), 8);
  }
  return high(x, s.add_int64(1518500250));
}

struct InverseSqrt {
  ValueId mantissa, divisor;  // int64 values: the result is mantissa / 2^31 / divisor, and the divisor is a power of two
};

// Returns 1 / sqrt(variance) for 32-bit integer variances. Scales the variance to [2^27, 2^29) by powers of 4, which are counted.
InverseSqrt compute_inverse_sqrt(Int8LstmStep& s, ValueId variance) {
  Expansion& e = s.e;
  const auto below = [&](double max_value) { return e.cast(e.add("Less", {variance, s.add_int64(max_value)}), DType::int64); };
  ValueId powers_of_4 = s.sub(below(std::ldexp(1.0, 29)), s.add_int64(1));  // -1: divide by 4
  std::vector<double> up{1}, mantissas{1}, divisors{4096};
  for (int k = 1; k <= 13; ++k) powers_of_4 = s.f.add(powers_of_4, below(std::ldexp(1.0, 29 - 2 * k)));
  for (int p = 0; p <= 13; ++p) {
    up.push_back(std::ldexp(1.0, 2 * p));
    mantissas.push_back(p > 11 ? std::ldexp(1.0, p - 11) : 1);
    divisors.push_back(p < 11 ? std::ldexp(1.0, 11 - p) : 1);
  }
  const ValueId table_index = s.f.add(powers_of_4, s.add_int64(1));
  const auto from = [&](const std::vector<double>& table) {
    return e.add("Gather", {e.add_vector(table, DType::int64), table_index}, make_attrs({{"axis", int64_t{0}}}));
  };
  const ValueId down = e.add("Where", {e.add("Less", {powers_of_4, s.add_int64(0)}), s.add_int64(4), s.add_int64(1)});
  const ValueId moved = s.div(s.mul(variance, from(up)), down);
  const ValueId root = s.mul(newton_inverse_sqrt(s, s.f.divide_by_pot(s.div(moved, s.add_int64(2)), 1)), from(mantissas));
  const ValueId is_small = e.add("Less", {variance, s.add_int64(2)});
  return {e.add("Where", {is_small, s.add_int64(2147483647), root}), e.add("Where", {is_small, s.add_int64(1), from(divisors)})};
}

// Applies layer normalization to the pre-activations of a gate. Sums are int64; weights are int32.
ValueId layer_normalise(Int8LstmStep& s, ValueId z, size_t gate) {
  Expansion& e = s.e;
  const size_t norm = kOperands.norms + gate;
  const ValueId v = e.cast(z, DType::int64), axis = e.add_int64_vector({1});
  const ValueId units = e.add_sizes({e.length(kOperands.c, 1)});
  const auto sum = [&](ValueId id) { return e.add("ReduceSum", {id, axis}); };
  const ValueId mean = s.div(s.mul(sum(v), s.add_int64(1024)), units);
  const ValueId inverse_units = s.div(s.add_int64(1048576), units);
  const ValueId exact = s.sub(s.mul(sum(s.mul(v, v)), inverse_units), s.mul(mean, mean));
  const double limit = std::min(1.0, std::trunc(10000.0 * static_cast<double>(get_scale(e, norm))));
  const ValueId quotient = s.div(exact, s.add_int64(1048576));
  const ValueId variance = e.add("Where", {e.add("Less", {quotient, s.add_int64(1)}), s.add_int64(limit), quotient});
  const InverseSqrt factor = compute_inverse_sqrt(s, variance);
  const ValueId product = s.f.apply_multiplier(s.mul(s.sub(s.mul(v, s.add_int64(1024)), mean), factor.mantissa), {1, 0});
  const ValueId half = s.div(factor.divisor, s.add_int64(2));
  const ValueId signed_half = e.add("Where", {e.add("Less", {product, s.add_int64(0)}), e.add("Neg", {half}), half});
  const ValueId r = s.as_int32(s.div(s.f.add(product, signed_half), factor.divisor));
  const ValueId t = s.f.add(s.mul(r, s.as_int32(e[norm])), e[kOperands.biases + gate]);
  FixedPointMultiplier by = make_multiplier(static_cast<double>(get_scale(e, norm)));
  by.exponent += 12;
  return s.f.clamp_int16(s.f.apply_multiplier(s.f.divide_by_pot(t, 10), by));
}

// Returns the contribution of a peephole from the cell state `c` to a gate.
ValueId add_peephole(Int8LstmStep& s, ValueId c, size_t operand, size_t gate) {
  const float factor = std::ldexp(1.0f, s.exponent) * get_scale(s.e, operand) / s.get_gate_scale(gate);
  return s.f.apply_multiplier(s.mul(s.as_int32(s.e[operand]), c), make_multiplier(static_cast<double>(factor)));
}

// Returns the pre-activations of all gates from x and h: scaled, saturated to 16 bits, int32, concatenated by gate.
ValueId compute_gate_sums(Int8LstmStep& s) {
  const AxisLength units = s.e.length(kOperands.c, 1);
  const auto scaled = [&](size_t weights, size_t input) {
    std::vector<FixedPointMultiplier> factors;
    for (const size_t gate : s.gates)
      factors.push_back(
          make_multiplier(static_cast<double>(get_scale(s.e, weights + gate) * get_scale(s.e, input) / s.get_gate_scale(gate))));
    return s.f.scale_gates(accumulate_input(s, input, weights), factors, units);
  };
  const ValueId input_sums = s.f.clamp_int16(scaled(kOperands.x_weights, 0));
  return s.as_int32(s.f.clamp_int16(s.f.add(input_sums, scaled(kOperands.h_weights, kOperands.h))));
}

// Whether gate functions apply directly to the sums, without peepholes or layer normalization.
bool uses_plain_gates(const Int8LstmStep& s) {
  return !s.e.has(kOperands.peepholes + 2) && !s.e.has(kOperands.norms + kForgetGate);
}

// Returns the activation of a gate from its sum and, with peepholes, the cell state. Without peepholes and layer normalization, `z` already
// is the activation.
ValueId activate_gate(Int8LstmStep& s, ValueId z, size_t gate, ValueId c) {
  if (uses_plain_gates(s)) return z;
  if (s.e.has(kOperands.peepholes + 2) && gate != kCandidate)
    z = s.f.clamp_int16(
        s.f.add(s.e.cast(z, DType::int64), add_peephole(s, c, kOperands.peepholes + (gate == kOutputGate ? 2 : gate), gate)));
  // Without layer normalization, the gate biases are unused.
  if (s.e.has(kOperands.norms + kForgetGate)) z = layer_normalise(s, z, gate);
  return s.f.look_up_table(gate == kCandidate ? make_tanh_table(kGateBits) : make_logistic_table(kGateBits), s.as_int32(z));
}

double quantize_clip_limit(double clip, double unit, double min_value, double max_value) {
  return std::trunc(std::clamp(clip / unit, min_value, max_value));
}

ValueId compute_next_cell(Int8LstmStep& s, const std::vector<ValueId>& z) {
  Expansion& e = s.e;
  const ValueId before = s.as_int32(e[kOperands.c]);
  const size_t first = s.gates.size() - 3;  // index of the forget gate
  const ValueId forget = activate_gate(s, z[first], kForgetGate, before), g = activate_gate(s, z[first + 1], kCandidate, before);
  const ValueId i = first == 1 ? activate_gate(s, z[0], 0, before) : s.sub(s.f.constant(32767, DType::int32), forget);
  const ValueId c = s.f.clamp_int16(s.f.add(s.f.divide_by_pot(s.mul(forget, before), 15), s.f.divide_by_pot(s.mul(i, g), 30 + s.exponent)));
  const double clip = e.read_real(kCellClip), max_value = quantize_clip_limit(clip, std::ldexp(1.0, s.exponent), -32768, 32767);
  return clip > 0 ? s.f.clamp_to(c, -max_value, max_value) : c;
}

// Projects the hidden state. Returns int64 values saturated to 8 bits.
ValueId project_hidden(Int8LstmStep& s, ValueId hidden, int hidden_zero) {
  Expansion& e = s.e;
  const size_t w = kOperands.projection;
  if (!e.has(w)) return hidden;
  const float factor = get_scale(e, w) * static_cast<float>(e.read_real(kHiddenScale)) / get_scale(e, kOperands.h);
  const ValueId products = e.add("MatMulInteger", {e.cast(hidden, DType::int8), e.transpose(e[w], {1, 0})});
  const ValueId rows = e.add("ReduceSum", {s.as_int32(e[w]), e.add_int64_vector({1})}, make_attrs({{"keepdims", int64_t{0}}}));
  ValueId sum = s.f.add(products, s.mul(rows, s.f.constant(hidden_zero, DType::int32)));
  if (e.has(kOperands.projection_bias())) sum = s.f.add(sum, e[kOperands.projection_bias()]);
  const ValueId zero = s.add_int64(e.quantization(kOperands.h).zero_point.value_or(0));
  const ValueId h = s.f.clamp_to(s.f.add(s.f.apply_multiplier(sum, make_multiplier(static_cast<double>(factor))), zero), -128, 127);
  const double clip = e.read_real(kProjectionClip), max_value = quantize_clip_limit(clip, static_cast<double>(get_scale(e, w)), -128, 127);
  return clip > 0 ? s.f.clamp_to(h, -max_value, max_value) : h;
}

void expand_int8_lstm(Expansion& e) {
  check_zero_points(e);
  Int8LstmStep s{e, FixedPointNodeBuilder(e), read_cell_exponent(e),
                 e.has(kOperands.x_weights) ? std::vector<size_t>{0, 1, 2, 3} : std::vector<size_t>{1, 2, 3}};
  const size_t count = s.gates.size();
  ValueId sums = compute_gate_sums(s);
  if (uses_plain_gates(s)) sums = s.f.apply_gate_functions(sums, kGateBits, count, count - 2, e.length(kOperands.c, 1));
  const auto z =
      e.add_multi_output("Split", {sums}, count, make_attrs({{"axis", int64_t{1}}, {"num_outputs", static_cast<int64_t>(count)}}));
  const ValueId c = compute_next_cell(s, z), o = activate_gate(s, z.back(), kOutputGate, c);
  const auto hidden_zero = static_cast<int8_t>(e.read_int(kHiddenZero));
  const auto factor = std::ldexp(1.0f, -30) / static_cast<float>(e.read_real(kHiddenScale));
  const ValueId m = s.mul(o, s.f.look_up_table(make_tanh_table(15 + s.exponent), c));
  const ValueId scaled = s.f.apply_multiplier(m, make_multiplier(static_cast<double>(factor)));
  const ValueId h = project_hidden(s, s.f.clamp_to(s.sub(scaled, s.add_int64(hidden_zero)), -128, 127), hidden_zero);
  const ValueId y = e.cast(h, DType::int8);
  const Quantization quantization = e.operand_quantization(kOperands.h);
  e.add_output(y, quantization);
  e.add_output(e.cast(c, DType::int16), e.quantization(kOperands.c));
  e.add_output(e.add("Identity", {y}), quantization);
}

Operand make_tensor_operand(std::string_view name, DTypeSet dtypes, bool optional) {
  return {{name, dtypes, optional}, OperandKind::tensor};
}

}  // namespace

Operations make_int8_lstm_operations() {
  constexpr DTypeSet bytes = make_dtype_set(DType::int8), cells = make_dtype_set(DType::int16), reals = make_dtype_set(DType::float32);
  std::vector<Operand> in{tensor_arg("x", bytes)};
  for (const std::string_view name : {"input_weights_i", "input_weights_f", "input_weights_c", "input_weights_o", "recurrent_weights_i",
                                      "recurrent_weights_f", "recurrent_weights_c", "recurrent_weights_o"})
    in.push_back(make_tensor_operand(name, bytes, name.ends_with("_i")));
  for (const std::string_view name : {"peephole_i", "peephole_f", "peephole_o"}) in.push_back(make_tensor_operand(name, cells, true));
  for (const std::string_view name : {"bias_i", "bias_f", "bias_c", "bias_o"})
    in.push_back(make_tensor_operand(name, kInt, name.ends_with("_i")));
  in.insert(in.end(), {make_tensor_operand("projection", bytes, true), make_tensor_operand("projection_bias", kInt, true),
                       tensor_arg("state", bytes), tensor_arg("cell", cells)});
  for (const std::string_view name : {"norm_i", "norm_f", "norm_c", "norm_o"}) in.push_back(make_tensor_operand(name, cells, true));
  for (const std::string_view name : {"cell_clip", "projection_clip", "scale_i", "scale_f", "scale_c", "scale_o"})
    in.push_back(scalar_arg(name, reals));
  in.insert(in.end(), {scalar_arg("hidden_zero_point"), scalar_arg("hidden_scale", reals)});
  return {{"nnapi::QUANTIZED_LSTM",
           4,
           "One step of a cell of 16-bit integers with gates of signed 8-bit operands. Outputs: the hidden state, the cell, and the hidden "
           "state as the result.",
           std::move(in),
           {tensor_arg("state", bytes), tensor_arg("cell", cells), tensor_arg("y", bytes)},
           expand_int8_lstm,
           {},
           check_int8_lstm}};
}

}  // namespace pumice::nnapi
