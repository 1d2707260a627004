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
  return node.host_integer(i);
}

void shape_of_dft(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const DftInputs inputs{read_host_scalar(node, 1), read_host_scalar(node, 2), {}};
  const DftGeometry t = make_dft_geometry(node.node(), node.attributes(), x, inputs);
  Shape y = x;
  const int64_t axis = inputs.axis.value_or(-2);
  y[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(x.size()) : axis)] = t.num_results;
  y.back() = t.result;
  node.output(0, node.input(0).dtype, y);
}

void shape_of_stft(ShapeContext& node) {
  const Shape* window = node.has(2) ? &node.input(2).shape : nullptr;
  const DftGeometry t = make_stft_geometry(node.node(), node.attributes(), node.input(0).shape, window,
                                           {read_host_scalar(node, 3), {}, read_host_scalar(node, 1)});
  node.output(0, node.input(0).dtype, {node.input(0).shape[0], t.frames, t.num_results, t.result});
}

void shape_of_mel_weights(ShapeContext& node) {
  const int64_t number = node.attributes().integer("output_datatype");
  const auto dtype = dtype_from_onnx(number);
  if (!dtype || !contains(kFloats, *dtype))
    throw UnsupportedError("node '" + std::string(node.node()) + "': weights as " +
                           (dtype ? std::string(name(*dtype)) : "ONNX element type " + std::to_string(number)) + "; they can be " +
                           join_names(kFloats));
  const int64_t bins = *read_host_scalar(node, 0), length = *read_host_scalar(node, 1), rate = *read_host_scalar(node, 2);
  const double low = node.host_real(3), high = node.host_real(4);
  if (bins < 1 || length < 1 || rate < 1 || !(low >= 0 && low <= high && high <= static_cast<double>(rate)))
    node.fail(std::to_string(bins) + " bands from " + std::to_string(low) + " to " + std::to_string(high) + " Hz of a spectrum of " +
              std::to_string(length) + " at " + std::to_string(rate) + " Hz");
  node.output(0, *dtype, {length / 2 + 1, bins});
}

// The last axis holds real and imaginary parts.
void split_dft(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const int rank = node.input(kData).rank();
  if (node.has_input(2) && !node.host(2)) return;
  const int64_t declared_axis = node.has_input(2) ? node.host(2)->as_int64().at(0) : node.attributes->integer("axis", -2);
  const int dft_axis = normalize_axis(declared_axis, rank);
  split_all_but(node, axes, [&](int axis) { return axis == dft_axis || axis == rank - 1; });
}

}  // namespace

OperatorRows signal_operators() {
  const ValueRole y = value("y", kFloats);
  return {{.name = "DFT",
           .skeleton = KernelKind::contraction,
           .schema = {.inputs = {value("x", kFloats), optional_value("length", kIndices), optional_value("axis", kInt64)},
                      .outputs = {y},
                      .attributes = {integer("inverse", 0), integer("onesided", 0)},
                      .min_rank = 2},
           .shape = shape_of_dft,
           .lower = lower_dft,
           .flop = dft_flop,
           .host_inputs = input_bits(1, 2),
           .split = split_dft,
           .epilogue = true},
          {.name = "STFT",
           .skeleton = KernelKind::contraction,
           .schema = {.inputs = {value("x", kFloats, 'T'), value("step", kIndices), optional_value("window", kFloats, 'T'),
                                 optional_value("length", kIndices)},
                      .outputs = {y},
                      .attributes = {integer("onesided", 1)},
                      .min_rank = 2,
                      .max_rank = 3},
           .shape = shape_of_stft,
           .lower = lower_stft,
           .flop = stft_flop,
           .host_inputs = input_bits(1, 3),
           .split = split_batch,
           .epilogue = true},
          {.name = "MelWeightMatrix",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {value("bins", kIndices), value("length", kIndices), value("rate", kIndices), value("low", kReals),
                                 value("high", kReals)},
                      .outputs = {y},
                      .attributes = {integer("output_datatype", 1)}},
           .shape = shape_of_mel_weights,
           .lower = lower_mel_weights,
           .host_inputs = input_bits(0, 1, 2, 3, 4)}};
}

}  // namespace pumice
