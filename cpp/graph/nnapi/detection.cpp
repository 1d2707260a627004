// Box transforms and keypoints, computed in float32 and rounded once.
#include <algorithm>

#include "graph/nnapi/boxes.h"
#include "graph/nnapi/images.h"
#include "graph/nnapi/operations.h"
#include "graph/nnapi/recurrent_helpers.h"

namespace pumice::nnapi {
namespace {

// ---- AXIS_ALIGNED_BBOX_TRANSFORM

void check_box_transform(Operands& o) {
  expect_ranks(o, 0, 2, 2);
  o.expect_rank(2, 1);
  o.expect_rank(3, 2);
  o.expect_size(0, 1, 4);
  o.expect_size(3, 1, 2);
  expect_equal_sizes(o, {{0, 0}, {1, 0}, {2, 0}}, "N13.1");
  if (const auto width = o.size(1, 1); width && (*width < 4 || *width % 4 != 0))
    o.fail(1, "N13.1", "four numbers for each class expected; given " + o.format_shape(1));
  if (o.size(3, 0) == 0) o.fail(3, "N13.1", "at least one image expected; given none");
  check_boxes(o, 0);
  check_image_indices(o, 2, 3, "N13.2");
}

// Returns elements `first` and `first` + 1 of an axis.
ValueId slice_pair(Expansion& e, ValueId id, int64_t first, int64_t axis) {
  return e.add("Slice", {id, e.add_int64_vector({first}), e.add_int64_vector({first + 2}), e.add_int64_vector({axis})});
}

void expand_box_transform(Expansion& e) {
  for (const size_t i : {0, 3}) expect_box_type(e, i, 1, "N13.1"), expect_box_scale(e, i);
  const AxisLength boxes = e.length(0, 0), width = e.length(1, 1), classes = e.div_lengths(width, {4});
  const auto constant_of = [&](double number) { return e.add_scalar(number, DType::float32); };
  const ValueId rois = e.add("Unsqueeze", {as_float32(e, 0), e.add_int64_vector({1})});
  const ValueId deltas = e.reshape(as_float32(e, 1), {boxes, classes, {4}});
  const ValueId start = slice_pair(e, rois, 0, 2), end = slice_pair(e, rois, 2, 2);
  const ValueId size = e.add("Sub", {end, start});
  const ValueId center = e.add("Mul", {e.add("Add", {start, end}), constant_of(0.5)});
  const ValueId shifted = e.add("Add", {center, e.add("Mul", {slice_pair(e, deltas, 0, 2), size})});
  const ValueId half = e.add("Mul", {e.add("Mul", {size, e.add("Exp", {slice_pair(e, deltas, 2, 2)})}), constant_of(0.5)});
  // Image sizes are [height, width]; corners are [x, y].
  const ValueId image = e.add("Gather", {as_float32(e, 3), e.add_index_check(e[2], e[3], 0)}, make_attrs({{"axis", int64_t{0}}}));
  const ValueId width_height = e.add("Gather", {image, e.add_int64_vector({1, 0})}, make_attrs({{"axis", int64_t{1}}}));
  const ValueId limit = e.add("Unsqueeze", {width_height, e.add_int64_vector({1})});
  const auto clip = [&](ValueId id) { return e.add("Min", {e.add("Max", {id, constant_of(0)}), limit}); };
  const ValueId corners =
      e.add("Concat", {clip(e.add("Sub", {shifted, half})), clip(e.add("Add", {shifted, half}))}, make_attrs({{"axis", int64_t{2}}}));
  if (e.is_quantized(0)) e.fixed_quantization(kBoxScale, 0);
  add_box_output(e, e.reshape(corners, {boxes, width}), 0);
}

// ---- HEATMAP_MAX_KEYPOINT

void check_keypoints(Operands& o) {
  o.expect_rank(0, 4);
  o.expect_rank(1, 2);
  o.expect_size(1, 1, 4);
  expect_equal_sizes(o, {{0, 0}, {1, 0}}, "N17.1");
  const size_t row = o.read_int(2) != 0 ? 2 : 1;
  expect_equal_sizes(o, {{0, row}, {0, row + 1}}, "N17.1");
  if (const auto size = o.size(0, row); size && *size == 1)
    o.fail(0, "N17.1", "heatmaps of at least 2 x 2 elements expected; given " + o.format_shape(0));
  reject_empty(o, "NG2");
  check_boxes(o, 1);
}

// Shorthands for adding float32 arithmetic nodes.
struct Float32NodeBuilder {
  Expansion& e;

  ValueId add_float(double value) { return e.add_scalar(value, DType::float32); }
  ValueId add(ValueId a, ValueId b) { return e.add("Add", {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return e.add("Sub", {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return e.add("Mul", {a, b}); }
  ValueId div(ValueId a, ValueId b) { return e.add("Div", {a, b}); }
  ValueId abs(ValueId a) { return e.add("Abs", {a}); }
  ValueId scale(ValueId a, double factor) { return mul(a, add_float(factor)); }
  ValueId where(ValueId condition, ValueId a, ValueId b) { return e.add("Where", {condition, a, b}); }
};

// Returns the 3 x 3 neighbourhood of the maximum of each map as nine values [boxes, points, 1], mirrored at the borders.
std::vector<ValueId> gather_neighbourhood(Float32NodeBuilder& t, ValueId flat, ValueId x, ValueId y, ValueId size) {
  Expansion& e = t.e;
  const ValueId one = e.add_int64_vector({1}), last = e.add("Sub", {size, one});
  const auto mirrored = [&](ValueId at, int64_t by) {
    const ValueId shifted = e.add("Abs", {e.add("Add", {at, e.add_int64_vector({by})})});
    return e.add("Sub", {last, e.add("Abs", {e.add("Sub", {last, shifted})})});
  };
  std::vector<ValueId> positions;
  for (const int64_t down : {-1, 0, 1})
    for (const int64_t across : {-1, 0, 1}) positions.push_back(t.add(t.mul(mirrored(y, down), size), mirrored(x, across)));
  const ValueId all = e.add("Concat", positions, make_attrs({{"axis", int64_t{2}}}));
  return e.add_multi_output("Split", {e.add("GatherElements", {flat, all}, make_attrs({{"axis", int64_t{2}}}))}, 9,
                            make_attrs({{"axis", int64_t{2}}, {"num_outputs", int64_t{9}}}));
}

struct HeatmapPeakFit {
  ValueId x, y, score;  // offset of the peak from the maximum, and the interpolated score
};

// Returns the vertex of the quadratic fit through a 3 x 3 neighbourhood, with an offset of at most 1.5; the centre if the fit is flat.
HeatmapPeakFit fit_peak(Float32NodeBuilder& t, const std::vector<ValueId>& g, double tolerance) {
  const ValueId middle = g[4], twice = t.scale(middle, 2);
  const ValueId bx = t.scale(t.sub(g[5], g[3]), -0.5), by = t.scale(t.sub(g[7], g[1]), -0.5);
  const ValueId xx = t.add(t.sub(g[3], twice), g[5]), yy = t.add(t.sub(g[1], twice), g[7]);
  const ValueId xy = t.scale(t.add(t.sub(t.sub(g[8], g[6]), g[2]), g[0]), 0.25);
  const ValueId area = t.mul(xx, yy), determinant = t.sub(area, t.mul(xy, xy));
  const ValueId flat = t.e.add("Less", {t.abs(determinant), t.add(t.add_float(tolerance), t.scale(area, tolerance))});
  const ValueId denominator = t.where(flat, t.add_float(1), determinant);
  ValueId dx = t.div(t.sub(t.mul(yy, bx), t.mul(xy, by)), denominator), dy = t.div(t.sub(t.mul(xx, by), t.mul(xy, bx)), denominator);
  const ValueId max_offset = t.e.add("Max", {t.abs(dx), t.abs(dy)});
  const ValueId factor = t.div(t.add_float(1.5), t.e.add("Max", {max_offset, t.add_float(1.5)}));
  dx = t.where(flat, t.add_float(0), t.mul(dx, factor));
  dy = t.where(flat, t.add_float(0), t.mul(dy, factor));
  const ValueId slope = t.add(t.mul(bx, dx), t.mul(by, dy));
  const ValueId curvature = t.add(t.add(t.mul(t.mul(dx, dx), xx), t.mul(t.mul(dy, dy), yy)), t.scale(t.mul(t.mul(dx, dy), xy), 2));
  return {dx, dy, t.add(t.sub(middle, slope), t.scale(curvature, 0.5))};
}

void expand_heatmap_keypoints(Expansion& e) {
  expect_box_type(e, 1, 0, "N17.1");
  expect_box_scale(e, 1);
  Float32NodeBuilder t{e};
  const bool is_nchw = read_nchw_flag(e, 2);
  const AxisLength boxes = e.length(0, 0), points = e.length(0, is_nchw ? 1 : 3), size = e.length(0, is_nchw ? 2 : 1);
  const ValueId maps = to_nchw(e, as_float32(e, 0), is_nchw), sizes = e.add_sizes({size});
  const ValueId flat = e.reshape(maps, {boxes, points, e.mul_lengths(size, size)});
  const ValueId best = e.add("ArgMax", {flat}, make_attrs({{"axis", int64_t{2}}, {"keepdims", int64_t{1}}}));
  const ValueId y = e.add("Div", {best, sizes}), x = e.add("Sub", {best, e.add("Mul", {y, sizes})});
  const HeatmapPeakFit peak = fit_peak(t, gather_neighbourhood(t, flat, x, y, sizes), e.dtype(0) == DType::float16 ? 1e-3 : 1e-5);
  const ValueId score = e.reshape(peak.score, {boxes, points});
  e.add_real_output(e.is_quantized(0) ? score : e.cast(score, e.dtype(0)), 0);
  const ValueId rois = e.add("Unsqueeze", {as_float32(e, 1), e.add_int64_vector({1})});
  const ValueId start = slice_pair(e, rois, 0, 2), end = slice_pair(e, rois, 2, 2);
  const auto real = [&](ValueId id) { return e.cast(id, DType::float32); };
  const ValueId at = e.add("Concat", {t.add(real(x), peak.x), t.add(real(y), peak.y)}, make_attrs({{"axis", int64_t{2}}}));
  const ValueId relative = t.div(t.add(at, t.add_float(0.5)), real(sizes));
  add_box_output(e, t.add(t.mul(relative, t.sub(end, start)), start), 1);
}

}  // namespace

Operations make_detection_operations() {
  constexpr DTypeSet boxes = kFloat | make_dtype_set(DType::uint16), reals = kFloat | kQuant;
  return {
      {"nnapi::AXIS_ALIGNED_BBOX_TRANSFORM",
       3,
       "Boxes moved and resized by the deltas of each class, within their image.",
       {tensor_arg("boxes", boxes), tensor_arg("deltas", reals), tensor_arg("batch_index", kInt), tensor_arg("image_sizes", boxes)},
       {tensor_arg("y", boxes)},
       expand_box_transform,
       {},
       check_box_transform},
      {"nnapi::HEATMAP_MAX_KEYPOINT",
       3,
       "The height and the place, in its box, of the top of each heat map: of the paraboloid through the elements around the largest.",
       {tensor_arg("heatmaps", reals), tensor_arg("boxes", boxes), scalar_arg("nchw", kTruth)},
       {tensor_arg("scores", reals), tensor_arg("keypoints", boxes)},
       expand_heatmap_keypoints,
       {},
       check_keypoints},
  };
}

}  // namespace pumice::nnapi
