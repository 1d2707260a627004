// Operator rows on image regions: regions of interest, col2im blocks and deformable convolution.
#include <algorithm>

#include "operators/common/split_axes.h"
#include "operators/geometry/index_bounds.h"
#include "operators/geometry/window_geometry.h"
#include "operators/table/row_builders.h"
#include "operators/window/lowerings.h"

namespace pumice {
namespace {

void check_rois(const ShapeContext& node, int64_t num_columns) {
  const Shape& rois = node.input(1).shape;
  if (rois.size() != 2 || rois[1] != num_columns)
    node.fail("expected regions of shape [regions, " + std::to_string(num_columns) + "]; given " + to_string(rois));
}

void set_roi_output_shape(ShapeContext& node, int64_t height, int64_t width) {
  if (height < 1 || width < 1) node.fail("regions of " + std::to_string(height) + " x " + std::to_string(width) + " cells");
  node.output(0, node.input(0).dtype, {node.input(1).shape[0], node.input(0).shape[1], height, width});
}

void infer_roi_align_shape(ShapeContext& node) {
  check_rois(node, 4);
  check_vector(node, 2, node.input(1).shape[0], "batch indices");
  if (node.attributes().integer("sampling_ratio") < 0) node.fail("expected a non-negative 'sampling_ratio'");
  set_roi_output_shape(node, node.attributes().integer("output_height"), node.attributes().integer("output_width"));
}

void infer_clamped_roi_align_shape(ShapeContext& node) {
  check_rois(node, 4);
  check_vector(node, 2, node.input(1).shape[0], "batch indices");
  const auto ratios = node.attributes().integers("sampling_ratios");
  if (ratios.size() != 2 || std::min(ratios[0], ratios[1]) < 0)
    node.fail("expected two non-negative numbers as 'sampling_ratios'; given " + to_string(ratios));
  set_roi_output_shape(node, node.attributes().integer("output_height"), node.attributes().integer("output_width"));
}

void infer_roi_pool_shape(ShapeContext& node) {
  check_rois(node, 5);
  const auto cells = node.attributes().integers("pooled_shape");
  if (cells.size() != 2) node.fail("expected two numbers as 'pooled_shape'; given " + to_string(cells));
  set_roi_output_shape(node, cells[0], cells[1]);
}

void infer_col2im_shape(ShapeContext& node) {
  const Shape &x = node.input(0).shape, image = node.get_host_integers(1), block = node.get_host_integers(2);
  if (image.size() != block.size() || image.empty() || image.size() > 4)
    node.fail("blocks of " + to_string(block) + " in an image of " + to_string(image) + "; expected 1 to 4 sizes of both");
  Shape image_shape = {1, 1}, kernel = {1, 1};
  image_shape.insert(image_shape.end(), image.begin(), image.end());
  kernel.insert(kernel.end(), block.begin(), block.end());
  const auto blocks = compute_conv_geometry(node.attributes(), node.node(), image_shape, kernel).output;
  if (x[1] % element_count(block) != 0 || x[2] != element_count(blocks))
    node.fail("expected [N, a multiple of " + std::to_string(element_count(block)) + ", " + std::to_string(element_count(blocks)) +
              "]; given " + to_string(x));
  Shape y = {x[0], x[1] / element_count(block)};
  y.insert(y.end(), image.begin(), image.end());
  node.output(0, node.input(0).dtype, y);
}

void infer_deform_im2col_shape(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const auto kernel = node.attributes().integers("kernel_shape");
  const int64_t groups = node.attributes().integer("offset_group");
  if (kernel.size() != 2) node.fail("expected two numbers as 'kernel_shape'; given " + to_string(kernel));
  if (groups < 1 || x[1] % groups != 0) node.fail(std::to_string(groups) + " groups of offsets for " + std::to_string(x[1]) + " channels");
  const auto output = compute_conv_geometry(node.attributes(), node.node(), x, {1, x[1], kernel[0], kernel[1]}).output;
  const int64_t size = kernel[0] * kernel[1];
  const Shape offsets = {x[0], groups * 2 * size, output[0], output[1]}, mask = {x[0], groups * size, output[0], output[1]};
  if (node.input(1).shape != offsets)
    node.fail("expected offsets of shape " + to_string(offsets) + "; given " + to_string(node.input(1).shape));
  if (node.has(2) && node.input(2).shape != mask)
    node.fail("expected a mask of shape " + to_string(mask) + "; given " + to_string(node.input(2).shape));
  node.output(0, node.input(0).dtype, {x[0], x[1] * size, output[0] * output[1]});
}

void append_roi_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  SplitAxis& rois = axes.emplace_back(node.input(1).shape[0], std::vector<int>(node.inputs.size(), 0), std::vector{0});
  rois.inputs[kData] = kNotSplit;
  axes.push_back(make_split_axis(node, 1));
}

void append_deform_im2col_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  append_batch_axis(node, axes);
  for (size_t i = 1; i < node.inputs.size(); ++i)
    if (node.has_input(i)) axes.back().inputs[i] = 0;
}

// Inputs: boxes [batch, count, 4], scores [batch, classes, count] in descending order, and the box index of each score.
void infer_nms_shape(ShapeContext& node) {
  const Shape &boxes = node.input(0).shape, &scores = node.input(1).shape;
  if (scores.size() != 3 || boxes[2] != 4 || boxes[0] != scores[0] || boxes[1] != scores[2])
    node.fail("scores of shape " + to_string(scores) + " for boxes of shape " + to_string(boxes) +
              "; expected [N, classes, M] for [N, M, 4]");
  if (node.input(2).shape != scores) node.fail("an order of shape " + to_string(node.input(2).shape) + " for " + to_string(scores));
  for (const size_t i : {3, 4, 5})
    if (node.has(i) && node.input(i).elements() != 1)
      node.fail("input " + std::to_string(i) + " must be one number; given a tensor of shape " + to_string(node.input(i).shape));
  const int64_t max_boxes = node.has(3) ? node.get_host_integer(3) : 0;
  node.output(0, DType::int32, {scores[0], scores[1], std::clamp<int64_t>(max_boxes, 0, scores[2])});
}

// Inputs: boxes [rows, classes, 4], scores [rows, classes], and the batch index of each row. Class 0 is the background.
void infer_soft_nms_shape(ShapeContext& node) {
  const Shape &boxes = node.input(0).shape, &scores = node.input(1).shape, &images = node.input(2).shape;
  if (scores.size() != 2 || scores[1] < 2 || boxes != Shape{scores[0], scores[1], 4} || images != Shape{scores[0]})
    node.fail("scores of shape " + to_string(scores) + " for boxes of shape " + to_string(boxes) + " in images of shape " +
              to_string(images) + "; expected [M, classes] for [M, classes, 4] in [M], of at least two classes");
  for (size_t i = 0; i < 4; ++i) node.output(i, DType::int32, {checked_mul(scores[0], scores[1] - 1, "boxes")});
}

}  // namespace

OperatorRows define_image_region_operators() {
  const ValueRole x = value_role("x", kFloats, 'T'), rois = value_role("rois", kFloats, 'T'), y = value_role("y", kFloats);
  const auto list = [](std::string_view name) { return optional_attribute(name, AttributeKind::integers); };
  return {{.name = "RoiAlign",
           .skeleton = KernelKind::window,
           .schema = {.inputs = {x, rois, value_role("batch", kIndices)},
                      .outputs = {y},
                      .attributes = {choice_attribute("coordinate_transformation_mode", "half_pixel", {"half_pixel", "output_half_pixel"}),
                                     choice_attribute("mode", "avg", {"avg", "max"}), integer_attribute("output_height", 1),
                                     integer_attribute("output_width", 1), integer_attribute("sampling_ratio", 0),
                                     real_attribute("spatial_scale", 1)},
                      .min_rank = 4,
                      .max_rank = 4},
           .shape = infer_roi_align_shape,
           .lower = lower_roi_align,
           .form = kOnnxRoiAlign,
           .indices = get_batch_index_bounds,
           .split = append_roi_split_axes,
           .epilogue = true},
          {.name = "pumice::ClampedRoiAlign",
           .skeleton = KernelKind::window,
           .schema = {.inputs = {x, rois, value_role("batch", kIndices)},
                      .outputs = {y},
                      .attributes = {integer_attribute("output_height", 1), integer_attribute("output_width", 1),
                                     required_attribute("sampling_ratios", AttributeKind::integers), integer_attribute("weight_levels", 0)},
                      .min_rank = 4,
                      .max_rank = 4},
           .shape = infer_clamped_roi_align_shape,
           .lower = lower_roi_align,
           .form = kClampedRoiAlign,
           .indices = get_batch_index_bounds,
           .rejects_indices = true,
           .split = append_roi_split_axes,
           .epilogue = true},
          {.name = "MaxRoiPool",
           .skeleton = KernelKind::window,
           .schema = {.inputs = {x, rois},
                      .outputs = {y},
                      .attributes = {required_attribute("pooled_shape", AttributeKind::integers), real_attribute("spatial_scale", 1)},
                      .min_rank = 4,
                      .max_rank = 4},
           .shape = infer_roi_pool_shape,
           .lower = lower_roi_pool,
           .indices = get_roi_batch_index_bounds,
           .split = append_roi_split_axes,
           .epilogue = true},
          {.name = "Col2Im",
           .skeleton = KernelKind::window,
           .schema = {.inputs = {value_role("x", kFloats), value_role("image", kInt64), value_role("block", kInt64)},
                      .outputs = {y},
                      .attributes = {list("dilations"), list("pads"), list("strides")},
                      .min_rank = 3,
                      .max_rank = 3},
           .shape = infer_col2im_shape,
           .lower = lower_col2im,
           .host_inputs = make_input_mask(1, 2),
           .split = append_batch_axis,
           .epilogue = true},
          {.name = "pumice::DeformColumns",
           .skeleton = KernelKind::window,
           .schema = {.inputs = {x, value_role("offset", kFloats, 'T'), optional_role("mask", kFloats, 'T')},
                      .outputs = {y},
                      .attributes = {list("dilations"), required_attribute("kernel_shape", AttributeKind::integers), list("pads"),
                                     list("strides"), integer_attribute("offset_group", 1)},
                      .min_rank = 4,
                      .max_rank = 4},
           .shape = infer_deform_im2col_shape,
           .lower = lower_deform_im2col,
           .split = append_deform_im2col_split_axes,
           .epilogue = true},
          {.name = "pumice::NMS",
           .skeleton = KernelKind::scan,
           .schema = {.inputs = {value_role("boxes", kFloats, 'T'), value_role("scores", kFloats, 'T'), value_role("order", kInt64),
                                 optional_role("most", kInt64), optional_role("overlap", kFloats), optional_role("least", kFloats)},
                      .outputs = {value_role("chosen", kInt32)},
                      .attributes = {integer_attribute("center_point_box", 0)},
                      .min_rank = 3,
                      .max_rank = 3},
           .shape = infer_nms_shape,
           .lower = lower_nms,
           .host_inputs = make_input_mask(3, 4, 5)},
          // Soft-NMS. Each output has a slot per selected row and class, ordered by batch item and class, then by descending score, with
          // zeros after the last one of a class. The outputs are: the score's index plus 1; its lowered score as float32 bits; the first
          // slot of its batch item; and the first slot of its class.
          {.name = "pumice::SoftNMS",
           .skeleton = KernelKind::scan,
           .schema = {.inputs = {value_role("boxes", kFloats, 'T'), value_role("scores", kFloats, 'T'), value_role("images", kInt32)},
                      .outputs = {value_role("chosen", kInt32), value_role("lowered", kInt32), value_role("image_first", kInt32),
                                  value_role("class_first", kInt32)},
                      .attributes = {choice_attribute("method", "hard", {"hard", "linear", "gaussian"}), integer_attribute("most", -1),
                                     real_attribute("threshold", 0), real_attribute("least", 0), real_attribute("overlap", 0),
                                     real_attribute("sigma", 1)},
                      .min_rank = 3,
                      .max_rank = 3},
           .shape = infer_soft_nms_shape,
           .lower = lower_soft_nms,
           .indices = get_nonnegative_index_bounds,
           .rejects_indices = true,
           .strides = StrideSupport::any_in}};
}

}  // namespace pumice
