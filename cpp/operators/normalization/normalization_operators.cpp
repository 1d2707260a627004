// Operator rows for Softmax and the normalisations.
#include <algorithm>

#include "core/error.h"
#include "operators/common/split_axes.h"
#include "operators/normalization/lowerings.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

void shape_of_softmax(ShapeContext& node) {
  normalize_axis(node, node.attributes().integer("axis", -1), node.input(0).shape.size());
  shape_like_input(node);
}

// Checks that inputs 1 to `count` - 1 have one value per channel.
template <size_t count>
void shape_of_channel_norm(ShapeContext& node) {
  if (node.input(0).rank() < 2) node.fail("input 0 has no channels: given " + to_string(node.input(0).shape));
  for (size_t i = 1; i < count; ++i) check_vector(node, i, node.input(0).shape[1], "a value for each channel");
  shape_like_input(node);
}

void shape_of_layer_norm(ShapeContext& node) {
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
  shape_like_input(node);
  Shape statistics = x;
  std::fill(statistics.begin() + static_cast<std::ptrdiff_t>(axis), statistics.end(), 1);
  for (size_t i = 1; i < node.output_count(); ++i) node.output(i, DType::float32, statistics);
}

// Scale and bias have one value per channel. The importer expands those of opsets before 21, which have one value per group.
void shape_of_group_norm(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const int64_t groups = node.attributes().integer("num_groups"), channels = x[1];
  if (groups < 1 || channels % groups != 0) node.fail(std::to_string(channels) + " channels in " + std::to_string(groups) + " groups");
  for (size_t i = 1; i < 3; ++i) check_vector(node, i, channels, "a value for each channel");
  shape_like_input(node);
}

void shape_of_mean_variance_norm(ShapeContext& node) {
  normalize_axes(node, node.attributes().integers("axes"), node.input(0).shape.size());
  shape_like_input(node);
}

void shape_of_lrn(ShapeContext& node) {
  if (node.attributes().integer("size") < 1)
    node.fail("'size' of at least 1 expected; given " + std::to_string(node.attributes().integer("size")));
  shape_like_input(node);
}

void split_before_axis(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const int fixed_axis = normalize_axis(node.attributes->integer("axis", -1), node.input(kData).rank());
  split_all_but(node, axes, [&](int axis) { return axis >= fixed_axis; });
}

void split_all_but_listed_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const int rank = node.input(kData).rank();
  std::vector<int> fixed_axes;
  for (const int64_t axis : node.attributes->integers("axes", {0, 2, 3})) fixed_axes.push_back(normalize_axis(axis, rank));
  split_all_but(node, axes, [&](int axis) { return std::ranges::find(fixed_axes, axis) != fixed_axes.end(); });
}

void split_all_but_channels(const LowerContext& node, std::vector<SplitAxis>& axes) {
  split_all_but(node, axes, [](int axis) { return axis == 1; });
}

// Scale, bias and statistics are vectors over the channels, so they are split with the channels.
void split_channel_vectors(const LowerContext& node, std::vector<SplitAxis>& axes) {
  for (SplitAxis& split : axes) {
    if (split.inputs[kData] != 1) continue;
    split.packs_vectors = true;
    for (size_t i = 1; i < node.inputs.size() && i < 5; ++i)
      if (node.has_input(i) && node.input(i).rank() == 1) split.inputs[i] = 0;
  }
}

void split_batch_norm(const LowerContext& node, std::vector<SplitAxis>& axes) {
  split_all_but(node, axes, [](int) { return false; });
  split_channel_vectors(node, axes);
}

// Statistics are per plane, so planes are not split.
void split_instance_norm(const LowerContext& node, std::vector<SplitAxis>& axes) {
  split_batch_and_channels(node, axes);
  split_channel_vectors(node, axes);
}

// Splits by batch and, if scale and bias have one value per channel, by whole channel groups.
void split_group_norm(const LowerContext& node, std::vector<SplitAxis>& axes) {
  split_batch(node, axes);
  const int64_t channels = node.input(kData).shape[1], groups = node.attributes->integer("num_groups", 1);
  if (groups < 2 || node.input(1).elements() != channels || node.input(2).elements() != channels) return;
  SplitAxis& split = axes.emplace_back(make_split_axis(node, 1));
  split.inputs[1] = split.inputs[2] = 0;
  split.size = groups, split.unit = channels / groups;
  split.counts = "num_groups";
  split.packs_vectors = true;
}

bool is_last_axis(const Attributes& attributes, size_t rank) {
  const int64_t axis = attributes.integer("axis", -1);
  return rank > 0 && (axis == -1 || axis == static_cast<int64_t>(rank) - 1);
}

OperatorRow mark_softmax(OperatorRow row) {
  row.is_softmax = is_last_axis;
  return row;
}

OperatorRow make_softmax_row(std::string_view name, SoftmaxMode form, DTypeSet dtypes) {
  return {.name = name,
          .skeleton = KernelKind::reduce,
          .schema = {.inputs = {value("x", dtypes)}, .outputs = {value("y", dtypes)}, .attributes = {integer("axis", -1)}, .min_rank = 1},
          .shape = shape_of_softmax,
          .lower = lower_softmax,
          .form = form,
          .strides = StrideSupport::packed,
          .split = split_all_but_axis,
          .half_inputs = 1};
}

}  // namespace

OperatorRows normalization_operators() {
  const auto floats = [](std::string_view name) { return value(name, kFloats); };
  const std::vector<ValueRole> x{floats("x")}, y{floats("y")}, scaled{floats("x"), floats("scale"), floats("b")};
  const std::vector<ValueRole> with_statistics{floats("x"), floats("scale"), floats("b"), floats("mean"), floats("variance")};
  return {mark_softmax(make_softmax_row("Softmax", kSoftmax, kReals)),
          make_softmax_row("LogSoftmax", kLogSoftmax, kReals),
          {.name = "InstanceNormalization",
           .skeleton = KernelKind::reduce,
           .schema = {.inputs = scaled, .outputs = y, .attributes = {real("epsilon", 1e-5)}, .min_rank = 3},
           .shape = shape_of_channel_norm<3>,
           .lower = lower_instance_norm,
           .pack = pack_instance_norm,
           .strides = StrideSupport::image,
           .split = split_instance_norm,
           .half_inputs = 1,
           .stores_fp32_or_half = true,
           .epilogue = true,
           .residual = [](const Attributes&, const TensorDesc&) { return true; }},
          {.name = "BatchNormalization",
           .skeleton = KernelKind::map,
           .schema = {.inputs = with_statistics,
                      .outputs = y,
                      .attributes = {real("epsilon", 1e-5),
                                     real("momentum", 0.9),
                                     {"training_mode", AttributeKind::integer, int64_t{0}, false, {int64_t{0}}}},
                      .min_rank = 2},
           .shape = shape_of_channel_norm<5>,
           .lower = lower_batch_norm,
           .pack = pack_batch_norm,
           .strides = StrideSupport::image,
           .split = split_batch_norm,
           .half_inputs = 1,
           .stores_fp32_or_half = true,
           .epilogue = true},
          {.name = "LayerNormalization",
           .skeleton = KernelKind::reduce,
           .schema = {.inputs = {floats("x"), floats("scale"), optional_value("b", kFloats)},
                      .outputs = {floats("y"), optional_value("mean", kFloats), optional_value("inv_std_dev", kFloats)},
                      .attributes = {integer("axis", -1), real("epsilon", 1e-5), integer("stash_type", 1)},
                      .min_rank = 1},
           .shape = shape_of_layer_norm,
           .lower = lower_layer_norm,
           .form = kLayerNorm,
           .pack = pack_layer_norm,
           .strides = StrideSupport::packed,
           .split = split_before_axis,
           .half_inputs = 1,
           .stores_fp32_or_half = true,
           .epilogue = true},
          {.name = "RMSNormalization",
           .skeleton = KernelKind::reduce,
           .schema = {.inputs = {floats("x"), floats("scale")},
                      .outputs = y,
                      .attributes = {integer("axis", -1), real("epsilon", 1e-5), integer("stash_type", 1)},
                      .min_rank = 1},
           .shape = shape_of_layer_norm,
           .lower = lower_layer_norm,
           .form = kRmsNorm,
           .pack = pack_layer_norm,
           .strides = StrideSupport::packed,
           .split = split_before_axis,
           .half_inputs = 1,
           .stores_fp32_or_half = true,
           .epilogue = true},
          make_softmax_row("Hardmax", kHardmax, kFloats),
          {.name = "GroupNormalization",
           .skeleton = KernelKind::reduce,
           .schema = {.inputs = {floats("x"), floats("scale"), floats("bias")},
                      .outputs = y,
                      .attributes = {real("epsilon", 1e-5), required("num_groups", AttributeKind::integer), integer("stash_type", 1)},
                      .min_rank = 2},
           .shape = shape_of_group_norm,
           .lower = lower_group_norm,
           .pack = pack_instance_norm,
           .strides = StrideSupport::packed,
           .split = split_group_norm,
           .half_inputs = 1,
           .stores_fp32_or_half = true,
           .epilogue = true},
          {.name = "MeanVarianceNormalization",
           .skeleton = KernelKind::reduce,
           .schema =
               {.inputs = x, .outputs = y, .attributes = {{"axes", AttributeKind::integers, std::vector<int64_t>{0, 2, 3}}}, .min_rank = 1},
           .shape = shape_of_mean_variance_norm,
           .lower = lower_mean_variance_norm,
           .strides = StrideSupport::packed,
           .split = split_all_but_listed_axes,
           .epilogue = true},
          {.name = "LpNormalization",
           .skeleton = KernelKind::reduce,
           .schema = {.inputs = x,
                      .outputs = y,
                      .attributes = {integer("axis", -1), {"p", AttributeKind::integer, int64_t{2}, false, {int64_t{1}, int64_t{2}}}},
                      .min_rank = 1},
           .shape = shape_of_softmax,
           .lower = lower_lp_norm,
           .strides = StrideSupport::packed,
           .split = split_all_but_axis,
           .epilogue = true},
          {.name = "LRN",
           .skeleton = KernelKind::window,
           .schema = {.inputs = x,
                      .outputs = y,
                      .attributes = {required("size", AttributeKind::integer), real("alpha", 1e-4), real("beta", 0.75), real("bias", 1)},
                      .min_rank = 2},
           .shape = shape_of_lrn,
           .lower = lower_lrn,
           .strides = StrideSupport::packed,
           .split = split_all_but_channels,
           .epilogue = true}};
}

}  // namespace pumice
