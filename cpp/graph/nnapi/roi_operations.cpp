// Regions of interest: RoIAlign and RoI max pooling.
#include <algorithm>
#include <cmath>

#include "graph/nnapi/boxes.h"
#include "graph/nnapi/images.h"
#include "graph/nnapi/operations.h"
#include "graph/nnapi/recurrent_helpers.h"

namespace pumice::nnapi {
namespace {

constexpr size_t kHeight = 3, kWidth = 4, kRegionHeightStride = 5, kRegionWidthStride = 6;

// Returns the scale from box coordinates to elements of an axis.
double inverse_stride(const Operands& o, size_t i) {
  const auto& elements = o.facts()[i].elements;
  if (!elements) o.reject(i, "that is no constant");
  const double actual = elements->as_double().at(0);
  if (!(actual > 0)) o.fail(i, "N11.1", "a number above 0 expected; given " + std::to_string(actual));
  return static_cast<double>(1.0f / static_cast<float>(actual));
}

// Checks that corners are inside the image, if they are known now or at a call. `unit`: value of one integer step.
void check_corners(Operands& o, size_t height_axis, double unit) {
  const HostTensor* elements = o.elements(1);
  if (!elements) return;
  const auto corners = elements->as_double();
  const double scales[] = {inverse_stride(o, kRegionWidthStride), inverse_stride(o, kRegionHeightStride)};
  const std::optional<int64_t> sizes[] = {o.size(0, height_axis + 1), o.size(0, height_axis)};
  for (size_t k = 0; k < corners.size(); ++k) {
    const double at = corners[k] * unit * scales[k % 2];
    if (!(at >= 0) || (sizes[k % 2] && at > static_cast<double>(*sizes[k % 2])))
      o.fail(1, "N11.2", "corners on the image expected; given " + std::to_string(corners[k] * unit) + " in box " + std::to_string(k / 4));
  }
}

void check_rois(Operands& o, size_t layout) {
  o.expect_rank(0, 4);
  o.expect_rank(1, 2);
  o.expect_rank(2, 1);
  o.expect_size(1, 1, 4);
  expect_equal_sizes(o, {{1, 0}, {2, 0}}, "N11.1");
  for (const size_t i : {kHeight, kWidth})
    if (o.integer(i) < 1) o.fail(i, "N11.1", "a number above 0 expected; given " + std::to_string(o.integer(i)));
  for (const size_t i : {kRegionHeightStride, kRegionWidthStride}) inverse_stride(o, i);
  for (size_t axis = 0; axis < 4; ++axis)
    if (o.size(0, axis) == 0) o.fail(0, "N11.1", "sizes above 0 expected; given " + o.shape_text(0));
  check_boxes(o, 1);
  check_image_indices(o, 2, 0, "N11.2");
  check_corners(o, o.integer(layout) != 0 ? 2 : 1, o.dtype(1) == DType::uint16 ? static_cast<double>(kBoxScale) : 1);
}

void check_roi_align(Operands& o) {
  check_rois(o, 9);
  for (const size_t i : {7, 8})
    if (o.integer(i) < 0) o.fail(i, "N11.1", "a number of at least 0 expected; given " + std::to_string(o.integer(i)));
}

void check_roi_pooling(Operands& o) {
  check_rois(o, 7);
  reject_empty(o, "NG2");
}

// Corners in elements of the image, [boxes, 4].
ValueId scaled_corners(Expansion& e) {
  expect_box_type(e, 1, 0, "N11.1");
  expect_box_scale(e, 1);
  const double x = inverse_stride(e.rules(), kRegionWidthStride), y = inverse_stride(e.rules(), kRegionHeightStride);
  return e.add("Mul", {as_float32(e, 1), e.numbers({x, y, x, y}, DType::float32)});
}

// Features as float32 [images, channels, height, width]; quantized integers minus their zero point.
ValueId float_features(Expansion& e, bool is_nchw) {
  const ValueId x = to_nchw(e, e[0], is_nchw);
  if (!e.is_quantized(0)) return e.cast(x, DType::float32);
  return e.dequantized(x, {{1}, e.quantization(0).zero_point, {}});
}

void roi_align(Expansion& e) {
  const bool is_nchw = read_nchw_flag(e, 9);
  const Attributes attributes = with({{"output_height", e.integer(kHeight)},
                                      {"output_width", e.integer(kWidth)},
                                      {"sampling_ratios", std::vector{e.integer(7), e.integer(8)}},
                                      {"weight_levels", int64_t{e.is_quantized(0) ? 255 : 0}}});
  const ValueId corners = scaled_corners(e);
  const ValueId y = from_nchw(e, e.add("pumice::ClampedRoiAlign", {float_features(e, is_nchw), corners, e[2]}, attributes), is_nchw);
  if (!e.is_quantized(0)) return e.add_output(e.cast(y, e.dtype(0)));
  const double scale = static_cast<double>(e.quantization(0).scale[0]);
  e.add_real_output(e.add("Mul", {y, e.scalar(scale, DType::float32)}), 0);
}

// MaxRoiPool needs boxes [image, left, top, right, bottom]; the corners are whole numbers here.
void roi_pooling(Expansion& e) {
  const bool is_nchw = read_nchw_flag(e, 7);
  const ValueId corners = e.add("Floor", {e.add("Add", {scaled_corners(e), e.scalar(0.5, DType::float32)})});
  const ValueId image_indices = e.checked_indices(e[2], e[0], 0);  // integers here; cast below, since MaxRoiPool reads floats
  const ValueId images = e.add("Unsqueeze", {e.cast(image_indices, DType::float32), e.integers({1})});
  const ValueId boxes = e.add("Concat", {images, corners}, with({{"axis", int64_t{1}}}));
  const ValueId y = e.add("MaxRoiPool", {float_features(e, is_nchw), boxes},
                          with({{"pooled_shape", std::vector{e.integer(kHeight), e.integer(kWidth)}}}));
  const Quantization quantization = e.operand_quantization(0);
  if (!e.is_quantized(0)) return e.add_output(from_nchw(e, e.cast(y, e.dtype(0)), is_nchw));
  e.add_output(from_nchw(e, e.quantized(y, {{1}, quantization.zero_point, {}}, e.dtype(0)), is_nchw), quantization);
}

}  // namespace

Operations roi_operations() {
  constexpr DTypeSet reals = kFloat | kQuant, boxes = kFloat | set_of(DType::uint16);
  const auto form = [&](std::vector<Operand> more) {
    std::vector<Operand> inputs{tensor("x", reals), tensor("boxes", boxes),          tensor("batch_index", kInt),   scalar("height"),
                                scalar("width"),    scalar("height_stride", kFloat), scalar("width_stride", kFloat)};
    inputs.insert(inputs.end(), more.begin(), more.end());
    inputs.push_back(scalar("nchw", kTruth));
    return inputs;
  };
  return {
      {"nnapi::ROI_ALIGN",
       3,
       "The mean of samples between four neighbours in each cell of a box; as many as the cell is long where a ratio is 0.",
       form({scalar("height_ratio"), scalar("width_ratio")}),
       {tensor("y", reals)},
       roi_align,
       {},
       check_roi_align},
      {"nnapi::ROI_POOLING",
       3,
       "The largest element in each cell of a box, whose corners are rounded to whole elements.",
       form({}),
       {tensor("y", reals)},
       roi_pooling,
       {},
       check_roi_pooling},
  };
}

}  // namespace pumice::nnapi
