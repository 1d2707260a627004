// Spectra of signals.
#include "core/error.h"
#include "operators/row/families.h"
#include "operators/row/onnx_dtype.h"
#include "operators/row/row_parts.h"
#include "operators/signal/dft.h"

namespace pumice {
namespace {

std::optional<int64_t> number_of(const ShapeContext& node, size_t i) {
  if (!node.has(i)) return {};
  if (node.input(i).elements() != 1)
    node.fail("input " + std::to_string(i) + " must be one number; given a tensor of shape " + to_string(node.input(i).shape));
  return node.host_integer(i);
}

void shape_of_dft(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const TransformNumbers numbers{number_of(node, 1), number_of(node, 2), {}};
  const Transform t = dft_of(node.node(), node.attributes(), x, numbers);
  Shape y = x;
  const int64_t axis = numbers.axis.value_or(-2);
  y[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(x.size()) : axis)] = t.made;
  y.back() = t.result;
  node.output(0, node.input(0).dtype, y);
}

void shape_of_stft(ShapeContext& node) {
  const Shape* window = node.has(2) ? &node.input(2).shape : nullptr;
  const Transform t = stft_of(node.node(), node.attributes(), node.input(0).shape, window, {number_of(node, 3), {}, number_of(node, 1)});
  node.output(0, node.input(0).dtype, {node.input(0).shape[0], t.frames, t.made, t.result});
}

void shape_of_mel_weights(ShapeContext& node) {
  const int64_t number = node.attributes().integer("output_datatype");
  const auto dtype = dtype_from_onnx(number);
  if (!dtype || !contains(kFloats, *dtype))
    throw UnsupportedError("node '" + std::string(node.node()) + "': weights as " +
                           (dtype ? std::string(name(*dtype)) : "ONNX element type " + std::to_string(number)) + "; they can be " +
                           names(kFloats));
  const int64_t bins = *number_of(node, 0), length = *number_of(node, 1), rate = *number_of(node, 2);
  const double low = node.host_real(3), high = node.host_real(4);
  if (bins < 1 || length < 1 || rate < 1 || !(low >= 0 && low <= high && high <= static_cast<double>(rate)))
    node.fail(std::to_string(bins) + " bands from " + std::to_string(low) + " to " + std::to_string(high) + " Hz of a spectrum of " +
              std::to_string(length) + " at " + std::to_string(rate) + " Hz");
  node.output(0, *dtype, {length / 2 + 1, bins});
}

}  // namespace

Rows signal_rows() {
  const ValueRole y = value("y", kFloats);
  return {{"DFT",
           Skeleton::contraction,
           {{value("x", kFloats), optional_value("length", kIndices), optional_value("axis", kInt64)},
            {y},
            {integer("inverse", 0), integer("onesided", 0)},
            2},
           shape_of_dft,
           lower_dft,
           {},
           host_bits(1, 2)},
          {"STFT",
           Skeleton::contraction,
           {{value("x", kFloats, 'T'), value("step", kIndices), optional_value("window", kFloats, 'T'), optional_value("length", kIndices)},
            {y},
            {integer("onesided", 1)},
            2,
            3},
           shape_of_stft,
           lower_stft,
           {},
           host_bits(1, 3)},
          {"MelWeightMatrix",
           Skeleton::index_map,
           {{value("bins", kIndices), value("length", kIndices), value("rate", kIndices), value("low", kReals), value("high", kReals)},
            {y},
            {integer("output_datatype", 1)}},
           shape_of_mel_weights,
           lower_mel_weights,
           {},
           host_bits(0, 1, 2, 3, 4)}};
}

}  // namespace pumice
