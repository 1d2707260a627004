// Softmax and the normalisations.
#include <algorithm>

#include "core/error.h"
#include "operators/row/families.h"
#include "operators/row/row_parts.h"

namespace pumice {
namespace {

void shape_of_softmax(ShapeContext& node) {
  checked_axis(node, node.attributes().integer("axis", -1), node.input(0).shape.size());
  shape_like_input(node);
}

// One value per channel in each of the inputs after the first.
void shape_of_channel_norm(ShapeContext& node) {
  if (node.input(0).rank() < 2) node.fail("input 0 has no channels: given " + to_string(node.input(0).shape));
  for (size_t i = 1; i < node.input_count(); ++i) check_vector(node, i, node.input(0).shape[1], "a value for each channel");
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

// One scale and bias for each channel. Nodes of operator sets before 21, which have them for each group, are brought into this form.
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

}  // namespace

Rows normalization_rows() {
  const auto floats = [](std::string_view name) { return value(name, kFloats); };
  const std::vector<ValueRole> x{floats("x")}, y{floats("y")}, scaled{floats("x"), floats("scale"), floats("b")};
  const std::vector<ValueRole> with_statistics{floats("x"), floats("scale"), floats("b"), floats("mean"), floats("variance")};
  return {{"Softmax",
           Skeleton::reduce,
           {{value("x", kReals)}, {value("y", kReals)}, {integer("axis", -1)}, 1},
           shape_of_softmax,
           lower_softmax},
          {"LogSoftmax",
           Skeleton::reduce,
           {{value("x", kReals)}, {value("y", kReals)}, {integer("axis", -1)}, 1},
           shape_of_softmax,
           lower_softmax},
          {"InstanceNormalization",
           Skeleton::reduce,
           {scaled, y, {real("epsilon", 1e-5)}, 3},
           shape_of_channel_norm,
           lower_instance_norm,
           {},
           0,
           pack_instance_norm},
          {"BatchNormalization",
           Skeleton::map,
           {with_statistics,
            y,
            {real("epsilon", 1e-5), real("momentum", 0.9), {"training_mode", AttributeKind::integer, int64_t{0}, false, {int64_t{0}}}},
            2},
           shape_of_channel_norm,
           lower_batch_norm,
           {},
           0,
           pack_batch_norm},
          {"LayerNormalization",
           Skeleton::reduce,
           {{floats("x"), floats("scale"), optional_value("b", kFloats)},
            {floats("y"), optional_value("mean", kFloats), optional_value("inv_std_dev", kFloats)},
            {integer("axis", -1), real("epsilon", 1e-5), integer("stash_type", 1)},
            1},
           shape_of_layer_norm,
           lower_layer_norm,
           {},
           0,
           pack_layer_norm},
          {"RMSNormalization",
           Skeleton::reduce,
           {{floats("x"), floats("scale")}, y, {integer("axis", -1), real("epsilon", 1e-5), integer("stash_type", 1)}, 1},
           shape_of_layer_norm,
           lower_layer_norm,
           {},
           0,
           pack_layer_norm},
          {"Hardmax", Skeleton::reduce, {x, y, {integer("axis", -1)}, 1}, shape_of_softmax, lower_softmax},
          {"GroupNormalization",
           Skeleton::reduce,
           {{floats("x"), floats("scale"), floats("bias")},
            y,
            {real("epsilon", 1e-5), required("num_groups", AttributeKind::integer), integer("stash_type", 1)},
            2},
           shape_of_group_norm,
           lower_group_norm,
           {},
           0,
           pack_instance_norm},
          {"MeanVarianceNormalization",
           Skeleton::reduce,
           {x, y, {{"axes", AttributeKind::integers, std::vector<int64_t>{0, 2, 3}}}, 1},
           shape_over_axes,
           lower_mean_variance_norm},
          {"LpNormalization",
           Skeleton::reduce,
           {x, y, {integer("axis", -1), {"p", AttributeKind::integer, int64_t{2}, false, {int64_t{1}, int64_t{2}}}}, 1},
           shape_of_softmax,
           lower_lp_norm},
          {"LRN",
           Skeleton::window,
           {x, y, {required("size", AttributeKind::integer), real("alpha", 1e-4), real("beta", 0.75), real("bias", 1)}, 2},
           shape_of_lrn,
           lower_lrn}};
}

}  // namespace pumice
