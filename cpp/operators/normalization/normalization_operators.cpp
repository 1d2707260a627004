// Operator rows for Softmax and the normalisations.
#include <algorithm>

#include "core/error.h"
#include "operators/common/split_axes.h"
#include "operators/normalization/lowerings.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

void infer_softmax_shape(ShapeContext& node) {
  normalize_axis(node, node.attributes().integer("axis", -1), node.input(0).shape.size());
  infer_shape_like_input(node);
}

// Checks that inputs 1 to `count` - 1 have one value per channel.
template <size_t count>
void infer_channel_norm_shape(ShapeContext& node) {
  if (node.input(0).rank() < 2) node.fail("input 0 has no channels: given " + to_string(node.input(0).shape));
  for (size_t i = 1; i < count; ++i) check_vector(node, i, node.input(0).shape[1], "a value for each channel");
  infer_shape_like_input(node);
}

void infer_layer_norm_shape(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const size_t axis = normalize_axis(node, node.attributes().integer("axis", -1), x.size());
  const Shape normalised(x.begin() + static_cast<std::ptrdiff_t>(axis), x.end());
  for (size_t i = 1; i < node.input_count(); ++i) {
    if (!node.has(i)) continue;
    try {
      (void)compute_broadcast_strides(node.input(i).shape, node.input(i).strides, normalised);
    } catch (const GraphError&) {
      node.fail("input " + std::to_string(i) + " of shape " + to_string(node.input(i).shape) +
                " does not broadcast to the normalised axes " + to_string(normalised));
    }
  }
  infer_shape_like_input(node);
  Shape statistics = x;
  std::fill(statistics.begin() + static_cast<std::ptrdiff_t>(axis), statistics.end(), 1);
  for (size_t i = 1; i < node.output_count(); ++i) node.output(i, DType::float32, statistics);
}

// Scale and bias have one value per channel. Before opset 21 they had one value per group, which the importer expands.
void infer_group_norm_shape(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const int64_t groups = node.attributes().integer("num_groups"), channels = x[1];
  if (groups < 1 || channels % groups != 0) node.fail(std::to_string(channels) + " channels in " + std::to_string(groups) + " groups");
  for (size_t i = 1; i < 3; ++i) check_vector(node, i, channels, "a value for each channel");
  infer_shape_like_input(node);
}

void infer_mean_variance_norm_shape(ShapeContext& node) {
  normalize_axes(node, node.attributes().integers("axes"), node.input(0).shape.size());
  infer_shape_like_input(node);
}

void infer_lrn_shape(ShapeContext& node) {
  if (node.attributes().integer("size") < 1)
    node.fail("expected 'size' of at least 1; given " + std::to_string(node.attributes().integer("size")));
  infer_shape_like_input(node);
}

void append_axes_before_axis_attribute(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const int fixed_axis = normalize_axis(node.attributes->integer("axis", -1), node.input(kData).rank());
  append_axes_except(node, axes, [&](int axis) { return axis >= fixed_axis; });
}

void append_axes_except_listed(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const int rank = node.input(kData).rank();
  std::vector<int> fixed_axes;
  for (const int64_t axis : node.attributes->integers("axes", {0, 2, 3})) fixed_axes.push_back(normalize_axis(axis, rank));
  append_axes_except(node, axes, [&](int axis) { return std::ranges::find(fixed_axes, axis) != fixed_axes.end(); });
}

void append_axes_except_channels(const LowerContext& node, std::vector<SplitAxis>& axes) {
  append_axes_except(node, axes, [](int axis) { return axis == 1; });
}

// Splits scale, bias and statistics, which are vectors over the channels, together with the channels.
void split_channel_vectors(const LowerContext& node, std::vector<SplitAxis>& axes) {
  for (SplitAxis& split : axes) {
    if (split.inputs[kData] != 1) continue;
    split.packs_vectors = true;
    for (size_t i = 1; i < node.inputs.size() && i < 5; ++i)
      if (node.has_input(i) && node.input(i).rank() == 1) split.inputs[i] = 0;
  }
}

void append_batch_norm_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  append_axes_except(node, axes, [](int) { return false; });
  split_channel_vectors(node, axes);
}

// InstanceNormalization can be split along batch and channels, but not inside a plane, because the statistics are per plane.
void append_instance_norm_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  append_batch_and_channel_axes(node, axes);
  split_channel_vectors(node, axes);
}

// GroupNormalization can be split along the batch and, if scale and bias have one value per channel, along whole channel groups.
void append_group_norm_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  append_batch_axis(node, axes);
  const int64_t channels = node.input(kData).shape[1], groups = node.attributes->integer("num_groups", 1);
  if (groups < 2 || node.input(1).elements() != channels || node.input(2).elements() != channels) return;
  SplitAxis& split = axes.emplace_back(make_split_axis(node, 1));
  split.inputs[1] = split.inputs[2] = 0;
  split.size = groups, split.unit = channels / groups;
  split.counts = "num_groups";
  split.packs_vectors = true;
}

OperatorRow make_softmax_row(std::string_view name, SoftmaxMode form, DTypeSet dtypes) {
  return {.name = name,
          .skeleton = KernelKind::reduce,
          .schema = {.inputs = {value_role("x", dtypes)},
                     .outputs = {value_role("y", dtypes)},
                     .attributes = {integer_attribute("axis", -1)},
                     .min_rank = 1},
          .shape = infer_softmax_shape,
          .lower = lower_softmax,
          .form = form,
          .strides = StrideSupport::packed,
          .split = append_axes_except_axis_attribute,
          .precision = {.half_inputs = 1}};
}

}  // namespace

OperatorRows define_normalization_operators() {
  const auto floats = [](std::string_view name) { return value_role(name, kFloats); };
  const std::vector<ValueRole> x{floats("x")}, y{floats("y")}, scaled{floats("x"), floats("scale"), floats("b")};
  const std::vector<ValueRole> with_statistics{floats("x"), floats("scale"), floats("b"), floats("mean"), floats("variance")};
  return {
      make_softmax_row("Softmax", kSoftmax, kReals),
      make_softmax_row("LogSoftmax", kLogSoftmax, kReals),
      {.name = "InstanceNormalization",
       .skeleton = KernelKind::reduce,
       .schema = {.inputs = scaled, .outputs = y, .attributes = {real_attribute("epsilon", 1e-5)}, .min_rank = 3},
       .shape = infer_channel_norm_shape<3>,
       .lower = lower_instance_norm,
       .pack = pack_instance_norm,
       .strides = StrideSupport::image,
       .split = append_instance_norm_split_axes,
       .precision = {.half_inputs = 1, .stores_fp32_or_half = true},
       .epilogue = true,
       .residual = [](const Attributes&, const TensorDesc&) { return true; }},
      {.name = "BatchNormalization",
       .skeleton = KernelKind::map,
       .schema = {.inputs = with_statistics,
                  .outputs = y,
                  .attributes = {real_attribute("epsilon", 1e-5),
                                 real_attribute("momentum", 0.9),
                                 {"training_mode", AttributeKind::integer, int64_t{0}, false, {int64_t{0}}}},
                  .min_rank = 2},
       .shape = infer_channel_norm_shape<5>,
       .lower = lower_batch_norm,
       .pack = pack_batch_norm,
       .strides = StrideSupport::image,
       .split = append_batch_norm_split_axes,
       .precision = {.half_inputs = 1, .stores_fp32_or_half = true},
       .epilogue = true},
      {.name = "LayerNormalization",
       .skeleton = KernelKind::reduce,
       .schema = {.inputs = {floats("x"), floats("scale"), optional_role("b", kFloats)},
                  .outputs = {floats("y"), optional_role("mean", kFloats), optional_role("inv_std_dev", kFloats)},
                  .attributes = {integer_attribute("axis", -1), real_attribute("epsilon", 1e-5), integer_attribute("stash_type", 1)},
                  .min_rank = 1},
       .shape = infer_layer_norm_shape,
       .lower = lower_layer_norm,
       .form = kLayerNorm,
       .pack = pack_layer_norm,
       .strides = StrideSupport::packed,
       .split = append_axes_before_axis_attribute,
       .precision = {.half_inputs = 1, .stores_fp32_or_half = true},
       .epilogue = true},
      {.name = "RMSNormalization",
       .skeleton = KernelKind::reduce,
       .schema = {.inputs = {floats("x"), floats("scale")},
                  .outputs = y,
                  .attributes = {integer_attribute("axis", -1), real_attribute("epsilon", 1e-5), integer_attribute("stash_type", 1)},
                  .min_rank = 1},
       .shape = infer_layer_norm_shape,
       .lower = lower_layer_norm,
       .form = kRmsNorm,
       .pack = pack_layer_norm,
       .strides = StrideSupport::packed,
       .split = append_axes_before_axis_attribute,
       .precision = {.half_inputs = 1, .stores_fp32_or_half = true},
       .epilogue = true},
      make_softmax_row("Hardmax", kHardmax, kFloats),
      {.name = "GroupNormalization",
       .skeleton = KernelKind::reduce,
       .schema = {.inputs = {floats("x"), floats("scale"), floats("bias")},
                  .outputs = y,
                  .attributes = {real_attribute("epsilon", 1e-5), required_attribute("num_groups", AttributeKind::integer),
                                 integer_attribute("stash_type", 1)},
                  .min_rank = 2},
       .shape = infer_group_norm_shape,
       .lower = lower_group_norm,
       .pack = pack_instance_norm,
       .strides = StrideSupport::packed,
       .split = append_group_norm_split_axes,
       .precision = {.half_inputs = 1, .stores_fp32_or_half = true},
       .epilogue = true},
      {.name = "MeanVarianceNormalization",
       .skeleton = KernelKind::reduce,
       .schema =
           {.inputs = x, .outputs = y, .attributes = {{"axes", AttributeKind::integers, std::vector<int64_t>{0, 2, 3}}}, .min_rank = 1},
       .shape = infer_mean_variance_norm_shape,
       .lower = lower_mean_variance_norm,
       .strides = StrideSupport::packed,
       .split = append_axes_except_listed,
       .epilogue = true},
      {.name = "LpNormalization",
       .skeleton = KernelKind::reduce,
       .schema = {.inputs = x,
                  .outputs = y,
                  .attributes = {integer_attribute("axis", -1), {"p", AttributeKind::integer, int64_t{2}, false, {int64_t{1}, int64_t{2}}}},
                  .min_rank = 1},
       .shape = infer_softmax_shape,
       .lower = lower_lp_norm,
       .strides = StrideSupport::packed,
       .split = append_axes_except_axis_attribute,
       .epilogue = true},
      {.name = "LRN",
       .skeleton = KernelKind::window,
       .schema = {.inputs = x,
                  .outputs = y,
                  .attributes = {required_attribute("size", AttributeKind::integer), real_attribute("alpha", 1e-4),
                                 real_attribute("beta", 0.75), real_attribute("bias", 1)},
                  .min_rank = 2},
       .shape = infer_lrn_shape,
       .lower = lower_lrn,
       .strides = StrideSupport::packed,
       .split = append_axes_except_channels,
       .epilogue = true}};
}

}  // namespace pumice
