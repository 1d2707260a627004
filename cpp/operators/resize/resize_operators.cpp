// Operator rows of Resize in all modes, and of GridSample.
#include "core/error.h"
#include "operators/common/split_axes.h"
#include "operators/geometry/resize_geometry.h"
#include "operators/resize/lowerings.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

std::vector<double> get_host_reals(const ShapeContext& node, size_t i) {
  if (!node.has(i) || node.input(i).elements() == 0) return {};
  return node.get_host_values(i).as_double();
}

void infer_resize_shape(ShapeContext& node) {
  const std::string mode = node.attributes().text("mode");
  if (mode == "nearest" && node.attributes().integer("antialias") != 0) node.fail("mode 'nearest' does not support antialias");
  const bool has_sizes = node.has(3) && node.input(3).elements() > 0;
  const auto axes = compute_resize_axes(node.node(), node.attributes(), node.input(0).shape, get_host_reals(node, 1),
                                        get_host_reals(node, 2), has_sizes ? node.get_host_integers(3) : std::vector<int64_t>());
  Shape y;
  for (const ResizeAxis& axis : axes) y.push_back(axis.size);
  node.output(0, node.input(0).dtype, y);
}

void infer_grid_sample_shape(ShapeContext& node) {
  const Shape &x = node.input(0).shape, &grid = node.input(1).shape;
  const size_t axes = x.size() - 2;
  if (grid.size() != x.size() || grid[0] != x[0] || grid.back() != static_cast<int64_t>(axes))
    node.fail("a grid of " + to_string(grid) + " for a tensor of " + to_string(x) + "; expected as many images, positions of rank " +
              std::to_string(axes) + " and a last axis of " + std::to_string(axes));
  Shape y(grid.begin(), grid.end() - 1);
  y.insert(y.begin() + 1, x[1]);
  for (size_t i = 2; i < x.size(); ++i)
    if (x[i] == 0 && element_count(y) > 0) node.fail("axis " + std::to_string(i) + " has no elements to sample");
  node.output(0, node.input(0).dtype, y);
}

// Resize can be split along axes with a scale of 1.
void append_resize_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const bool by_sizes = node.host_tensor(3) && node.host_tensor(3)->desc.elements() > 0, has_axes = node.attributes->has("axes");
  if (by_sizes || has_axes || !node.host_tensor(2) || node.attributes->text("coordinate_transformation_mode") == "tf_crop_and_resize")
    return;
  const std::vector<double> scales = node.host_tensor(2)->as_double();
  append_axes_except(node, axes, [&](int axis) { return scales.at(static_cast<size_t>(axis)) != 1; });
}

void append_grid_sample_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const TensorDesc& grid = node.input(1);
  append_batch_axis(node, axes);
  axes.back().inputs[1] = 0;
  axes.push_back(make_split_axis(node, 1));
  for (int axis = 1; axis + 1 < grid.rank(); ++axis)
    axes.push_back({grid.shape[static_cast<size_t>(axis)], {kNotSplit, axis}, {axis + 1}, {}});
}

}  // namespace

OperatorRows define_resize_operators() {
  constexpr DTypeSet regions = kFloats | make_dtype_set(DType::float64);
  return {
      {.name = "Resize",
       .skeleton = KernelKind::index_map,
       .schema = {.inputs = {value_role("x", kAny), optional_role("roi", regions), optional_role("scales", kFloats),
                             optional_role("sizes", kInt64)},
                  .outputs = {value_role("y", kAny)},
                  .attributes = {integer_attribute("antialias", 0), optional_attribute("axes", AttributeKind::integers),
                                 choice_attribute("coordinate_transformation_mode", "half_pixel",
                                                  {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                                                   "asymmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn"}),
                                 real_attribute("cubic_coeff_a", -0.75), integer_attribute("exclude_outside", 0),
                                 real_attribute("extrapolation_value", 0),
                                 choice_attribute("keep_aspect_ratio_policy", "stretch", {"stretch", "not_larger", "not_smaller"}),
                                 choice_attribute("mode", "nearest", {"nearest", "linear", "cubic"}),
                                 choice_attribute("nearest_mode", "round_prefer_floor",
                                                  {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})},
                  .min_rank = 1},
       .shape = infer_resize_shape,
       .lower = lower_resize,
       .host_inputs = make_input_mask(1, 2, 3),
       .split = append_resize_split_axes},
      {.name = "GridSample",
       .skeleton = KernelKind::index_map,
       .schema = {.inputs = {value_role("x", kFloats, 'T'), value_role("grid", kFloats, 'T')},
                  .outputs = {value_role("y", kFloats)},
                  .attributes = {integer_attribute("align_corners", 0), choice_attribute("mode", "linear", {"linear", "nearest", "cubic"}),
                                 choice_attribute("padding_mode", "zeros", {"zeros", "border", "reflection"})},
                  .min_rank = 3,
                  .max_rank = 5},
       .shape = infer_grid_sample_shape,
       .lower = lower_grid_sample,
       .split = append_grid_sample_split_axes}};
}

}  // namespace pumice
