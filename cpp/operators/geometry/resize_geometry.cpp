#include "operators/geometry/resize_geometry.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/number_format.h"

namespace pumice {
namespace {

std::vector<size_t> resolve_resize_axes(std::string_view node, const Attributes& attributes, size_t rank) {
  std::vector<size_t> axes;
  if (!attributes.has("axes"))
    for (size_t axis = 0; axis < rank; ++axis) axes.push_back(axis);
  for (const int64_t declared_axis : attributes.integers("axes")) {
    const int64_t axis = declared_axis < 0 ? declared_axis + static_cast<int64_t>(rank) : declared_axis;
    if (axis < 0 || axis >= static_cast<int64_t>(rank) || std::count(axes.begin(), axes.end(), static_cast<size_t>(axis)) > 0)
      throw GraphError(std::string(node), "a tensor of rank " + std::to_string(rank) + " has no axis " + std::to_string(declared_axis));
    axes.push_back(static_cast<size_t>(axis));
  }
  return axes;
}

// Returns the coordinate in x, in elements, of an output index. Divides only once, so that a coordinate exactly on an element or halfway
// between two elements has no rounding error.
double compute_source_coordinate(const ResizeAxis& axis, const std::string& mode, int64_t index) {
  const double num = axis.scale_num, den = axis.scale_den;
  const auto y = static_cast<double>(index), x_size = static_cast<double>(axis.x_size), exact_size = num * x_size / den;
  if (mode == "align_corners") return exact_size == 1 ? 0 : y * (x_size - 1) / (exact_size - 1);
  if (mode == "asymmetric") return y * den / num;
  if (mode == "tf_half_pixel_for_nn") return (y + 0.5) * den / num;  // only in opsets 11 and 12
  if (mode == "tf_crop_and_resize") {
    const double length = axis.roi_end - axis.roi_start;
    return (exact_size == 1 ? length * (x_size - 1) / 2 : y * length * (x_size - 1) / (exact_size - 1)) + axis.roi_start * (x_size - 1);
  }
  if (mode == "pytorch_half_pixel" && axis.size == 1) return 0;
  // x_size / 2 * (1 - size / (scale * x_size)) + (y + 0.5) / scale - 0.5
  if (mode == "half_pixel_symmetric") return (x_size - 1) / 2 + (2 * y + 1 - static_cast<double>(axis.size)) * den / (2 * num);
  return (y + 0.5) * den / num - 0.5;
}

double compute_cubic_weight(double distance, double a) {
  const double d = std::fabs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

int64_t round_to_nearest(double coordinate, const std::string& mode) {
  const double below = std::floor(coordinate), fraction = coordinate - below;
  const bool up = mode == "ceil"                 ? fraction > 0
                  : mode == "round_prefer_ceil"  ? fraction >= 0.5
                  : mode == "round_prefer_floor" ? fraction > 0.5
                                                 : false;
  return static_cast<int64_t>(below) + (up ? 1 : 0);
}

}  // namespace

// Returns the output size for a scale. Multiplies in fp32, like ONNX shape inference and ONNX Runtime: exporters compute a scale such as 7
// / 5 in fp32, and the rounded scale may be slightly smaller than the ratio.
static int64_t compute_scaled_size(int64_t size, double scale) {
  return scale == 1 ? size : static_cast<int64_t>(static_cast<float>(scale) * static_cast<float>(size));
}

// Sets the scale to `requested`, or to the ratio of the sizes if `requested` is 0. A requested scale that is smaller than the ratio is a
// rounded ratio, so the exact ratio is used instead.
static void set_scale(ResizeAxis& axis, double requested) {
  const auto size = static_cast<double>(axis.size), x_size = static_cast<double>(axis.x_size);
  const bool is_ratio = axis.x_size > 0 && (requested == 0 || size > requested * x_size);
  axis.scale_num = is_ratio ? size : requested == 0 ? 1 : requested;
  axis.scale_den = is_ratio ? x_size : 1;
  axis.scale = axis.scale_num / axis.scale_den;
}

std::vector<ResizeAxis> compute_resize_axes(std::string_view node, const Attributes& attributes, const Shape& shape,
                                            const std::vector<double>& roi, const std::vector<double>& scales,
                                            const std::vector<int64_t>& sizes) {
  const auto fail = [&](const std::string& message) { throw GraphError(std::string(node), message); };
  const auto axes = resolve_resize_axes(node, attributes, shape.size());
  if (scales.empty() == sizes.empty() && !axes.empty()) fail("either scales or sizes are expected");
  if ((!scales.empty() && scales.size() != axes.size()) || (!sizes.empty() && sizes.size() != axes.size()))
    fail(std::to_string(scales.size() + sizes.size()) + (scales.empty() ? " sizes for " : " scales for ") + std::to_string(axes.size()) +
         " axes");
  const bool crops = attributes.text("coordinate_transformation_mode") == "tf_crop_and_resize";
  if (crops && roi.size() != 2 * axes.size())
    fail(std::to_string(roi.size()) + " numbers of a region for " + std::to_string(axes.size()) + " axes; expected two for each");
  std::vector<ResizeAxis> result;
  for (const int64_t size : shape) result.push_back({size, size});
  const std::string policy = attributes.text("keep_aspect_ratio_policy", "stretch");
  ResizeAxis common;
  common.scale = policy == "not_larger" ? INFINITY : -1;
  for (size_t i = 0; i < axes.size(); ++i) {
    ResizeAxis& axis = result[axes[i]];
    if (!sizes.empty() && sizes[i] < 0) fail("expected non-negative sizes; given " + std::to_string(sizes[i]));
    if (!scales.empty() && !(scales[i] > 0 && scales[i] * static_cast<double>(axis.x_size) < 9e15))
      fail("expected finite positive scales; given " + format_general(scales[i]));
    axis.size = sizes.empty() ? compute_scaled_size(axis.x_size, scales[i]) : sizes[i];
    if (axis.x_size == 0 && axis.size > 0)
      fail("axis " + std::to_string(axes[i]) + " is empty and cannot become " + std::to_string(axis.size));
    set_scale(axis, sizes.empty() ? scales[i] : 0);
    if (policy == "not_larger" ? axis.scale < common.scale : axis.scale > common.scale) common = axis;
    if (crops) axis.roi_start = roi[i], axis.roi_end = roi[i + axes.size()];
  }
  for (const size_t i : axes) {
    ResizeAxis& axis = result[i];
    if (!sizes.empty() && policy != "stretch") {
      axis.scale = common.scale, axis.scale_num = common.scale_num, axis.scale_den = common.scale_den;
      axis.size = static_cast<int64_t>(common.scale_num * static_cast<double>(axis.x_size) / common.scale_den + 0.5);
    }
    axis.resized = axis.size != axis.x_size || std::fabs(axis.scale - 1) > 1e-9 || axis.roi_start != 0 || axis.roi_end != 1;
  }
  return result;
}

ResizeTable make_resize_table(const ResizeAxis& axis, const Attributes& attributes) {
  const std::string mode = attributes.text("mode"), transformation = attributes.text("coordinate_transformation_mode");
  const bool is_cubic = mode == "cubic", antialias = attributes.integer("antialias") != 0;
  const bool excludes = attributes.integer("exclude_outside") != 0;
  const double a = attributes.real("cubic_coeff_a"), filter_scale = antialias ? std::min(axis.scale, 1.0) : 1.0;
  const auto last = axis.x_size - 1;
  // Number of additional taps on each side of the two elements around the coordinate.
  const auto reach = static_cast<int64_t>(-std::floor((is_cubic ? -2 : -1) / filter_scale) - 1);
  ResizeTable table;
  if (mode != "nearest") table.taps = static_cast<size_t>(2 + 2 * reach);
  for (int64_t y = 0; y < axis.size; ++y) {
    const double coordinate = compute_source_coordinate(axis, transformation, y);
    const bool outside = transformation == "tf_crop_and_resize" && (coordinate < 0 || coordinate > static_cast<double>(last));
    if (mode == "nearest") {
      const int64_t index = round_to_nearest(coordinate, attributes.text("nearest_mode"));
      table.indices.push_back(outside ? -1 : static_cast<int32_t>(std::clamp<int64_t>(index, 0, last)));
      continue;
    }
    // If the coordinate is exactly on an element, that element is the upper one of the two elements around the coordinate.
    const double below = std::floor(coordinate) - (coordinate == std::floor(coordinate) ? 1 : 0), fraction = coordinate - below;
    std::vector<double> weights;
    double sum = 0;
    for (int64_t k = -reach; k <= reach + 1; ++k) {
      const int64_t index = static_cast<int64_t>(below) + k;
      const double distance = (static_cast<double>(k) - fraction) * filter_scale;
      const bool dropped = excludes && (index < 0 || index > last);
      weights.push_back(dropped ? 0 : is_cubic ? compute_cubic_weight(distance, a) : std::clamp(1 - std::fabs(distance), 0.0, 1.0));
      sum += weights.back();
      table.indices.push_back(outside ? -1 : static_cast<int32_t>(std::clamp<int64_t>(index, 0, last)));
    }
    const bool normalised = (antialias || excludes) && sum != 0;
    for (const double weight : weights) table.weights.push_back(static_cast<float>(normalised ? weight / sum : weight));
  }
  return table;
}

}  // namespace pumice
