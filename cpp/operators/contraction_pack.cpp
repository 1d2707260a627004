// The packed forms of weights that the contraction kernels read.
#include <algorithm>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/contraction.h"

namespace pumice {

// Packing reads the source row by row.
static void check_packed(const PackContext& node, size_t input) {
  if (!node.input(input).is_packed())
    throw UnsupportedError("node '" + std::string(node.node) + "': input " + std::to_string(input) + " is repacked and has strides, " +
                           to_string(node.input(input)) + "; give it row-major");
}

int64_t packed_group(const NodeContext& node, const WeightView& weights) {
  if (!node.prefers_lanes()) return weights.taps * weights.channels_in * round_up(weights.channels_out, 8);
  const int64_t steps = (weights.channels_in + step_channels(weights.channels_in) - 1) / step_channels(weights.channels_in);
  return round_up(weights.channels_out, kLaneChannels) * weights.taps * steps * 4;
}

std::shared_ptr<const KernelVariant> row_pieces_kernel(const NodeContext& node, DType dtype, std::string_view pad) {
  return node.kernel("row_pieces.comp", DType::int32, {{"UNIT", std::to_string(bits(dtype) / 8) + "u"}, {"PAD", std::string(pad)}});
}

Step row_pieces_step(const std::shared_ptr<const KernelVariant>& kernel, DType dtype, const Operand& x, const Operand& y, int64_t rows,
                     int64_t depth, int64_t x_row) {
  StepBuilder step(kernel);
  step.bind("x", x).bind("y", y).set("rows", rows).set("depth", depth).set("x_row", x_row);
  step.threads(static_cast<uint64_t>(rows * ceil_div(depth * static_cast<int64_t>(bits(dtype)) / 8, 16)));
  return step.build();
}

// Whether packing only moves rows apart: elements of 16 bits that keep their values and their order.
static bool keeps_rows(const NodeContext& node, const TensorDesc& source, const WeightView& weights, double scale) {
  return !node.prefers_lanes() && scale == 1 && source.dtype == node.float_dtype && bits(source.dtype) == 16 && weights.taps == 1 &&
         weights.stride_out == 1 && (weights.groups == 1 || weights.stride_group == weights.channels_in * weights.stride_in);
}

// How conv_pack lays out the weights, and how often it is invoked.
struct PackLayout {
  Macros macros;
  int64_t elements, invocations;
};

// Of groups of so many elements in steps of so many channels.
static PackLayout pack_layout(bool lanes, int64_t step, int64_t elements, const WeightView& weights) {
  constexpr int64_t kRun = 8;  // steps of an invocation
  const int64_t steps = std::max<int64_t>(ceil_div(weights.channels_in, step), 1);
  return {{{"LANES", lanes ? "1" : "0"}, {"KV", std::to_string(step)}, {"RUN", std::to_string(kRun)}},
          elements,
          lanes ? elements / 4 / steps * ceil_div(steps, kRun) : elements / 4};
}

// A step of conv_pack, without the scale that it takes of floats.
static StepBuilder pack_step(const std::shared_ptr<const KernelVariant>& kernel, const WeightView& weights, const PackLayout& layout,
                             const Operand& source, const Operand& target) {
  StepBuilder step(kernel);
  step.bind("x", source)
      .bind("y", target)
      .set("quads", layout.elements / 4)
      .set("taps", weights.taps)
      .set("channels_in", weights.channels_in)
      .set("channels_out", weights.channels_out)
      .set("x_stride_group", weights.stride_group)
      .set("x_stride_out", weights.stride_out)
      .set("x_stride_in", weights.stride_in)
      .set("x_stride_tap", weights.stride_tap)
      .threads(static_cast<uint64_t>(layout.invocations));
  return step;
}

static void pack(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, double scale, PackLayout layout,
                 PackedWeight& packed) {
  packed.desc = TensorDesc(node.float_dtype, {layout.elements});
  if (keeps_rows(node, source_desc, weights, scale)) {
    const auto kernel = row_pieces_kernel(node, source_desc.dtype, "0u");
    packed.steps = [kernel, weights, dtype = source_desc.dtype](std::vector<Step>& steps, const Operand& source, const Operand& target) {
      const int64_t rows = weights.groups * weights.channels_in;
      steps.push_back(row_pieces_step(kernel, dtype, source, target, rows, weights.channels_out, weights.stride_in));
    };
    return;
  }
  layout.macros.emplace_back("SOURCE_FLOAT", source_desc.dtype == DType::float32 ? "1" : "0");
  const auto kernel = node.kernel("conv_pack.comp", node.float_dtype, layout.macros);
  packed.steps = [kernel, weights, layout, scale](std::vector<Step>& steps, const Operand& source, const Operand& target) {
    steps.push_back(pack_step(kernel, weights, layout, source, target).set("scale", scale).build());
  };
}

void pack_weights(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, double scale, PackedWeight& packed) {
  const int64_t elements = packed_group(node, weights) * weights.groups;
  pack(node, source_desc, weights, scale, pack_layout(node.prefers_lanes(), step_channels(weights.channels_in), elements, weights), packed);
}

void pack_weight_lanes(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, PackedWeight& packed) {
  constexpr int64_t kStep = 4;
  const int64_t group = round_up(weights.channels_out, kLaneChannels) * weights.taps * round_up(weights.channels_in, kStep);
  pack(node, source_desc, weights, 1, pack_layout(true, kStep, group * weights.groups, weights), packed);
}

void pack_integer_weights(const NodeContext& node, const TensorDesc& source_desc, const WeightView& weights, PackedWeight& packed) {
  const int64_t elements = packed_group(node, weights) * weights.groups;
  packed.desc = TensorDesc(source_desc.dtype, {elements});
  PackLayout layout = pack_layout(node.prefers_lanes(), step_channels(weights.channels_in), elements, weights);
  layout.macros.emplace_back("INTEGER", "1");
  const auto kernel = node.kernel("conv_pack.comp", source_desc.dtype, layout.macros);
  packed.steps = [kernel, weights, layout](std::vector<Step>& steps, const Operand& source, const Operand& target) {
    steps.push_back(pack_step(kernel, weights, layout, source, target).build());
  };
}

void pack_weights(const PackContext& node, size_t input, const WeightView& weights, double scale, PackedWeight& packed) {
  check_packed(node, input);
  pack_weights(node, node.input(input), weights, scale, packed);
}

void pack_floats(const PackContext& node, size_t input, double scale, PackedWeight& packed) {
  check_packed(node, input);
  const TensorDesc& source_desc = node.input(input);
  packed.desc = TensorDesc(DType::float32, {source_desc.elements()});
  const auto kernel =
      node.kernel("float_pack.comp", source_desc.dtype, {{"SOURCE_FLOAT", source_desc.dtype == DType::float32 ? "1" : "0"}});
  const int64_t count = source_desc.elements();
  packed.steps = packing_each(kernel, count, [=](StepBuilder& step) { step.set("count", count).set("scale", scale); });
}

}  // namespace pumice
