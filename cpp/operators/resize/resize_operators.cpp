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
  return node.host_values(i).as_double();
}

void shape_of_resize(ShapeContext& node) {
  const std::string mode = node.attributes().text("mode");
  if (mode == "nearest" && node.attributes().integer("antialias") != 0) node.fail("mode 'nearest' has no antialias");
  const bool has_sizes = node.has(3) && node.input(3).elements() > 0;
  const auto axes = compute_resize_axes(node.node(), node.attributes(), node.input(0).shape, get_host_reals(node, 1),
                                        get_host_reals(node, 2), has_sizes ? node.host_integers(3) : std::vector<int64_t>());
  Shape y;
  for (const ResizeAxis& axis : axes) y.push_back(axis.size);
  node.output(0, node.input(0).dtype, y);
}

void shape_of_grid_sample(ShapeContext& node) {
  const Shape &x = node.input(0).shape, &grid = node.input(1).shape;
  const size_t axes = x.size() - 2;
  if (grid.size() != x.size() || grid[0] != x[0] || grid.back() != static_cast<int64_t>(axes))
    node.fail("a grid of " + to_string(grid) + " for a tensor of " + to_string(x) + "; expected as many images, places of rank " +
              std::to_string(axes) + " and a last axis of " + std::to_string(axes));
  Shape y(grid.begin(), grid.end() - 1);
  y.insert(y.begin() + 1, x[1]);
  for (size_t i = 2; i < x.size(); ++i)
    if (x[i] == 0 && element_count(y) > 0) node.fail("axis " + std::to_string(i) + " has no elements to take samples of");
  node.output(0, node.input(0).dtype, y);
}

// Resize can be split along axes with a scale of 1.
void split_resize(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const bool by_sizes = node.host(3) && node.host(3)->desc.elements() > 0, has_axes = node.attributes->has("axes");
  if (by_sizes || has_axes || !node.host(2) || node.attributes->text("coordinate_transformation_mode") == "tf_crop_and_resize") return;
  const std::vector<double> scales = node.host(2)->as_double();
  split_all_but(node, axes, [&](int axis) { return scales.at(static_cast<size_t>(axis)) != 1; });
}

void split_grid_sample(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const TensorDesc& grid = node.input(1);
  split_batch(node, axes);
  axes.back().inputs[1] = 0;
  axes.push_back(make_split_axis(node, 1));
  for (int axis = 1; axis + 1 < grid.rank(); ++axis)
    axes.push_back({grid.shape[static_cast<size_t>(axis)], {kNotSplit, axis}, {axis + 1}, {}});
}

}  // namespace

OperatorRows resize_operators() {
  constexpr DTypeSet regions = kFloats | set_of(DType::float64);
  return {{.name = "Resize",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {value("x", kAny), optional_value("roi", regions), optional_value("scales", kFloats),
                                 optional_value("sizes", kInt64)},
                      .outputs = {value("y", kAny)},
                      .attributes = {integer("antialias", 0), optional("axes", AttributeKind::integers),
                                     choice("coordinate_transformation_mode", "half_pixel",
                                            {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                                             "tf_crop_and_resize", "tf_half_pixel_for_nn"}),
                                     real("cubic_coeff_a", -0.75), integer("exclude_outside", 0), real("extrapolation_value", 0),
                                     choice("keep_aspect_ratio_policy", "stretch", {"stretch", "not_larger", "not_smaller"}),
                                     choice("mode", "nearest", {"nearest", "linear", "cubic"}),
                                     choice("nearest_mode", "round_prefer_floor",
                                            {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})},
                      .min_rank = 1},
           .shape = shape_of_resize,
           .lower = lower_resize,
           .host_inputs = input_bits(1, 2, 3),
           .split = split_resize},
          {.name = "GridSample",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {value("x", kFloats, 'T'), value("grid", kFloats, 'T')},
                      .outputs = {value("y", kFloats)},
                      .attributes = {integer("align_corners", 0), choice("mode", "linear", {"linear", "nearest", "cubic"}),
                                     choice("padding_mode", "zeros", {"zeros", "border", "reflection"})},
                      .min_rank = 3,
                      .max_rank = 5},
           .shape = shape_of_grid_sample,
           .lower = lower_grid_sample,
           .split = split_grid_sample}};
}

}  // namespace pumice
