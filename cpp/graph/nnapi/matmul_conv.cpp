// NNAPI matmuls and convolutions. Quantized ones accumulate 8-bit products exactly in int32 and round once.
#include "graph/nnapi/matmul_conv.h"

#include <algorithm>
#include <cmath>

#include "core/number_format.h"
#include "graph/nnapi/expansion.h"
#include "graph/nnapi/images.h"
#include "graph/nnapi/operations.h"

namespace pumice::nnapi {

// Returns the scale and zero point as constant inputs of a QLinear operator.
static std::vector<ValueId> make_quantization_inputs(Expansion& e, const Quantization& quantization, DType dtype) {
  return {e.add_scales(quantization), e.add_scalar(quantization.zero_point.value_or(0), dtype)};
}

void check_bias_length(Operands& o, size_t axis) {
  const auto fail = [&](const std::string& expected) { o.fail(2, expected + " expected; given " + o.format_shape(2)); };
  const auto channels = o.size(1, axis);
  if (const auto rank = o.rank(2); rank && *rank != 1) fail(channels ? to_string(Shape{*channels}) : "a rank of 1");
  o.expect_rank(2, 1);
  const auto length = o.size(2, 0);
  if (channels && length && channels != length) fail(to_string(Shape{*channels}));
  if (channels) o.assume_size(2, 0, *channels);
  if (length) o.assume_size(1, axis, *length);
}

void check_bias(const Expansion& e) {
  const GraphValue& bias = e.value(2);
  const DType expected = e.is_quantized(0) ? DType::int32 : e.dtype(0);
  if (bias.dtype != expected)
    e.fail(2, std::string(name(expected)) + " expected with " + std::string(name(e.dtype(0))) + "; given " + std::string(name(bias.dtype)));
  const Quantization &x = e.quantization(0), &w = e.quantization(1), &actual = bias.quantization;
  if (actual.scale.empty()) return;
  if (actual.zero_point.value_or(0) != 0) e.fail(2, "a zero point of 0 expected; given " + std::to_string(*actual.zero_point));
  if (w.scale.size() != actual.scale.size())
    e.fail(2, std::to_string(w.scale.size()) + " scales expected, as operand 1; given " + std::to_string(actual.scale.size()));
  for (size_t i = 0; i < w.scale.size(); ++i) {
    const double product = static_cast<double>(x.scale[0]) * static_cast<double>(w.scale[i]), scale = static_cast<double>(actual.scale[i]);
    if (std::abs(product - scale) > 1e-6 * std::min(product, scale))
      e.fail(2, "a scale of " + format_general(product) + " expected, the product of those of operands 0 and 1; given " +
                    format_general(scale));
  }
}

void check_filter(const Expansion& e, int channel_axis) {
  const DType x = e.dtype(0), w = e.dtype(1);
  const auto axis = e.quantization(1).channel_axis;
  if (axis && *axis != channel_axis)
    e.fail(1, "scales on axis " + std::to_string(channel_axis) + " expected; given those on axis " + std::to_string(*axis));
  if (x != w && !(axis && contains(kQuant, x) && w == DType::int8))
    e.fail(1, std::string(name(x)) + " expected, as operand 0; given " + std::string(name(w)));
}

ValueId add_quantized_conv(Expansion& e, ValueId x, ValueId w, Activation activation, const Quantization& y, const Attributes& attributes) {
  std::vector<ValueId> inputs{x};
  const auto append = [&](const std::vector<ValueId>& more) { inputs.insert(inputs.end(), more.begin(), more.end()); };
  append(make_quantization_inputs(e, e.quantization(0), e.dtype(0)));
  append({w});
  append(make_quantization_inputs(e, e.quantization(1), e.dtype(1)));
  append(make_quantization_inputs(e, y, e.dtype(0)));
  append({e[2]});
  return e.apply_activation(e.add("QLinearConv", inputs, attributes), activation, y);
}

namespace {

void check_fully_connected(Operands& o) {
  o.expect_rank(1, 2);
  o.expect_min_rank(0, 2);
  check_bias_length(o, 0);
  const auto size = o.size(1, 1);
  const auto& shape = o.facts()[0].shape;
  if (!size || !shape) return;
  int64_t known = 1;  // product of all known sizes
  for (const int64_t axis_size : *shape) known = axis_size == kUnknownSize ? known : checked_mul(known, axis_size, "elements");
  if (*size != 0 && known % *size == 0) return;
  if (*size == 0 || std::ranges::find(*shape, kUnknownSize) == shape->end())
    o.fail(0, "rows of " + std::to_string(*size) + " elements expected; given " + o.format_shape(0));
  o.mark_undetermined();
}

void expand_fully_connected(Expansion& e) {
  const Activation activation = e.read_activation(3);
  check_filter(e, 0);
  check_bias(e);
  const AxisLength units = e.length(1, 0), size = e.length(1, 1);
  if (!e.is_quantized(0)) {
    const bool is_matrix = e.value(0).shape && e.rank(0) == 2 && size.is_known() && e.shape(0)[1] == size.number;
    const ValueId x = is_matrix ? e[0] : e.reshape(e[0], {{}, size});
    return e.add_output(e.apply_activation(e.add("Gemm", {x, e[1], e[2]}, make_attrs({{"transB", int64_t{1}}})), activation));
  }
  // Quantized: a 1x1 convolution, which adds the bias before rounding.
  const Quantization quantization = e.declared_quantization();
  const AxisLength one{1};
  const ValueId x = e.reshape(e[0], {{}, size, one, one}), w = e.reshape(e[1], {units, size, one, one});
  const ValueId y = add_quantized_conv(e, x, w, activation, quantization, {});
  e.add_output(e.reshape(y, {{}, units}), quantization);
}

// Transposes the last two axes of operand i.
ValueId swap_last_axes(Expansion& e, size_t i) {
  std::vector<int64_t> order(e.rank(i));
  for (size_t axis = 0; axis < order.size(); ++axis) order[axis] = static_cast<int64_t>(axis);
  std::swap(order.at(order.size() - 1), order.at(order.size() - 2));
  return e.transpose(e[i], order);
}

void check_batch_matmul(Operands& o) {
  for (const size_t i : {0, 1}) o.expect_min_rank(i, 2);
}

void expand_batch_matmul(Expansion& e) {
  const ValueId a = e.read_int(2) != 0 ? swap_last_axes(e, 0) : e[0], b = e.read_int(3) != 0 ? swap_last_axes(e, 1) : e[1];
  if (!e.is_quantized(0)) return e.add_output(e.add("MatMul", {a, b}));
  const Quantization y = e.declared_quantization();
  std::vector<ValueId> inputs{a};
  const auto append = [&](const std::vector<ValueId>& more) { inputs.insert(inputs.end(), more.begin(), more.end()); };
  append(make_quantization_inputs(e, e.quantization(0), e.dtype(0)));
  append({b});
  append(make_quantization_inputs(e, e.quantization(1), e.dtype(1)));
  append(make_quantization_inputs(e, y, e.dtype(0)));
  e.add_output(e.add("QLinearMatMul", inputs), y);
}

enum class GroupMode : uint8_t { one, by_channel, explicit_count };

// Number of operands before the padding, and of the operands between strides and activation (the group count, if any).
constexpr size_t kBeforeWindow = 3;
constexpr size_t count_group_operands(GroupMode groups) {
  return groups == GroupMode::one ? 0 : 1;
}

// Infers unknown channel counts of image and filter from each other. Conv checks that they match.
void infer_channel_counts(Operands& o, size_t image_axis, int64_t group) {
  const auto in = o.size(0, image_axis), each = o.size(1, 3);
  if (each) o.assume_size(0, image_axis, checked_mul(*each, group, "channels"));
  if (in && *in % group == 0) o.assume_size(1, 3, *in / group);
}

void check_depthwise(Operands& o, size_t image_axis, size_t multiplier_operand) {
  if (const auto first = o.size(1, 0); first && *first != 1) o.fail(1, "[1, height, width, channels] expected; given " + o.format_shape(1));
  const int64_t multiplier = o.read_int(multiplier_operand);
  const auto in = o.size(0, image_axis), channels = o.size(1, 3);
  const auto text = [](const std::optional<int64_t>& size) { return size ? std::to_string(*size) : std::string("?"); };
  const bool fits = !channels || (multiplier > 0 && (in ? *in * multiplier == *channels : *channels % multiplier == 0));
  if (multiplier < 1 || !fits)
    o.fail(multiplier_operand,
           "a multiplier that makes " + text(channels) + " channels of " + text(in) + " expected; given " + std::to_string(multiplier));
  if (in) o.assume_size(1, 3, checked_mul(*in, multiplier, "channels"));
  if (channels) o.assume_size(0, image_axis, *channels / multiplier);
}

template <GroupMode groups>
void check_conv(Operands& o) {
  const size_t next_operand = kBeforeWindow + (o.is_implicit() ? 3 : 6);
  for (const size_t i : {0, 1}) o.expect_rank(i, 4);
  const size_t image_axis = o.read_int(next_operand + count_group_operands(groups) + 1) != 0 ? 1 : 3;
  if constexpr (groups == GroupMode::by_channel) {
    check_depthwise(o, image_axis, next_operand);
    return check_bias_length(o, 3);
  }
  const int64_t group = groups == GroupMode::explicit_count ? o.read_int(next_operand) : 1;
  check_bias_length(o, 0);
  const auto channels = o.size(1, 0);
  if (group < 1 || (channels && *channels % group != 0))
    o.fail(next_operand,
           "a number that divides " + std::to_string(channels.value_or(0)) + " channels expected; given " + std::to_string(group));
  infer_channel_counts(o, image_axis, group);
}

template <GroupMode groups>
void expand_conv(Expansion& e) {
  constexpr size_t numbers = count_group_operands(groups);
  const WindowParams window = read_window(e, kBeforeWindow, numbers, false);
  const size_t next_operand = window.next;  // index of the group count, if any; then activation, layout, dilations
  const Activation activation = e.read_activation(next_operand + numbers);
  const bool is_nchw = read_nchw_flag(e, next_operand + numbers + 1);
  constexpr bool depthwise = groups == GroupMode::by_channel;
  check_filter(e, depthwise ? 3 : 0);
  check_bias(e);
  int64_t group = 1;
  if constexpr (depthwise) group = e.size(0, is_nchw ? 1 : 3);
  if constexpr (groups == GroupMode::explicit_count) group = e.read_int(next_operand);
  Attributes attributes = window.attributes;
  attributes.set("group", group);
  const ValueId x = to_nchw(e, e[0], is_nchw);
  const ValueId w =
      e.add("Transpose", {e[1]}, make_attrs({{"perm", depthwise ? std::vector<int64_t>{3, 0, 1, 2} : std::vector<int64_t>{0, 3, 1, 2}}}));
  if (!e.is_quantized(0)) {
    const ValueId y = e.apply_activation(e.add("Conv", {x, w, e[2]}, attributes), activation);
    return e.add_output(from_nchw(e, y, is_nchw));
  }
  const Quantization quantization = e.declared_quantization();
  e.add_output(from_nchw(e, add_quantized_conv(e, x, w, activation, quantization, attributes), is_nchw), quantization);
}

}  // namespace

Operations make_matmul_conv_operations() {
  constexpr DTypeSet reals = kFloat | kQuant, biases = kFloat | kInt;
  const Operand bias = tensor_arg("bias", biases), filter{{"filter", reals}, OperandKind::tensor, true},
                activation = scalar_arg("activation");
  const auto conv_form = [&](bool implicit, std::vector<Operand> more, bool dilated) {
    std::vector<Operand> form{tensor_arg("x", reals), filter, bias};
    for (const Operand& operand : make_window_operands(implicit, false)) form.push_back(operand);
    for (const Operand& operand : more) form.push_back(operand);
    form.push_back(activation);
    form.push_back(scalar_arg("nchw", kTruth, dilated));
    if (dilated) form.insert(form.end(), {scalar_arg("dilation_width", kInt, true), scalar_arg("dilation_height", kInt, true)});
    return form;
  };
  const auto convolution = [&](std::string_view name, int level, std::string_view summary, std::vector<Operand> more, bool dilated,
                               void (*expand)(Expansion&), void (*check)(Operands&)) {
    return Operation{
        name, level, summary, conv_form(false, more, dilated), {tensor_arg("y", reals)}, expand, conv_form(true, more, dilated), check};
  };
  return {
      {"nnapi::FULLY_CONNECTED",
       1,
       "x, as rows, by the transposed weights, plus the bias, then the activation.",
       {tensor_arg("x", reals), tensor_arg("weights", reals), bias, activation},
       {tensor_arg("y", reals)},
       expand_fully_connected,
       {},
       check_fully_connected},
      {"nnapi::BATCH_MATMUL",
       6,
       "Products of the matrices in the last two axes, exchanged first where adj_x or adj_y is true.",
       {tensor_arg("x", reals | kInt, 'T'), tensor_arg("y", reals | kInt, 'T'), scalar_arg("adj_x", kTruth), scalar_arg("adj_y", kTruth)},
       {tensor_arg("z", reals | kInt)},
       expand_batch_matmul,
       {},
       check_batch_matmul},
      convolution("nnapi::CONV_2D", 1, "A convolution with filters [out, height, width, in], plus the bias, then the activation.", {}, true,
                  expand_conv<GroupMode::one>, check_conv<GroupMode::one>),
      convolution("nnapi::DEPTHWISE_CONV_2D", 1, "A convolution of each channel with its own filters, [1, height, width, out].",
                  {scalar_arg("depth_multiplier")}, true, expand_conv<GroupMode::by_channel>, check_conv<GroupMode::by_channel>),
      convolution("nnapi::GROUPED_CONV_2D", 3, "A convolution of groups of channels, with filters [out, height, width, in of a group].",
                  {scalar_arg("groups")}, false, expand_conv<GroupMode::explicit_count>, check_conv<GroupMode::explicit_count>),
  };
}

}  // namespace pumice::nnapi
