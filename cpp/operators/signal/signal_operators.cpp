// Operator rows for DFT, STFT and MelWeightMatrix.
#include "core/error.h"
#include "operators/common/split_axes.h"
#include "operators/signal/dft.h"
#include "operators/signal/lowerings.h"
#include "operators/table/onnx_dtype.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

std::optional<int64_t> read_host_scalar(const ShapeContext& node, size_t i) {
  if (!node.has(i)) return {};
  if (node.input(i).elements() != 1)
    node.fail("input " + std::to_string(i) + " must be one number; given a tensor of shape " + to_string(node.input(i).shape));
  return node.get_host_integer(i);
}

void infer_dft_shape(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const DftInputs inputs{read_host_scalar(node, 1), read_host_scalar(node, 2), {}};
  const DftGeometry t = make_dft_geometry(node.node(), node.attributes(), x, inputs);
  Shape y = x;
  const int64_t axis = inputs.axis.value_or(-2);
  y[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(x.size()) : axis)] = t.num_results;
  y.back() = t.result;
  node.output(0, node.input(0).dtype, y);
}

void infer_stft_shape(ShapeContext& node) {
  const Shape* window = node.has(2) ? &node.input(2).shape : nullptr;
  const DftGeometry t = make_stft_geometry(node.node(), node.attributes(), node.input(0).shape, window,
                                           {read_host_scalar(node, 3), {}, read_host_scalar(node, 1)});
  node.output(0, node.input(0).dtype, {node.input(0).shape[0], t.frames, t.num_results, t.result});
}

void infer_mel_weights_shape(ShapeContext& node) {
  const int64_t number = node.attributes().integer("output_datatype");
  const auto dtype = from_onnx_dtype(number);
  if (!dtype || !contains(kFloats, *dtype))
    throw UnsupportedError("node '" + std::string(node.node()) + "': weights as " +
                           (dtype ? std::string(name(*dtype)) : "ONNX element type " + std::to_string(number)) +
                           "; supported: " + join_dtype_names(kFloats));
  const int64_t bins = *read_host_scalar(node, 0), length = *read_host_scalar(node, 1), rate = *read_host_scalar(node, 2);
  const double low = node.get_host_real(3), high = node.get_host_real(4);
  if (bins < 1 || length < 1 || rate < 1 || !(low >= 0 && low <= high && high <= static_cast<double>(rate)))
    node.fail(std::to_string(bins) + " bands from " + std::to_string(low) + " to " + std::to_string(high) + " Hz of a spectrum of " +
              std::to_string(length) + " at " + std::to_string(rate) + " Hz");
  node.output(0, *dtype, {length / 2 + 1, bins});
}

// DFT can be split along all axes except the transformed axis and the last axis, which contains real and imaginary parts.
void append_dft_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const int rank = node.input(kData).rank();
  if (node.has_input(2) && !node.host_tensor(2)) return;
  const int64_t declared_axis = node.has_input(2) ? node.host_tensor(2)->as_int64().at(0) : node.attributes->integer("axis", -2);
  const int dft_axis = normalize_axis(declared_axis, rank);
  append_axes_except(node, axes, [&](int axis) { return axis == dft_axis || axis == rank - 1; });
}

}  // namespace

OperatorRows define_signal_operators() {
  const ValueRole y = value_role("y", kFloats);
  return {{.name = "DFT",
           .skeleton = KernelKind::contraction,
           .schema = {.inputs = {value_role("x", kFloats), optional_role("length", kIndices), optional_role("axis", kInt64)},
                      .outputs = {y},
                      .attributes = {integer_attribute("inverse", 0), integer_attribute("onesided", 0)},
                      .min_rank = 2},
           .shape = infer_dft_shape,
           .lower = lower_dft,
           .flop = count_dft_flops,
           .host_inputs = make_input_mask(1, 2),
           .split = append_dft_split_axes,
           .epilogue = true},
          {.name = "STFT",
           .skeleton = KernelKind::contraction,
           .schema = {.inputs = {value_role("x", kFloats, 'T'), value_role("step", kIndices), optional_role("window", kFloats, 'T'),
                                 optional_role("length", kIndices)},
                      .outputs = {y},
                      .attributes = {integer_attribute("onesided", 1)},
                      .min_rank = 2,
                      .max_rank = 3},
           .shape = infer_stft_shape,
           .lower = lower_stft,
           .flop = count_stft_flops,
           .host_inputs = make_input_mask(1, 3),
           .split = append_batch_axis,
           .epilogue = true},
          {.name = "MelWeightMatrix",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {value_role("bins", kIndices), value_role("length", kIndices), value_role("rate", kIndices),
                                 value_role("low", kReals), value_role("high", kReals)},
                      .outputs = {y},
                      .attributes = {integer_attribute("output_datatype", 1)}},
           .shape = infer_mel_weights_shape,
           .lower = lower_mel_weights,
           .host_inputs = make_input_mask(0, 1, 2, 3, 4)}};
}

}  // namespace pumice
