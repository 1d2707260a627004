// Parts of images: regions of interest, blocks, and what a kernel with moving elements meets.
#include "operators/geometry/index_bounds.h"
#include "operators/geometry/window_geometry.h"
#include "operators/row/families.h"
#include "operators/row/row_parts.h"

namespace pumice {
namespace {

void check_rois(const ShapeContext& node, int64_t numbers) {
  const Shape& rois = node.input(1).shape;
  if (rois.size() != 2 || rois[1] != numbers)
    node.fail("regions of shape [regions, " + std::to_string(numbers) + "] expected; given " + to_string(rois));
}

void put_regions(ShapeContext& node, int64_t height, int64_t width) {
  if (height < 1 || width < 1) node.fail("regions of " + std::to_string(height) + " x " + std::to_string(width) + " cells");
  node.output(0, node.input(0).dtype, {node.input(1).shape[0], node.input(0).shape[1], height, width});
}

void shape_of_roi_align(ShapeContext& node) {
  check_rois(node, 4);
  check_vector(node, 2, node.input(1).shape[0], "batch indices");
  if (node.attributes().integer("sampling_ratio") < 0) node.fail("a 'sampling_ratio' of at least 0 expected");
  put_regions(node, node.attributes().integer("output_height"), node.attributes().integer("output_width"));
}

void shape_of_roi_pool(ShapeContext& node) {
  check_rois(node, 5);
  const auto cells = node.attributes().integers("pooled_shape");
  if (cells.size() != 2) node.fail("two numbers as 'pooled_shape' expected; given " + to_string(cells));
  put_regions(node, cells[0], cells[1]);
}

void shape_of_columns_to_image(ShapeContext& node) {
  const Shape &x = node.input(0).shape, image = node.host_integers(1), block = node.host_integers(2);
  if (image.size() != block.size() || image.empty() || image.size() > 4)
    node.fail("blocks of " + to_string(block) + " in an image of " + to_string(image) + "; 1 to 4 sizes of both expected");
  Shape whole = {1, 1}, kernel = {1, 1};
  whole.insert(whole.end(), image.begin(), image.end());
  kernel.insert(kernel.end(), block.begin(), block.end());
  const auto blocks = conv_geometry(node.attributes(), node.node(), whole, kernel).output;
  if (x[1] % element_count(block) != 0 || x[2] != element_count(blocks))
    node.fail("[N, a multiple of " + std::to_string(element_count(block)) + ", " + std::to_string(element_count(blocks)) +
              "] expected; given " + to_string(x));
  Shape y = {x[0], x[1] / element_count(block)};
  y.insert(y.end(), image.begin(), image.end());
  node.output(0, node.input(0).dtype, y);
}

void shape_of_deform_columns(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const auto kernel = node.attributes().integers("kernel_shape");
  const int64_t groups = node.attributes().integer("offset_group");
  if (kernel.size() != 2) node.fail("two numbers as 'kernel_shape' expected; given " + to_string(kernel));
  if (groups < 1 || x[1] % groups != 0) node.fail(std::to_string(groups) + " groups of offsets for " + std::to_string(x[1]) + " channels");
  const auto output = conv_geometry(node.attributes(), node.node(), x, {1, x[1], kernel[0], kernel[1]}).output;
  const int64_t size = kernel[0] * kernel[1];
  const Shape offsets = {x[0], groups * 2 * size, output[0], output[1]}, mask = {x[0], groups * size, output[0], output[1]};
  if (node.input(1).shape != offsets)
    node.fail("offsets of shape " + to_string(offsets) + " expected; given " + to_string(node.input(1).shape));
  if (node.has(2) && node.input(2).shape != mask)
    node.fail("a mask of shape " + to_string(mask) + " expected; given " + to_string(node.input(2).shape));
  node.output(0, node.input(0).dtype, {x[0], x[1] * size, output[0] * output[1]});
}

}  // namespace

Rows region_rows() {
  const ValueRole x = value("x", kFloats, 'T'), rois = value("rois", kFloats, 'T'), y = value("y", kFloats);
  const auto list = [](std::string_view name) { return optional(name, AttributeKind::integers); };
  return {
      with_indices(indices_of_images, {"RoiAlign",
                                       Skeleton::window,
                                       {{x, rois, value("batch", kIndices)},
                                        {y},
                                        {choice("coordinate_transformation_mode", "half_pixel", {"half_pixel", "output_half_pixel"}),
                                         choice("mode", "avg", {"avg", "max"}), integer("output_height", 1), integer("output_width", 1),
                                         integer("sampling_ratio", 0), real("spatial_scale", 1)},
                                        4,
                                        4},
                                       shape_of_roi_align,
                                       lower_roi_align}),
      {"MaxRoiPool",
       Skeleton::window,
       {{x, rois}, {y}, {required("pooled_shape", AttributeKind::integers), real("spatial_scale", 1)}, 4, 4},
       shape_of_roi_pool,
       lower_roi_pool},
      {"Col2Im",
       Skeleton::window,
       {{value("x", kFloats), value("image", kInt64), value("block", kInt64)},
        {y},
        {list("dilations"), list("pads"), list("strides")},
        3,
        3},
       shape_of_columns_to_image,
       lower_columns_to_image,
       {},
       host_bits(1, 2)},
      {"pumice::DeformColumns",
       Skeleton::window,
       {{x, value("offset", kFloats, 'T'), optional_value("mask", kFloats, 'T')},
        {y},
        {list("dilations"), required("kernel_shape", AttributeKind::integers), list("pads"), list("strides"), integer("offset_group", 1)},
        4,
        4},
       shape_of_deform_columns,
       lower_deform_columns}};
}

}  // namespace pumice
