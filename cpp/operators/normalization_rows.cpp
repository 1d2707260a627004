// Softmax and the normalisations.
#include "core/error.h"
#include "operators/families.h"
#include "operators/row_parts.h"

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
}

}  // namespace

Rows normalization_rows() {
  const auto floats = [](std::string_view name) { return value(name, kFloats); };
  const std::vector<ValueRole> x{floats("x")}, y{floats("y")}, scaled{floats("x"), floats("scale"), floats("b")};
  const std::vector<ValueRole> with_statistics{floats("x"), floats("scale"), floats("b"), floats("mean"), floats("variance")};
  return {{"Softmax", Skeleton::reduce, {x, y, {integer("axis", -1)}, 1}, shape_of_softmax, lower_softmax},
          {"LogSoftmax", Skeleton::reduce, {x, y, {integer("axis", -1)}, 1}, shape_of_softmax, lower_softmax},
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
            {floats("y"), unsupported_value("mean"), unsupported_value("inv_std_dev")},
            {integer("axis", -1), real("epsilon", 1e-5), integer("stash_type", 1)},
            1},
           shape_of_layer_norm,
           lower_layer_norm,
           {},
           0,
           pack_layer_norm}};
}

}  // namespace pumice
