// Operator rows for Softmax and the normalisations.
#include <algorithm>

#include "core/error.h"
#include "operators/common/split_axes.h"
#include "operators/normalization/lowerings.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

void shape_of_softmax(ShapeContext& node) {
  checked_axis(node, node.attributes().integer("axis", -1), node.input(0).shape.size());
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
  const size_t axis = checked_axis(node, node.attributes().integer("axis", -1), x.size());
  const Shape normalised(x.begin() + static_cast<std::ptrdiff_t>(axis), x.end());
  for (size_t i = 1; i < node.input_count(); ++i) {
    if (!node.has(i)) continue;
    try {
      (void)broadcast_strides(node.input(i).shape, node.input(i).strides, normalised);
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

// There is one scale and bias per channel. Nodes of opsets before 21, with one per group, are converted to this form.
void shape_of_group_norm(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const int64_t groups = node.attributes().integer("num_groups"), channels = x[1];
  if (groups < 1 || channels % groups != 0) node.fail(std::to_string(channels) + " channels in " + std::to_string(groups) + " groups");
  for (size_t i = 1; i < 3; ++i) check_vector(node, i, channels, "a value for each channel");
  shape_like_input(node);
}

void shape_over_axes(ShapeContext& node) {
  checked_axes(node, node.attributes().integers("axes"), node.input(0).shape.size());
  shape_like_input(node);
}

void shape_of_lrn(ShapeContext& node) {
  if (node.attributes().integer("size") < 1)
    node.fail("'size' of at least 1 expected; given " + std::to_string(node.attributes().integer("size")));
  shape_like_input(node);
}

void cut_before_axis(const LowerContext& node, std::vector<CutAxis>& axes) {
  const int bound = counted_axis(node.attributes->integer("axis", -1), node.input(kData).rank());
  cut_others(node, axes, [&](int axis) { return axis >= bound; });
}

void cut_beside_listed(const LowerContext& node, std::vector<CutAxis>& axes) {
  const int rank = node.input(kData).rank();
  std::vector<int> bound;
  for (const int64_t axis : node.attributes->integers("axes", {0, 2, 3})) bound.push_back(counted_axis(axis, rank));
  cut_others(node, axes, [&](int axis) { return std::ranges::find(bound, axis) != bound.end(); });
}

void cut_beside_channels(const LowerContext& node, std::vector<CutAxis>& axes) {
  cut_others(node, axes, [](int axis) { return axis == 1; });
}

// Scale and similar inputs are per-channel vectors and are split with the channels.
void follow_channels(const LowerContext& node, std::vector<CutAxis>& axes) {
  for (CutAxis& cut : axes) {
    if (cut.inputs[kData] != 1) continue;
    cut.packs_vectors = true;
    for (size_t i = 1; i < node.inputs.size() && i < 5; ++i)
      if (node.has_input(i) && node.input(i).rank() == 1) cut.inputs[i] = 0;
  }
}

void cut_batch_norms(const LowerContext& node, std::vector<CutAxis>& axes) {
  cut_others(node, axes, [](int) { return false; });
  follow_channels(node, axes);
}

// Statistics are per plane, so planes are not split.
void cut_instance_norms(const LowerContext& node, std::vector<CutAxis>& axes) {
  cut_planes(node, axes);
  follow_channels(node, axes);
}

// Splits by batch and, if scale and bias have one value per channel, by whole channel groups.
void cut_group_norms(const LowerContext& node, std::vector<CutAxis>& axes) {
  cut_images(node, axes);
  const int64_t channels = node.input(kData).shape[1], groups = node.attributes->integer("num_groups", 1);
  if (groups < 2 || node.input(1).elements() != channels || node.input(2).elements() != channels) return;
  CutAxis& cut = axes.emplace_back(own_axis(node, 1));
  cut.inputs[1] = cut.inputs[2] = 0;
  cut.size = groups, cut.unit = channels / groups;
  cut.counts = "num_groups";
  cut.packs_vectors = true;
}

bool is_along_rows(const Attributes& attributes, size_t rank) {
  const int64_t axis = attributes.integer("axis", -1);
  return rank > 0 && (axis == -1 || axis == static_cast<int64_t>(rank) - 1);
}

OperatorRow along_rows(OperatorRow row) {
  row.is_softmax = is_along_rows;
  return row;
}

OperatorRow softmax(std::string_view name, SoftmaxForm form, DTypeSet dtypes) {
  return {.name = name,
          .skeleton = Skeleton::reduce,
          .schema = {.inputs = {value("x", dtypes)}, .outputs = {value("y", dtypes)}, .attributes = {integer("axis", -1)}, .min_rank = 1},
          .shape = shape_of_softmax,
          .lower = lower_softmax,
          .form = form,
          .strides = RowStrides::packed,
          .cut = cut_beside_axis,
          .narrow_inputs = 1};
}

}  // namespace

Rows normalization_rows() {
  const auto floats = [](std::string_view name) { return value(name, kFloats); };
  const std::vector<ValueRole> x{floats("x")}, y{floats("y")}, scaled{floats("x"), floats("scale"), floats("b")};
  const std::vector<ValueRole> with_statistics{floats("x"), floats("scale"), floats("b"), floats("mean"), floats("variance")};
  return {along_rows(softmax("Softmax", kSoftmax, kReals)),
          softmax("LogSoftmax", kLogSoftmax, kReals),
          {.name = "InstanceNormalization",
           .skeleton = Skeleton::reduce,
           .schema = {.inputs = scaled, .outputs = y, .attributes = {real("epsilon", 1e-5)}, .min_rank = 3},
           .shape = shape_of_channel_norm<3>,
           .lower = lower_instance_norm,
           .pack = pack_instance_norm,
           .strides = RowStrides::image,
           .cut = cut_instance_norms,
           .narrow_inputs = 1,
           .stores_either = true,
           .epilogue = true,
           .residual = [](const Attributes&, const TensorDesc&) { return true; }},
          {.name = "BatchNormalization",
           .skeleton = Skeleton::map,
           .schema = {.inputs = with_statistics,
                      .outputs = y,
                      .attributes = {real("epsilon", 1e-5),
                                     real("momentum", 0.9),
                                     {"training_mode", AttributeKind::integer, int64_t{0}, false, {int64_t{0}}}},
                      .min_rank = 2},
           .shape = shape_of_channel_norm<5>,
           .lower = lower_batch_norm,
           .pack = pack_batch_norm,
           .strides = RowStrides::image,
           .cut = cut_batch_norms,
           .narrow_inputs = 1,
           .stores_either = true,
           .epilogue = true},
          {.name = "LayerNormalization",
           .skeleton = Skeleton::reduce,
           .schema = {.inputs = {floats("x"), floats("scale"), optional_value("b", kFloats)},
                      .outputs = {floats("y"), optional_value("mean", kFloats), optional_value("inv_std_dev", kFloats)},
                      .attributes = {integer("axis", -1), real("epsilon", 1e-5), integer("stash_type", 1)},
                      .min_rank = 1},
           .shape = shape_of_layer_norm,
           .lower = lower_layer_norm,
           .form = kCentredNorm,
           .pack = pack_layer_norm,
           .strides = RowStrides::packed,
           .cut = cut_before_axis,
           .narrow_inputs = 1,
           .stores_either = true,
           .epilogue = true},
          {.name = "RMSNormalization",
           .skeleton = Skeleton::reduce,
           .schema = {.inputs = {floats("x"), floats("scale")},
                      .outputs = y,
                      .attributes = {integer("axis", -1), real("epsilon", 1e-5), integer("stash_type", 1)},
                      .min_rank = 1},
           .shape = shape_of_layer_norm,
           .lower = lower_layer_norm,
           .form = kPlainNorm,
           .pack = pack_layer_norm,
           .strides = RowStrides::packed,
           .cut = cut_before_axis,
           .narrow_inputs = 1,
           .stores_either = true,
           .epilogue = true},
          softmax("Hardmax", kHardmax, kFloats),
          {.name = "GroupNormalization",
           .skeleton = Skeleton::reduce,
           .schema = {.inputs = {floats("x"), floats("scale"), floats("bias")},
                      .outputs = y,
                      .attributes = {real("epsilon", 1e-5), required("num_groups", AttributeKind::integer), integer("stash_type", 1)},
                      .min_rank = 2},
           .shape = shape_of_group_norm,
           .lower = lower_group_norm,
           .pack = pack_instance_norm,
           .strides = RowStrides::packed,
           .cut = cut_group_norms,
           .narrow_inputs = 1,
           .stores_either = true,
           .epilogue = true},
          {.name = "MeanVarianceNormalization",
           .skeleton = Skeleton::reduce,
           .schema =
               {.inputs = x, .outputs = y, .attributes = {{"axes", AttributeKind::integers, std::vector<int64_t>{0, 2, 3}}}, .min_rank = 1},
           .shape = shape_over_axes,
           .lower = lower_mean_variance_norm,
           .strides = RowStrides::packed,
           .cut = cut_beside_listed,
           .epilogue = true},
          {.name = "LpNormalization",
           .skeleton = Skeleton::reduce,
           .schema = {.inputs = x,
                      .outputs = y,
                      .attributes = {integer("axis", -1), {"p", AttributeKind::integer, int64_t{2}, false, {int64_t{1}, int64_t{2}}}},
                      .min_rank = 1},
           .shape = shape_of_softmax,
           .lower = lower_lp_norm,
           .strides = RowStrides::packed,
           .cut = cut_beside_axis,
           .epilogue = true},
          {.name = "LRN",
           .skeleton = Skeleton::window,
           .schema = {.inputs = x,
                      .outputs = y,
                      .attributes = {required("size", AttributeKind::integer), real("alpha", 1e-4), real("beta", 0.75), real("bias", 1)},
                      .min_rank = 2},
           .shape = shape_of_lrn,
           .lower = lower_lrn,
           .strides = RowStrides::packed,
           .cut = cut_beside_channels,
           .epilogue = true}};
}

}  // namespace pumice
