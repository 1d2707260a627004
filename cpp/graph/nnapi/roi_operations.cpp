// NNAPI ROI_ALIGN and ROI_POOLING.
#include <algorithm>
#include <cmath>

#include "graph/nnapi/boxes.h"
#include "graph/nnapi/images.h"
#include "graph/nnapi/operations.h"
#include "graph/nnapi/recurrent_helpers.h"

namespace pumice::nnapi {
namespace {

constexpr size_t kHeight = 3, kWidth = 4, kRegionHeightStride = 5, kRegionWidthStride = 6;

// Returns the factor that converts box coordinates to elements of the feature map.
double read_inverse_stride(const Operands& o, size_t i) {
  const auto& elements = o.facts()[i].elements;
  if (!elements) o.reject(i, "which is not a constant");
  const double actual = elements->as_double().at(0);
  if (!(actual > 0)) o.fail(i, "N11.1", "a positive number expected; given " + std::to_string(actual));
  return static_cast<double>(1.0f / static_cast<float>(actual));
}

// Checks that box corners are inside the image, if they are known. `unit`: coordinate value of one integer step.
void check_roi_corners(Operands& o, size_t height_axis, double unit) {
  const HostTensor* elements = o.known_elements(1);
  if (!elements) return;
  const auto corners = elements->as_double();
  const double scales[] = {read_inverse_stride(o, kRegionWidthStride), read_inverse_stride(o, kRegionHeightStride)};
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
    if (o.read_int(i) < 1) o.fail(i, "N11.1", "a positive number expected; given " + std::to_string(o.read_int(i)));
  for (const size_t i : {kRegionHeightStride, kRegionWidthStride}) read_inverse_stride(o, i);
  for (size_t axis = 0; axis < 4; ++axis)
    if (o.size(0, axis) == 0) o.fail(0, "N11.1", "positive sizes expected; given " + o.format_shape(0));
  check_boxes(o, 1);
  check_image_indices(o, 2, 0, "N11.2");
  check_roi_corners(o, o.read_int(layout) != 0 ? 2 : 1, o.dtype(1) == DType::uint16 ? static_cast<double>(kBoxScale) : 1);
}

void check_roi_align(Operands& o) {
  check_rois(o, 9);
  for (const size_t i : {7, 8})
    if (o.read_int(i) < 0) o.fail(i, "N11.1", "a non-negative number expected; given " + std::to_string(o.read_int(i)));
}

void check_roi_pooling(Operands& o) {
  check_rois(o, 7);
  reject_empty(o, "NG2");
}

// Returns the box corners in elements of the feature map, [boxes, 4].
ValueId scale_roi_corners(Expansion& e) {
  expect_box_type(e, 1, 0, "N11.1");
  expect_box_scale(e, 1);
  const double x = read_inverse_stride(e.rules(), kRegionWidthStride), y = read_inverse_stride(e.rules(), kRegionHeightStride);
  return e.add("Mul", {as_float32(e, 1), e.add_vector({x, y, x, y}, DType::float32)});
}

// Returns the feature map as float32 [images, channels, height, width]; for quantized maps the integers minus the zero point.
ValueId convert_roi_features(Expansion& e, bool is_nchw) {
  const ValueId x = to_nchw(e, e[0], is_nchw);
  if (!e.is_quantized(0)) return e.cast(x, DType::float32);
  return e.dequantize(x, {{1}, e.quantization(0).zero_point, {}});
}

void expand_roi_align(Expansion& e) {
  const bool is_nchw = read_nchw_flag(e, 9);
  const Attributes attributes = make_attrs({{"output_height", e.read_int(kHeight)},
                                            {"output_width", e.read_int(kWidth)},
                                            {"sampling_ratios", std::vector{e.read_int(7), e.read_int(8)}},
                                            {"weight_levels", int64_t{e.is_quantized(0) ? 255 : 0}}});
  const ValueId corners = scale_roi_corners(e);
  const ValueId y = from_nchw(e, e.add("pumice::ClampedRoiAlign", {convert_roi_features(e, is_nchw), corners, e[2]}, attributes), is_nchw);
  if (!e.is_quantized(0)) return e.add_output(e.cast(y, e.dtype(0)));
  const double scale = static_cast<double>(e.quantization(0).scale[0]);
  e.add_real_output(e.add("Mul", {y, e.add_scalar(scale, DType::float32)}), 0);
}

// MaxRoiPool expects boxes [image, left, top, right, bottom]; NNAPI rounds the corners to integers.
void expand_roi_pooling(Expansion& e) {
  const bool is_nchw = read_nchw_flag(e, 7);
  const ValueId corners = e.add("Floor", {e.add("Add", {scale_roi_corners(e), e.add_scalar(0.5, DType::float32)})});
  const ValueId image_indices = e.add_index_check(e[2], e[0], 0);  // checked as integers, then cast, because MaxRoiPool reads floats
  const ValueId images = e.add("Unsqueeze", {e.cast(image_indices, DType::float32), e.add_int64_vector({1})});
  const ValueId boxes = e.add("Concat", {images, corners}, make_attrs({{"axis", int64_t{1}}}));
  const ValueId y = e.add("MaxRoiPool", {convert_roi_features(e, is_nchw), boxes},
                          make_attrs({{"pooled_shape", std::vector{e.read_int(kHeight), e.read_int(kWidth)}}}));
  const Quantization quantization = e.operand_quantization(0);
  if (!e.is_quantized(0)) return e.add_output(from_nchw(e, e.cast(y, e.dtype(0)), is_nchw));
  e.add_output(from_nchw(e, e.quantize(y, {{1}, quantization.zero_point, {}}, e.dtype(0)), is_nchw), quantization);
}

}  // namespace

Operations make_roi_operations() {
  constexpr DTypeSet reals = kFloat | kQuant, boxes = kFloat | make_dtype_set(DType::uint16);
  const auto form = [&](std::vector<Operand> more) {
    std::vector<Operand> inputs{
        tensor_arg("x", reals), tensor_arg("boxes", boxes),          tensor_arg("batch_index", kInt),   scalar_arg("height"),
        scalar_arg("width"),    scalar_arg("height_stride", kFloat), scalar_arg("width_stride", kFloat)};
    inputs.insert(inputs.end(), more.begin(), more.end());
    inputs.push_back(scalar_arg("nchw", kTruth));
    return inputs;
  };
  return {
      {"nnapi::ROI_ALIGN",
       3,
       "The mean of samples between four neighbours in each cell of a box; as many as the cell is long where a ratio is 0.",
       form({scalar_arg("height_ratio"), scalar_arg("width_ratio")}),
       {tensor_arg("y", reals)},
       expand_roi_align,
       {},
       check_roi_align},
      {"nnapi::ROI_POOLING",
       3,
       "The largest element in each cell of a box, whose corners are rounded to whole elements.",
       form({}),
       {tensor_arg("y", reals)},
       expand_roi_pooling,
       {},
       check_roi_pooling},
  };
}

}  // namespace pumice::nnapi
