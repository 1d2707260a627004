// Regions of interest, blocks of images, and the places of deformable convolutions.
#include "operators/geometry/window_geometry.h"
#include "operators/means/strided.h"
#include "operators/row/families.h"
#include "operators/row/operator_table.h"

namespace pumice {

void lower_roi_align(LowerContext& node) {
  const Shape &x = node.input(0).shape, &y = node.output(0).shape;
  const Attributes& given = *node.attributes;
  const bool is_wide = node.input(2).dtype == DType::int64;
  const Macros macros = {{"MEAN", given.text("mode") == "avg" ? "1" : "0"},
                         {"HALF_PIXEL", given.text("coordinate_transformation_mode") == "half_pixel" ? "1" : "0"},
                         {"BATCH", is_wide ? "uvec2" : "uint"},
                         {"INDEX(v)", is_wide ? "((v).y == 0u ? (v).x : 0xffffffffu)" : "(v)"}};
  add_each_float(node, 0, "roi_align.comp", macros, [&](StepBuilder& step) {
    step.bind("x", dense_input(node, 0)).bind("rois", dense_input(node, 1)).bind("batch", dense_input(node, 2));
    step.set("images", x[0]).set("channels", x[1]).set("rows", x[2]).set("columns", x[3]).set("height", y[2]).set("width", y[3]);
    step.set("samples", given.integer("sampling_ratio")).set("scale", given.real("spatial_scale"));
  });
}

void lower_roi_pool(LowerContext& node) {
  const Shape &x = node.input(0).shape, &y = node.output(0).shape;
  add_each_float(node, 0, "roi_pool.comp", {}, [&](StepBuilder& step) {
    step.bind("x", dense_input(node, 0)).bind("rois", dense_input(node, 1));
    step.set("images", x[0]).set("channels", x[1]).set("rows", x[2]).set("columns", x[3]).set("height", y[2]).set("width", y[3]);
    step.set("scale", node.attributes->real("spatial_scale"));
  });
}

void lower_columns_to_image(LowerContext& node) {
  const Shape &x = node.input(0).shape, &y = node.output(0).shape;
  const Shape image(y.begin() + 2, y.end()), block = node.host(2)->as_int64();
  Shape kernel = {1, 1};
  kernel.insert(kernel.end(), block.begin(), block.end());
  const WindowGeometry window = conv_geometry(*node.attributes, node.node, y, kernel);
  node.check_loops(element_count(block) * static_cast<int64_t>(image.size()));
  add_each_float(node, 0, "columns_to_image.comp", {{"AXES", std::to_string(image.size())}}, [&](StepBuilder& step) {
    step.bind("x", dense_input(node, 0)).set("block_elements", element_count(block)).set("blocks", x[2]);
    step.set("size", image).set("block", block).set("count", window.output).set("stride", window.strides);
    step.set("pad", window.pads_begin).set("dilation", window.dilations);
  });
}

void lower_deform_columns(LowerContext& node) {
  const Shape& x = node.input(0).shape;
  const auto kernel = node.attributes->integers("kernel_shape");
  const WindowGeometry window = conv_geometry(*node.attributes, node.node, x, {1, x[1], kernel[0], kernel[1]});
  add_each_float(node, 0, "deform_columns.comp", {{"MASK", node.has_input(2) ? "1" : "0"}}, [&](StepBuilder& step) {
    step.bind("x", dense_input(node, 0)).bind("offset", dense_input(node, 1));
    if (node.has_input(2)) step.bind("mask", dense_input(node, 2));
    step.set("channels", x[1]).set("rows", x[2]).set("columns", x[3]).set("groups", node.attributes->integer("offset_group"));
    step.set("kernel_rows", kernel[0]).set("kernel_columns", kernel[1]).set("height", window.output[0]).set("width", window.output[1]);
    step.set("stride_y", window.strides[0]).set("stride_x", window.strides[1]);
    step.set("pad_y", window.pads_begin[0]).set("pad_x", window.pads_begin[1]);
    step.set("dilation_y", window.dilations[0]).set("dilation_x", window.dilations[1]);
  });
}

}  // namespace pumice
