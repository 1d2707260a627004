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

constexpr size_t kProposalScores = 0, kDeltas = 1, kProposalAnchors = 2, kImages = 3, kHeightStride = 4, kWidthStride = 5, kMostBefore = 6,
                 kMostAfter = 7, kMostOverlap = 8, kLeastSize = 9, kPlanes = 10;

void check_proposals(Operands& o) {
  expect_ranks(o, kProposalScores, 2, 4);
  expect_ranks(o, kProposalAnchors, 2, 2);
  o.expect_size(kProposalAnchors, 1, 4);
  o.expect_size(kImages, 1, 2);
  const bool planes = o.integer(kPlanes) != 0;
  const size_t row = planes ? 2 : 1, channel = planes ? 1 : 3;
  expect_one_size(o, {{kProposalScores, 0}, {kDeltas, 0}, {kImages, 0}}, "N15.1");
  expect_one_size(o, {{kProposalScores, row}, {kDeltas, row}}, "N15.1");
  expect_one_size(o, {{kProposalScores, row + 1}, {kDeltas, row + 1}}, "N15.1");
  expect_one_size(o, {{kProposalScores, channel}, {kProposalAnchors, 0}}, "N15.1");
  const auto anchors = o.size(kProposalScores, channel), deltas = o.size(kDeltas, channel);
  if (anchors && deltas && *deltas != 4 * *anchors)
    o.fail(kDeltas, "N15.1",
           std::to_string(4 * *anchors) + " numbers at each place expected, four for each anchor; given " + o.shape_text(kDeltas));
  refuse_empty(o, "NG2");
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
    const Quantization given = e.quantization(i);
    if (given.scale != std::vector<float>{kBoxScale} || given.zero_point.value_or(0) != 0)
      e.fail(i, "N15.1", "a scale of 0.125 and a zero point of 0 expected; given " + to_string(given));
  };
  expect(kDeltas, scores);
  expect(kProposalAnchors, bytes ? DType::int16 : scores);
  expect(kImages, bytes ? DType::uint16 : scores);
}

class Proposals {
 public:
  explicit Proposals(Expansion& e)
      : e_(e),
        planes_(e.integer(kPlanes) != 0),
        images_(e.length(kProposalScores, 0)),
        height_(e.length(kProposalScores, planes_ ? 2 : 1)),
        width_(e.length(kProposalScores, planes_ ? 3 : 2)),
        places_(e.product(e.product(height_, width_), e.length(kProposalAnchors, 0))) {}

  void run() {
    const int64_t before = e_.integer(kMostBefore);
    const Length count = before > 0 ? e_.least_of({before}, places_) : places_;
    const ValueId scores = e_.cast(flat(in_float32(e_, kProposalScores), {images_, places_}), DType::float32);
    const ValueId order = e_.add_many("TopK", {scores, e_.sizes({count})}, 2, with({{"axis", int64_t{1}}}))[1];
    const ValueId place = expanded(e_.add("Unsqueeze", {order, e_.integers({2})}), {images_, count, {4}});
    const ValueId limit = turned_sizes(), boxes = gathered(moved(limit), place);
    give(kept(boxes, limit, count), boxes, gathered(flat(e_[kProposalScores], {images_, places_}), order));
  }

 private:
  ValueId real(double value) { return e_.scalar(value, DType::float32); }
  ValueId expanded(ValueId id, const std::vector<Length>& shape) { return e_.add("Expand", {id, e_.sizes(shape)}); }
  ValueId gathered(ValueId id, ValueId places) { return e_.add("GatherElements", {id, places}, with({{"axis", int64_t{1}}})); }
  ValueId joined(ValueId a, ValueId b) { return e_.add("Concat", {a, b}, with({{"axis", int64_t{2}}})); }
  ValueId flat(ValueId id, const std::vector<Length>& shape) { return e_.reshaped(planes_ ? e_.transposed(id, {0, 2, 3, 1}) : id, shape); }
  // Returns two elements of the last of three axes.
  ValueId pair(ValueId id, int64_t first) {
    return e_.add("Slice", {id, e_.integers({first}), e_.integers({first + 2}), e_.integers({2})});
  }
  // Returns 0, 1, ... length - 1.
  ValueId numbers_to(const Length& length, DType dtype) {
    const ValueId end = e_.add("Squeeze", {e_.sizes({length}), e_.integers({0})});
    return e_.cast(e_.add("Range", {e_.scalar(0, DType::int64), end, e_.scalar(1, DType::int64)}), dtype);
  }
  // [images, 1, 2]: width and height.
  ValueId turned_sizes() {
    const ValueId turned = e_.add("Gather", {in_float32(e_, kImages), e_.integers({1, 0})}, with({{"axis", int64_t{1}}}));
    return e_.add("Unsqueeze", {turned, e_.integers({1})});
  }

  // Offsets of the anchors at each position, [positions, 1, 4].
  ValueId shifts() {
    const auto steps = [&](const Length& length, size_t stride, const std::vector<Length>& shape) {
      const ValueId all = e_.add("Mul", {numbers_to(length, DType::float32), real(e_.real(stride))});
      return expanded(e_.reshaped(all, shape), {height_, width_, {1}});
    };
    const ValueId across = steps(width_, kWidthStride, {{1}, width_, {1}}), down = steps(height_, kHeightStride, {height_, {1}, {1}});
    const ValueId both = joined(across, down);
    return e_.reshaped(joined(both, both), {e_.product(height_, width_), {1}, {4}});
  }

  // Corners of all candidates [images, candidates, 4], clipped to their image.
  ValueId moved(ValueId limit) {
    const ValueId anchors = e_.reshaped(e_.add("Add", {in_float32(e_, kProposalAnchors), shifts()}), {{1}, places_, {4}});
    const ValueId deltas = flat(in_float32(e_, kDeltas), {images_, places_, {4}});
    const ValueId start = pair(anchors, 0), end = pair(anchors, 2), size = e_.add("Sub", {end, start});
    const ValueId center = e_.add("Mul", {e_.add("Add", {start, end}), real(0.5)});
    const ValueId at = e_.add("Add", {center, e_.add("Mul", {pair(deltas, 0), size})});
    const ValueId half = e_.add("Mul", {e_.add("Mul", {size, e_.add("Exp", {pair(deltas, 2)})}), real(0.5)});
    const auto held = [&](ValueId id) { return e_.add("Min", {e_.add("Max", {id, real(0)}), limit}); };
    return joined(held(e_.add("Sub", {at, half})), held(e_.add("Add", {at, half})));
  }

  // 1 for boxes that are large enough and whose centre is in the image, else 0: [images, 1, boxes].
  ValueId fitting(ValueId boxes, ValueId limit, const Length& count) {
    const ValueId start = pair(boxes, 0), size = e_.add("Sub", {pair(boxes, 2), start});
    const ValueId middle = e_.add("Add", {start, e_.add("Mul", {size, real(0.5)})});
    const ValueId fits = e_.add("And", {e_.add("Greater", {size, real(e_.real(kLeastSize))}), e_.add("Less", {middle, limit})});
    const ValueId both = e_.add("ReduceMin", {e_.cast(fits, DType::float32), e_.integers({2})}, with({{"keepdims", int64_t{0}}}));
    return e_.reshaped(both, {images_, {1}, count});
  }

  // Runs NMS over boxes sorted by descending score. Returns 1 + the indices of the boxes kept, [images, most].
  ValueId kept(ValueId boxes, ValueId limit, const Length& count) {
    const double overlap = e_.real(kMostOverlap);
    const int64_t after = e_.integer(kMostAfter);
    const Length wanted = after < 0 ? count : e_.least_of({after}, count);
    // With a limit of 0 only one box remains, since all boxes have IoU >= 0.
    const Length most = overlap > 0 ? wanted : e_.least_of(wanted, {1});
    const ValueId order = expanded(numbers_to(count, DType::int64), {images_, {1}, count});
    // SelectBoxes drops boxes with IoU > limit; the NNAPI operation drops IoU >= limit.
    const double below = std::max(static_cast<double>(std::nextafter(static_cast<float>(overlap), -1.0f)), 0.0);
    const ValueId chosen =
        e_.add("pumice::SelectBoxes", {boxes, fitting(boxes, limit, count), order, e_.sizes({most}), real(below), real(0.5)});
    return e_.add("Squeeze", {chosen, e_.integers({1})});
  }

  void give(ValueId chosen, ValueId boxes, ValueId scores) {
    const ValueId found = e_.add("NonZero", {chosen}), at = e_.transposed(found, {1, 0});
    const ValueId number = e_.add("Sub", {e_.add("GatherND", {chosen, at}), e_.scalar(1, DType::int32)});
    const ValueId image = e_.add("Slice", {found, e_.integers({0}), e_.integers({1}), e_.integers({0})});
    const ValueId row = e_.add("Unsqueeze", {e_.cast(number, DType::int64), e_.integers({0})});
    const ValueId places = e_.transposed(e_.add("Concat", {image, row}, with({{"axis", int64_t{0}}})), {1, 0});
    e_.give(e_.add("GatherND", {scores, places}), e_.as_operand(kProposalScores));
    give_boxes(e_, e_.add("GatherND", {boxes, places}), kProposalScores);
    e_.give(e_.cast(e_.add("Squeeze", {image, e_.integers({0})}), DType::int32));
  }

  Expansion& e_;
  const bool planes_;
  const Length images_, height_, width_, places_;
};

void proposals(Expansion& e) {
  expect_types(e);
  Proposals(e).run();
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
