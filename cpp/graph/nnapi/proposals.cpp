// Region proposals: anchors at every position of a map, shifted by deltas, then NMS.
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
  const bool is_nchw = o.integer(kNchwFlag) != 0;
  const size_t row = is_nchw ? 2 : 1, channel = is_nchw ? 1 : 3;
  expect_equal_sizes(o, {{kProposalScores, 0}, {kDeltas, 0}, {kImages, 0}}, "N15.1");
  expect_equal_sizes(o, {{kProposalScores, row}, {kDeltas, row}}, "N15.1");
  expect_equal_sizes(o, {{kProposalScores, row + 1}, {kDeltas, row + 1}}, "N15.1");
  expect_equal_sizes(o, {{kProposalScores, channel}, {kProposalAnchors, 0}}, "N15.1");
  const auto anchors = o.size(kProposalScores, channel), deltas = o.size(kDeltas, channel);
  if (anchors && deltas && *deltas != 4 * *anchors)
    o.fail(kDeltas, "N15.1",
           std::to_string(4 * *anchors) + " numbers at each place expected, four for each anchor; given " + o.shape_text(kDeltas));
  reject_empty(o, "NG2");
  check_boxes(o, kProposalAnchors);
}

// With 8-bit scores, anchors must be int16 and image sizes uint16, in units of 1/8; otherwise all have the same type.
void expect_types(const Expansion& e) {
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
        is_nchw_(e.integer(kNchwFlag) != 0),
        images_(e.length(kProposalScores, 0)),
        height_(e.length(kProposalScores, is_nchw_ ? 2 : 1)),
        width_(e.length(kProposalScores, is_nchw_ ? 3 : 2)),
        num_anchors_(e.product(e.product(height_, width_), e.length(kProposalAnchors, 0))) {}

  void run() {
    const int64_t before = e_.integer(kMaxBeforeNms);
    const Length count = before > 0 ? e_.min_length({before}, num_anchors_) : num_anchors_;
    const ValueId scores = e_.cast(flat(as_float32(e_, kProposalScores), {images_, num_anchors_}), DType::float32);
    const ValueId order = e_.add_many("TopK", {scores, e_.sizes({count})}, 2, with({{"axis", int64_t{1}}}))[1];
    const ValueId anchor_indices = expanded(e_.add("Unsqueeze", {order, e_.integers({2})}), {images_, count, {4}});
    const ValueId limit = image_limits(), boxes = gathered(decode_boxes(limit), anchor_indices);
    add_output(run_nms(boxes, limit, count), boxes, gathered(flat(e_[kProposalScores], {images_, num_anchors_}), order));
  }

 private:
  ValueId real(double value) { return e_.scalar(value, DType::float32); }
  ValueId expanded(ValueId id, const std::vector<Length>& shape) { return e_.add("Expand", {id, e_.sizes(shape)}); }
  ValueId gathered(ValueId id, ValueId indices) { return e_.add("GatherElements", {id, indices}, with({{"axis", int64_t{1}}})); }
  ValueId concat(ValueId a, ValueId b) { return e_.add("Concat", {a, b}, with({{"axis", int64_t{2}}})); }
  ValueId flat(ValueId id, const std::vector<Length>& shape) { return e_.reshaped(is_nchw_ ? e_.transposed(id, {0, 2, 3, 1}) : id, shape); }
  // Returns two elements of the last of three axes.
  ValueId slice_pair(ValueId id, int64_t first) {
    return e_.add("Slice", {id, e_.integers({first}), e_.integers({first + 2}), e_.integers({2})});
  }
  // Returns 0, 1, ... length - 1.
  ValueId make_range(const Length& length, DType dtype) {
    const ValueId end = e_.add("Squeeze", {e_.sizes({length}), e_.integers({0})});
    return e_.cast(e_.add("Range", {e_.scalar(0, DType::int64), end, e_.scalar(1, DType::int64)}), dtype);
  }
  // [images, 1, 2]: width and height.
  ValueId image_limits() {
    const ValueId width_height = e_.add("Gather", {as_float32(e_, kImages), e_.integers({1, 0})}, with({{"axis", int64_t{1}}}));
    return e_.add("Unsqueeze", {width_height, e_.integers({1})});
  }

  // Offsets of the anchors at each position, [positions, 1, 4].
  ValueId anchor_shifts() {
    const auto steps = [&](const Length& length, size_t stride, const std::vector<Length>& shape) {
      const ValueId all = e_.add("Mul", {make_range(length, DType::float32), real(e_.real(stride))});
      return expanded(e_.reshaped(all, shape), {height_, width_, {1}});
    };
    const ValueId across = steps(width_, kWidthStride, {{1}, width_, {1}}), down = steps(height_, kHeightStride, {height_, {1}, {1}});
    const ValueId xy_shifts = concat(across, down);
    return e_.reshaped(concat(xy_shifts, xy_shifts), {e_.product(height_, width_), {1}, {4}});
  }

  // Corners of all candidates [images, candidates, 4], clipped to their image.
  ValueId decode_boxes(ValueId limit) {
    const ValueId anchors = e_.reshaped(e_.add("Add", {as_float32(e_, kProposalAnchors), anchor_shifts()}), {{1}, num_anchors_, {4}});
    const ValueId deltas = flat(as_float32(e_, kDeltas), {images_, num_anchors_, {4}});
    const ValueId start = slice_pair(anchors, 0), end = slice_pair(anchors, 2), size = e_.add("Sub", {end, start});
    const ValueId center = e_.add("Mul", {e_.add("Add", {start, end}), real(0.5)});
    const ValueId at = e_.add("Add", {center, e_.add("Mul", {slice_pair(deltas, 0), size})});
    const ValueId half = e_.add("Mul", {e_.add("Mul", {size, e_.add("Exp", {slice_pair(deltas, 2)})}), real(0.5)});
    const auto clip = [&](ValueId id) { return e_.add("Min", {e_.add("Max", {id, real(0)}), limit}); };
    return concat(clip(e_.add("Sub", {at, half})), clip(e_.add("Add", {at, half})));
  }

  // 1 for boxes that are large enough and whose centre is in the image, else 0: [images, 1, boxes].
  ValueId valid_boxes(ValueId boxes, ValueId limit, const Length& count) {
    const ValueId start = slice_pair(boxes, 0), size = e_.add("Sub", {slice_pair(boxes, 2), start});
    const ValueId middle = e_.add("Add", {start, e_.add("Mul", {size, real(0.5)})});
    const ValueId fits = e_.add("And", {e_.add("Greater", {size, real(e_.real(kMinSize))}), e_.add("Less", {middle, limit})});
    const ValueId is_valid = e_.add("ReduceMin", {e_.cast(fits, DType::float32), e_.integers({2})}, with({{"keepdims", int64_t{0}}}));
    return e_.reshaped(is_valid, {images_, {1}, count});
  }

  // Runs NMS over boxes sorted by descending score. Returns 1 + the indices of the boxes kept, [images, most].
  ValueId run_nms(ValueId boxes, ValueId limit, const Length& count) {
    const double iou_threshold = e_.real(kMaxIou);
    const int64_t after = e_.integer(kMaxAfterNms);
    const Length max_kept = after < 0 ? count : e_.min_length({after}, count);
    // With a limit of 0 only one box remains, since all boxes have IoU >= 0.
    const Length nms_count = iou_threshold > 0 ? max_kept : e_.min_length(max_kept, {1});
    const ValueId order = expanded(make_range(count, DType::int64), {images_, {1}, count});
    // SelectBoxes drops boxes with IoU > limit; the NNAPI operation drops IoU >= limit.
    const double iou_limit = std::max(static_cast<double>(std::nextafter(static_cast<float>(iou_threshold), -1.0f)), 0.0);
    const ValueId kept_boxes =
        e_.add("pumice::SelectBoxes", {boxes, valid_boxes(boxes, limit, count), order, e_.sizes({nms_count}), real(iou_limit), real(0.5)});
    return e_.add("Squeeze", {kept_boxes, e_.integers({1})});
  }

  void add_output(ValueId kept_boxes, ValueId boxes, ValueId scores) {
    const ValueId kept_positions = e_.add("NonZero", {kept_boxes}), at = e_.transposed(kept_positions, {1, 0});
    const ValueId number = e_.add("Sub", {e_.add("GatherND", {kept_boxes, at}), e_.scalar(1, DType::int32)});
    const ValueId image = e_.add("Slice", {kept_positions, e_.integers({0}), e_.integers({1}), e_.integers({0})});
    const ValueId row = e_.add("Unsqueeze", {e_.cast(number, DType::int64), e_.integers({0})});
    const ValueId row_indices = e_.transposed(e_.add("Concat", {image, row}, with({{"axis", int64_t{0}}})), {1, 0});
    e_.add_output(e_.add("GatherND", {scores, row_indices}), e_.operand_quantization(kProposalScores));
    add_box_output(e_, e_.add("GatherND", {boxes, row_indices}), kProposalScores);
    e_.add_output(e_.cast(e_.add("Squeeze", {image, e_.integers({0})}), DType::int32));
  }

  Expansion& e_;
  const bool is_nchw_;
  const Length images_, height_, width_, num_anchors_;
};

void proposals(Expansion& e) {
  expect_types(e);
  ProposalBuilder(e).run();
}

}  // namespace

Operations proposal_operations() {
  constexpr DTypeSet reals = kFloat | kQuant;
  const auto number = [](std::string_view name) { return scalar(name, kFloat); };
  return {{"nnapi::GENERATE_PROPOSALS",
           3,
           "The best regions of each image, of anchors at every place, without those that overlap a better one too much. Outputs: scores, "
           "boxes and indices of images, as many as there are.",
           {tensor("scores", reals), tensor("deltas", reals), tensor("anchors", kFloat | set_of(DType::int16)),
            tensor("image_sizes", kFloat | set_of(DType::uint16)), number("height_stride"), number("width_stride"), scalar("most_before"),
            scalar("most_after"), number("overlap_threshold"), number("least_size"), scalar("nchw", kTruth)},
           {tensor("scores", reals), tensor("boxes", kFloat | set_of(DType::uint16)), tensor("batch_index", kInt)},
           proposals,
           {},
           check_proposals}};
}

}  // namespace pumice::nnapi
