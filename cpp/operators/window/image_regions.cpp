// Lowers RoI pooling, Col2Im and the sampling of deformable convolutions.
#include <algorithm>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/strided_copy.h"
#include "operators/geometry/window_geometry.h"
#include "operators/table/operator_table.h"
#include "operators/window/lowerings.h"

namespace pumice {
namespace {

// Rows and columns that an invocation loops over.
struct SampleLoopSizes {
  int64_t rows, columns;
};

// Computes the output with a kernel based on include/contiguous_float_output.glsl, in one pass if an invocation may loop over all of
// `sizes`. On drivers with loop limits, each pass processes a range of rows, and a variadic operator combines the results. `set` also
// receives the first row of a pass and its row count.
void add_roi_passes(LowerContext& node, std::string_view shader, const Macros& macros, const SampleLoopSizes& sizes,
                    std::string_view combine, const std::function<void(StepBuilder&, int64_t first, int64_t count)>& set) {
  const int64_t rows = sizes.rows, columns = sizes.columns;
  const int64_t max_rows_per_pass = std::max<int64_t>(node.loop_limit().value_or(rows * (columns + 1)) / (columns + 1), 1);
  node.check_loop_limit(columns + 1);
  if (max_rows_per_pass >= rows)
    return add_contiguous_float_output(node, 0, shader, macros, [&](StepBuilder& step) { set(step, 0, std::max<int64_t>(rows, 1)); });
  const TensorDesc& y = node.output(0);
  if (y.elements() == 0) return;
  Macros pass_macros = macros;
  pass_macros.emplace_back("EPILOGUE(x)", "x");
  const auto kernel = node.kernel(shader, y.dtype, pass_macros);
  CompositeLowering composition(node);
  std::vector<TensorOperand> partials;
  for (int64_t first = 0; first < rows; first += max_rows_per_pass) {
    partials.push_back(composition.allocate_scratch(y.dtype, y.shape));
    StepBuilder step(kernel);
    set(step.bind("y", partials.back().operand).set("elements", y.elements()), first, std::min(max_rows_per_pass, rows - first));
    node.add(step.set_threads(static_cast<uint64_t>(ceil_div(y.elements(), is_16bit_float(y.dtype) ? 2 : 1))).build());
  }
  composition.add_operator(combine, {}, partials, {y, node.output_operand(0)}, true);
}

constexpr int64_t kMaxSamples = 4096;  // maximum number of samples per axis, which protects against hostile files

// Returns the maximum number of a cell's samples on an axis that are inside the image, plus a few that the kernel tests.
int64_t get_max_samples(int64_t samples, int64_t size) {
  constexpr int64_t kMargin = 8;
  return samples > 0 ? samples : 2 * size + kMargin;  // 0: one per element, so over half an element apart
}

}  // namespace

void lower_roi_align(LowerContext& node) {
  const Shape &x = node.input(0).shape, &y = node.output(0).shape;
  const Attributes& node_attributes = *node.attributes;
  const bool is_int64 = node.input(2).dtype == DType::int64, is_clamped = node.row->form == kClampedRoiAlign;
  const bool is_mean = node_attributes.text("mode", "avg") == "avg";
  const Macros macros = {
      {"MEAN", is_mean ? "1" : "0"},
      {"HALF_PIXEL", node_attributes.text("coordinate_transformation_mode", "output_half_pixel") == "half_pixel" ? "1" : "0"},
      {"CLAMP", is_clamped ? "1" : "0"},
      {"LEVELS", std::to_string(node_attributes.integer("weight_levels", 0)) + ".0"},
      {"BATCH", is_int64 ? "uvec2" : "uint"},
      {"INDEX(v)", is_int64 ? "((v).y == 0u ? (v).x : 0xffffffffu)" : "(v)"}};
  const Operand image = get_contiguous_input(node, 0), rois = get_contiguous_input(node, 1), batch = get_contiguous_input(node, 2);
  const auto ratios = node_attributes.has("sampling_ratios") ? node_attributes.integers("sampling_ratios")
                                                             : std::vector(2, node_attributes.integer("sampling_ratio", 0));
  const int64_t down = ratios[0], across = ratios[1];
  if (std::max(down, across) > kMaxSamples)
    throw UnsupportedError("node '" + std::string(node.node) + "': a sampling_ratio of " + std::to_string(std::max(down, across)) +
                           "; at most " + std::to_string(kMaxSamples) + " samples are taken on an axis of a cell");
  const std::string_view combine = is_mean ? "Sum" : "Max";
  const auto set = [&](StepBuilder& step, int64_t first, int64_t count) {
    step.bind("x", image).bind("rois", rois).bind("batch", batch).set("first_row", first).set("max_rows", count);
    step.set("images", x[0]).set("channels", x[1]).set("rows", x[2]).set("columns", x[3]).set("height", y[2]).set("width", y[3]);
    step.set("samples_down", down).set("samples_across", across).set("scale", node_attributes.real("spatial_scale", 1));
  };
  add_roi_passes(node, "roi_align.comp", macros, {get_max_samples(down, x[2]), get_max_samples(across, x[3])}, combine, set);
}

void lower_roi_pool(LowerContext& node) {
  const Shape &x = node.input(0).shape, &y = node.output(0).shape;
  const Operand image = get_contiguous_input(node, 0), rois = get_contiguous_input(node, 1);
  add_roi_passes(node, "roi_pool.comp", {}, {x[2], x[3]}, "Max", [&](StepBuilder& step, int64_t first, int64_t count) {
    step.bind("x", image).bind("rois", rois).set("first_row", first).set("end_row", first + count);
    step.set("images", x[0]).set("channels", x[1]).set("rows", x[2]).set("columns", x[3]).set("height", y[2]).set("width", y[3]);
    step.set("scale", node.attributes->real("spatial_scale"));
  });
}

void lower_col2im(LowerContext& node) {
  const Shape &x = node.input(0).shape, &y = node.output(0).shape;
  const Shape image(y.begin() + 2, y.end()), block = node.host_tensor(2)->as_int64();
  Shape kernel = {1, 1};
  kernel.insert(kernel.end(), block.begin(), block.end());
  const WindowGeometry window = compute_conv_geometry(*node.attributes, node.node, y, kernel);
  node.check_loop_limit(element_count(block) * static_cast<int64_t>(image.size()));
  add_contiguous_float_output(node, 0, "col2im.comp", {{"AXES", std::to_string(image.size())}}, [&](StepBuilder& step) {
    step.bind("x", get_contiguous_input(node, 0)).set("block_elements", element_count(block)).set("blocks", x[2]);
    step.set("size", image).set("block", block).set("count", window.output).set("stride", window.strides);
    step.set("pad", window.pads_begin).set("dilation", window.dilations);
  });
}

void lower_deform_im2col(LowerContext& node) {
  const Shape& x = node.input(0).shape;
  const auto kernel = node.attributes->integers("kernel_shape");
  const WindowGeometry window = compute_conv_geometry(*node.attributes, node.node, x, {1, x[1], kernel[0], kernel[1]});
  add_contiguous_float_output(node, 0, "deform_im2col.comp", {{"MASK", node.has_input(2) ? "1" : "0"}}, [&](StepBuilder& step) {
    step.bind("x", get_contiguous_input(node, 0)).bind("offset", get_contiguous_input(node, 1));
    if (node.has_input(2)) step.bind("mask", get_contiguous_input(node, 2));
    step.set("channels", x[1]).set("rows", x[2]).set("columns", x[3]).set("groups", node.attributes->integer("offset_group"));
    step.set("kernel_h", kernel[0]).set("kernel_w", kernel[1]).set("height", window.output[0]).set("width", window.output[1]);
    step.set("stride_y", window.strides[0]).set("stride_x", window.strides[1]);
    step.set("pad_y", window.pads_begin[0]).set("pad_x", window.pads_begin[1]);
    step.set("dilation_y", window.dilations[0]).set("dilation_x", window.dilations[1]);
  });
}

}  // namespace pumice
