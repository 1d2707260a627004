// NNAPI GENERATE_PROPOSALS: places anchors at each position of a feature map, shifts them by deltas, and runs NMS.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "graph/nnapi/boxes.h"
#include "graph/nnapi/images.h"
#include "graph/nnapi/operations.h"
#include "graph/nnapi/recurrent_helpers.h"

namespace pumice::nnapi {
namespace {

constexpr size_t kProposalScores = 0, kDeltas = 1, kProposalAnchors = 2, kImages = 3, kHeightStride = 4, kWidthStride = 5,
                 kMaxBeforeNms = 6, kMaxAfterNms = 7, kMaxIou = 8, kMinSize = 9, kNchwFlag = 10;

void check_proposals(Operands& o) {
  expect_ranks(o, kProposalScores, 2, 4);
  expect_ranks(o, kProposalAnchors, 2, 2);
  o.expect_size(kProposalAnchors, 1, 4);
  o.expect_size(kImages, 1, 2);
  const bool is_nchw = o.read_int(kNchwFlag) != 0;
  const size_t row = is_nchw ? 2 : 1, channel = is_nchw ? 1 : 3;
  expect_equal_sizes(o, {{kProposalScores, 0}, {kDeltas, 0}, {kImages, 0}}, "N15.1");
  expect_equal_sizes(o, {{kProposalScores, row}, {kDeltas, row}}, "N15.1");
  expect_equal_sizes(o, {{kProposalScores, row + 1}, {kDeltas, row + 1}}, "N15.1");
  expect_equal_sizes(o, {{kProposalScores, channel}, {kProposalAnchors, 0}}, "N15.1");
  const auto anchors = o.size(kProposalScores, channel), deltas = o.size(kDeltas, channel);
  if (anchors && deltas && *deltas != 4 * *anchors)
    o.fail(kDeltas, "N15.1",
           std::to_string(4 * *anchors) + " numbers at each position expected, four for each anchor; given " + o.format_shape(kDeltas));
  reject_empty(o, "NG2");
  check_boxes(o, kProposalAnchors);
}

// Checks the dtypes. With 8-bit scores, anchors must be int16 and image sizes uint16, in units of 1/8; otherwise all have the same dtype.
void expect_proposal_types(const Expansion& e) {
  const DType scores = e.dtype(kProposalScores);
  const bool bytes = contains(kQuant, scores);
  const auto expect = [&](size_t i, DType expected) {
    if (e.dtype(i) != expected)
      e.fail(i, "N15.1",
             std::string(name(expected)) + " expected, as the scores are of " + std::string(name(scores)) + "; given " +
                 std::string(name(e.dtype(i))));
    if (!bytes || i == kDeltas) return;
    const Quantization actual = e.quantization(i);
    if (actual.scale != std::vector<float>{kBoxScale} || actual.zero_point.value_or(0) != 0)
      e.fail(i, "N15.1", "a scale of 0.125 and a zero point of 0 expected; given " + to_string(actual));
  };
  expect(kDeltas, scores);
  expect(kProposalAnchors, bytes ? DType::int16 : scores);
  expect(kImages, bytes ? DType::uint16 : scores);
}

class ProposalBuilder {
 public:
  explicit ProposalBuilder(Expansion& e)
      : e_(e),
        is_nchw_(e.read_int(kNchwFlag) != 0),
        images_(e.length(kProposalScores, 0)),
        height_(e.length(kProposalScores, is_nchw_ ? 2 : 1)),
        width_(e.length(kProposalScores, is_nchw_ ? 3 : 2)),
        num_anchors_(e.mul_lengths(e.mul_lengths(height_, width_), e.length(kProposalAnchors, 0))) {}

  void run() {
    const int64_t before = e_.read_int(kMaxBeforeNms);
    const AxisLength count = before > 0 ? e_.min_lengths({before}, num_anchors_) : num_anchors_;
    const ValueId scores = e_.cast(flatten_map(as_float32(e_, kProposalScores), {images_, num_anchors_}), DType::float32);
    const ValueId order = e_.add_multi_output("TopK", {scores, e_.add_sizes({count})}, 2, make_attrs({{"axis", int64_t{1}}}))[1];
    const ValueId anchor_indices = expand(e_.add("Unsqueeze", {order, e_.add_int64_vector({2})}), {images_, count, {4}});
    const ValueId limit = get_image_limits(), boxes = gather_elements(decode_boxes(limit), anchor_indices);
    add_output(run_nms(boxes, limit, count), boxes, gather_elements(flatten_map(e_[kProposalScores], {images_, num_anchors_}), order));
  }

 private:
  ValueId add_float(double value) { return e_.add_scalar(value, DType::float32); }
  ValueId expand(ValueId id, const std::vector<AxisLength>& shape) { return e_.add("Expand", {id, e_.add_sizes(shape)}); }
  ValueId gather_elements(ValueId id, ValueId indices) {
    return e_.add("GatherElements", {id, indices}, make_attrs({{"axis", int64_t{1}}}));
  }
  ValueId concat(ValueId a, ValueId b) { return e_.add("Concat", {a, b}, make_attrs({{"axis", int64_t{2}}})); }
  ValueId flatten_map(ValueId id, const std::vector<AxisLength>& shape) {
    return e_.reshape(is_nchw_ ? e_.transpose(id, {0, 2, 3, 1}) : id, shape);
  }
  // Returns elements `first` and `first` + 1 of the last axis of a value of rank 3.
  ValueId slice_pair(ValueId id, int64_t first) {
    return e_.add("Slice", {id, e_.add_int64_vector({first}), e_.add_int64_vector({first + 2}), e_.add_int64_vector({2})});
  }
  // Returns the vector 0, 1, ... length - 1.
  ValueId make_range(const AxisLength& length, DType dtype) {
    const ValueId end = e_.add("Squeeze", {e_.add_sizes({length}), e_.add_int64_vector({0})});
    return e_.cast(e_.add("Range", {e_.add_scalar(0, DType::int64), end, e_.add_scalar(1, DType::int64)}), dtype);
  }
  // Returns the width and height of each image, [images, 1, 2].
  ValueId get_image_limits() {
    const ValueId width_height =
        e_.add("Gather", {as_float32(e_, kImages), e_.add_int64_vector({1, 0})}, make_attrs({{"axis", int64_t{1}}}));
    return e_.add("Unsqueeze", {width_height, e_.add_int64_vector({1})});
  }

  // Returns the offset of the anchors at each position, [positions, 1, 4].
  ValueId make_anchor_shifts() {
    const auto steps = [&](const AxisLength& length, size_t stride, const std::vector<AxisLength>& shape) {
      const ValueId all = e_.add("Mul", {make_range(length, DType::float32), add_float(e_.read_real(stride))});
      return expand(e_.reshape(all, shape), {height_, width_, {1}});
    };
    const ValueId across = steps(width_, kWidthStride, {{1}, width_, {1}}), down = steps(height_, kHeightStride, {height_, {1}, {1}});
    const ValueId xy_shifts = concat(across, down);
    return e_.reshape(concat(xy_shifts, xy_shifts), {e_.mul_lengths(height_, width_), {1}, {4}});
  }

  // Returns the corners of all candidates, [images, candidates, 4], clipped to their image.
  ValueId decode_boxes(ValueId limit) {
    const ValueId anchors = e_.reshape(e_.add("Add", {as_float32(e_, kProposalAnchors), make_anchor_shifts()}), {{1}, num_anchors_, {4}});
    const ValueId deltas = flatten_map(as_float32(e_, kDeltas), {images_, num_anchors_, {4}});
    const ValueId start = slice_pair(anchors, 0), end = slice_pair(anchors, 2), size = e_.add("Sub", {end, start});
    const ValueId center = e_.add("Mul", {e_.add("Add", {start, end}), add_float(0.5)});
    const ValueId at = e_.add("Add", {center, e_.add("Mul", {slice_pair(deltas, 0), size})});
    const ValueId half = e_.add("Mul", {e_.add("Mul", {size, e_.add("Exp", {slice_pair(deltas, 2)})}), add_float(0.5)});
    const auto clip = [&](ValueId id) { return e_.add("Min", {e_.add("Max", {id, add_float(0)}), limit}); };
    return concat(clip(e_.add("Sub", {at, half})), clip(e_.add("Add", {at, half})));
  }

  // Returns 1 for boxes that are large enough and centred inside the image, else 0: [images, 1, boxes].
  ValueId find_valid_boxes(ValueId boxes, ValueId limit, const AxisLength& count) {
    const ValueId start = slice_pair(boxes, 0), size = e_.add("Sub", {slice_pair(boxes, 2), start});
    const ValueId middle = e_.add("Add", {start, e_.add("Mul", {size, add_float(0.5)})});
    const ValueId fits = e_.add("And", {e_.add("Greater", {size, add_float(e_.read_real(kMinSize))}), e_.add("Less", {middle, limit})});
    const ValueId is_valid =
        e_.add("ReduceMin", {e_.cast(fits, DType::float32), e_.add_int64_vector({2})}, make_attrs({{"keepdims", int64_t{0}}}));
    return e_.reshape(is_valid, {images_, {1}, count});
  }

  // Runs NMS on boxes sorted by descending score. Returns 1 + the indices of the boxes it keeps, [images, max_kept].
  ValueId run_nms(ValueId boxes, ValueId limit, const AxisLength& count) {
    const double iou_threshold = e_.read_real(kMaxIou);
    const int64_t after = e_.read_int(kMaxAfterNms);
    const AxisLength max_kept = after < 0 ? count : e_.min_lengths({after}, count);
    // With a limit of 0 only one box remains, because every IoU is >= 0.
    const AxisLength nms_count = iou_threshold > 0 ? max_kept : e_.min_lengths(max_kept, {1});
    const ValueId order = expand(make_range(count, DType::int64), {images_, {1}, count});
    // NMS drops boxes with IoU > limit; the NNAPI operation drops IoU >= limit.
    const double iou_limit = std::max(static_cast<double>(std::nextafter(static_cast<float>(iou_threshold), -1.0f)), 0.0);
    const ValueId kept_boxes = e_.add("pumice::NMS", {boxes, find_valid_boxes(boxes, limit, count), order, e_.add_sizes({nms_count}),
                                                      add_float(iou_limit), add_float(0.5)});
    return e_.add("Squeeze", {kept_boxes, e_.add_int64_vector({1})});
  }

  void add_output(ValueId kept_boxes, ValueId boxes, ValueId scores) {
    const ValueId kept_positions = e_.add("NonZero", {kept_boxes}), at = e_.transpose(kept_positions, {1, 0});
    const ValueId number = e_.add("Sub", {e_.add("GatherND", {kept_boxes, at}), e_.add_scalar(1, DType::int32)});
    const ValueId image = e_.add("Slice", {kept_positions, e_.add_int64_vector({0}), e_.add_int64_vector({1}), e_.add_int64_vector({0})});
    const ValueId row = e_.add("Unsqueeze", {e_.cast(number, DType::int64), e_.add_int64_vector({0})});
    const ValueId row_indices = e_.transpose(e_.add("Concat", {image, row}, make_attrs({{"axis", int64_t{0}}})), {1, 0});
    e_.add_output(e_.add("GatherND", {scores, row_indices}), e_.operand_quantization(kProposalScores));
    add_box_output(e_, e_.add("GatherND", {boxes, row_indices}), kProposalScores);
    e_.add_output(e_.cast(e_.add("Squeeze", {image, e_.add_int64_vector({0})}), DType::int32));
  }

  Expansion& e_;
  const bool is_nchw_;
  const AxisLength images_, height_, width_, num_anchors_;
};

void expand_generate_proposals(Expansion& e) {
  expect_proposal_types(e);
  ProposalBuilder(e).run();
}

}  // namespace

Operations make_proposal_operations() {
  constexpr DTypeSet reals = kFloat | kQuant;
  return {{"nnapi::GENERATE_PROPOSALS",
           3,
           "The best regions of each image, of anchors at every place, without those that overlap a better one too much. Outputs: scores, "
           "boxes and indices of images, as many as there are.",
           {tensor_arg("scores", reals), tensor_arg("deltas", reals), tensor_arg("anchors", kFloat | make_dtype_set(DType::int16)),
            tensor_arg("image_sizes", kFloat | make_dtype_set(DType::uint16)), float_scalar_arg("height_stride"),
            float_scalar_arg("width_stride"), scalar_arg("most_before"), scalar_arg("most_after"), float_scalar_arg("overlap_threshold"),
            float_scalar_arg("least_size"), scalar_arg("nchw", kTruth)},
           {tensor_arg("scores", reals), tensor_arg("boxes", kFloat | make_dtype_set(DType::uint16)), tensor_arg("batch_index", kInt)},
           expand_generate_proposals,
           {},
           check_proposals}};
}

}  // namespace pumice::nnapi
