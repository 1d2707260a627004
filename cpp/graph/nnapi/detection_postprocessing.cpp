// Detection postprocessing: decodes boxes from anchors, applies NMS, and returns a table of fixed size.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/number_format.h"
#include "graph/nnapi/boxes.h"
#include "graph/nnapi/operations.h"
#include "graph/nnapi/recurrent_helpers.h"

namespace pumice::nnapi {
namespace {

constexpr size_t kScores = 0, kBoxCodes = 1, kAnchors = 2, kFactors = 3, kRegularNms = 7, kMaxDetections = 8, kMaxClasses = 9,
                 kMaxPerClass = 10, kScoreThreshold = 11, kIouThreshold = 12, kBackground = 13;

void expect_real(const Operands& o, size_t i, bool takes_zero) {
  const auto& elements = o.facts()[i].elements;
  if (!elements) o.reject(i, "that is no constant");
  const double actual = elements->as_double().at(0);
  if (!(takes_zero ? actual >= 0 : actual > 0))
    o.fail(i, "N16.1",
           std::string("a number ") + (takes_zero ? "of at least 0" : "above 0") + " expected; given " + format_general(actual));
}

void expect_above_zero(const Operands& o, size_t i) {
  if (const int64_t actual = o.integer(i); actual < 1) o.fail(i, "N16.1", "a number above 0 expected; given " + std::to_string(actual));
}

void check_postprocessing(Operands& o) {
  expect_ranks(o, kScores, 2, 3);
  o.expect_rank(kAnchors, 2);
  o.expect_size(kAnchors, 1, 4);
  expect_equal_sizes(o, {{kScores, 0}, {kBoxCodes, 0}}, "N16.1");
  expect_equal_sizes(o, {{kScores, 1}, {kBoxCodes, 1}, {kAnchors, 0}}, "N16.1");
  reject_empty(o, "NG2");
  if (const auto classes = o.size(kScores, 2); classes && *classes < 2)
    o.fail(kScores, "N16.1", "a background and at least one class expected; given " + o.shape_text(kScores));
  if (const auto length = o.size(kBoxCodes, 2); length && *length < 4)
    o.fail(kBoxCodes, "N16.1", "at least 4 numbers for each box expected; given " + o.shape_text(kBoxCodes));
  for (size_t i = kFactors; i < kRegularNms; ++i) expect_real(o, i, false);
  expect_above_zero(o, kMaxDetections);
  expect_above_zero(o, o.integer(kRegularNms) != 0 ? kMaxPerClass : kMaxClasses);
  for (const size_t i : {kScoreThreshold, kIouThreshold}) expect_real(o, i, true);
}

// Candidate detections per image; each array is [images, candidates]. Unused slots come last or have a score of -1.
struct Candidates {
  ValueId score, box, label, is_found;
};

class DetectionBuilder {
 public:
  explicit DetectionBuilder(Expansion& e)
      : e_(e), images_(e.size(kScores, 0)), anchors_(e.size(kScores, 1)), classes_(e.size(kScores, 2) - 1) {
    const ValueId scores = as_float32(e, kScores);
    const ValueId all = e.integers({classes_ + 1});
    scores_ = e.add("Slice", {scores, e.integers({1}), all, e.integers({2})});
    boxes_ = decode_boxes();
  }

  void run() {
    const bool regular = e_.integer(kRegularNms) != 0;
    rows_ = e_.integer(kMaxDetections);
    if (!regular) rows_ = checked_mul(rows_, e_.integer(kMaxClasses), "detections");
    add_output(regular ? take_best(per_class_candidates()) : take_first(per_anchor_candidates()));
  }

 private:
  ValueId real(double value) { return e_.scalar(value, DType::float32); }
  ValueId reshaped(ValueId id, const std::vector<int64_t>& shape) { return e_.add("Reshape", {id, e_.integers(shape)}); }
  ValueId expanded(ValueId id, const std::vector<int64_t>& shape) { return e_.add("Expand", {id, e_.integers(shape)}); }
  ValueId slice(ValueId id, int64_t first, int64_t end, int64_t axis) {
    return e_.add("Slice", {id, e_.integers({first}), e_.integers({end}), e_.integers({axis})});
  }
  ValueId gathered(ValueId id, ValueId places, int64_t axis) { return e_.add("GatherElements", {id, places}, with({{"axis", axis}})); }
  std::vector<ValueId> top_k(ValueId id, int64_t count, int64_t axis) {
    return e_.add_many("TopK", {id, e_.integers({count})}, 2, with({{"axis", axis}}));
  }
  // Corners [images, anchors, 4] as (y, x, y, x).
  ValueId decode_boxes() {
    const ValueId codes = as_float32(e_, kBoxCodes), anchors = as_float32(e_, kAnchors);
    const auto over = [&](ValueId id, size_t first) {
      return e_.add("Div", {id, e_.numbers({e_.real(first), e_.real(first + 1)}, DType::float32)});
    };
    const ValueId size = slice(anchors, 2, 4, 1);
    const ValueId moved = e_.add("Mul", {over(slice(codes, 0, 2, 2), kFactors), size});
    const ValueId center = e_.add("Add", {slice(anchors, 0, 2, 1), moved});
    const ValueId scaled_size = e_.add("Mul", {size, e_.add("Exp", {over(slice(codes, 2, 4, 2), kFactors + 2)})});
    const ValueId half = e_.add("Mul", {scaled_size, real(0.5)});
    return e_.add("Concat", {e_.add("Sub", {center, half}), e_.add("Add", {center, half})}, with({{"axis", int64_t{2}}}));
  }

  // Returns, for each row of scores [images, rows, anchors], 1 + the indices of the boxes that NMS keeps: best first, then zeros.
  ValueId run_nms(ValueId scores, int64_t max_kept) {
    const double iou_threshold = e_.real(kIouThreshold);
    // SelectBoxes drops boxes with IoU > limit; the NNAPI operation drops IoU >= limit. With limit 0 only one box remains.
    const float iou_limit = std::nextafter(static_cast<float>(iou_threshold), -1.0f);
    const ValueId count = e_.integers({iou_threshold > 0 ? max_kept : 1});
    const auto order = top_k(scores, anchors_, -1);
    return e_.add("pumice::SelectBoxes", {boxes_, order[0], order[1], count, real(static_cast<double>(std::max(iou_limit, 0.0f))),
                                          real(e_.real(kScoreThreshold))});
  }
  int64_t nms_count(int64_t max_kept) { return e_.real(kIouThreshold) > 0 ? std::min(max_kept, anchors_) : 1; }

  ValueId kept_indices(ValueId nms_result) {
    return e_.add("Max", {e_.add("Sub", {e_.cast(nms_result, DType::int64), e_.integers({1})}), e_.integers({0})});
  }

  Candidates per_class_candidates() {
    const ValueId scores = e_.transposed(scores_, {0, 2, 1});
    const int64_t max_kept = e_.integer(kMaxPerClass), count = nms_count(max_kept);
    const ValueId kept_boxes = run_nms(scores, max_kept), box_index = kept_indices(kept_boxes);
    const std::vector<int64_t> flat{images_, classes_ * count};
    std::vector<double> labels;
    for (int64_t c = 0; c < classes_; ++c) labels.insert(labels.end(), static_cast<size_t>(count), static_cast<double>(c));
    return {reshaped(gathered(scores, box_index, 2), flat), reshaped(box_index, flat), expanded(e_.numbers(labels, DType::int64), flat),
            reshaped(e_.add("Greater", {kept_boxes, e_.scalar(0, DType::int32)}), flat)};
  }

  // Returns the best classes of each anchor that NMS keeps based on its highest class score.
  Candidates per_anchor_candidates() {
    const auto top = e_.add("ReduceMax", {e_.transposed(scores_, {0, 2, 1}), e_.integers({1})}, with({{"keepdims", int64_t{1}}}));
    const int64_t max_kept = e_.integer(kMaxDetections), count = nms_count(max_kept), each = std::min(classes_, e_.integer(kMaxClasses));
    const ValueId kept_boxes = reshaped(run_nms(top, max_kept), {images_, count, 1}), box_index = kept_indices(kept_boxes);
    const auto classes = top_k(gathered(scores_, expanded(box_index, {images_, count, classes_}), 1), each, 2);
    const std::vector<int64_t> flat{images_, count * each}, whole{images_, count, each};
    const ValueId is_found = e_.add("Greater", {kept_boxes, e_.scalar(0, DType::int32)});
    return {reshaped(classes[0], flat), reshaped(expanded(box_index, whole), flat), reshaped(classes[1], flat),
            reshaped(expanded(is_found, whole), flat)};
  }

  // Appends as many unused candidates as the table has rows.
  Candidates padded(const Candidates& c) {
    const auto append_rows = [&](ValueId id, double value) {
      const ValueId more = expanded(e_.scalar(value, e_.of(id).dtype), {images_, rows_});
      return e_.add("Concat", {id, more}, with({{"axis", int64_t{1}}}));
    };
    return {append_rows(c.score, 0), append_rows(c.box, 0), append_rows(c.label, 0), append_rows(c.is_found, 0)};
  }

  Candidates take_best(const Candidates& candidates) {
    const Candidates all = padded(candidates);
    const auto order = top_k(e_.add("Where", {all.is_found, all.score, real(-1)}), rows_, 1);
    const auto at = [&](ValueId id) { return gathered(id, order[1], 1); };
    return {at(all.score), at(all.box), at(all.label), at(all.is_found)};
  }

  Candidates take_first(const Candidates& candidates) {
    const Candidates all = padded(candidates);
    const auto first = [&](ValueId id) { return slice(id, 0, rows_, 1); };
    return {first(all.score), first(all.box), first(all.label), first(all.is_found)};
  }

  void add_output(const Candidates& c) {
    const ValueId box_index = e_.add("Unsqueeze", {c.box, e_.integers({2})}),
                  is_found = e_.add("Unsqueeze", {c.is_found, e_.integers({2})});
    const ValueId boxes = gathered(boxes_, expanded(box_index, {images_, rows_, 4}), 1);
    const ValueId first = e_.scalar(e_.integer(kBackground) != 0 ? 1 : 0, DType::int32);
    const ValueId label = e_.add("Add", {e_.cast(c.label, DType::int32), first});
    e_.add_output(e_.cast(e_.add("Where", {c.is_found, c.score, real(0)}), e_.dtype(kScores)));
    e_.add_output(e_.cast(e_.add("Where", {is_found, boxes, real(0)}), e_.dtype(kScores)));
    e_.add_output(e_.add("Where", {c.is_found, label, e_.scalar(0, DType::int32)}));
    e_.add_output(e_.add("ReduceSum", {e_.cast(c.is_found, DType::int32), e_.integers({1})}, with({{"keepdims", int64_t{0}}})));
  }

  Expansion& e_;
  int64_t images_, anchors_, classes_, rows_ = 0;
  ValueId scores_ = kAbsent, boxes_ = kAbsent;  // class scores without background [images, anchors, classes]; corners
};

void postprocessing(Expansion& e) {
  DetectionBuilder(e).run();
}

}  // namespace

Operations postprocessing_operations() {
  const auto floats = [](std::string_view name) { return tensor(name, kFloat, 'T'); };
  const auto number = [](std::string_view name) { return scalar(name, kFloat); };
  return {{"nnapi::DETECTION_POSTPROCESSING",
           3,
           "Boxes of anchors, without those that overlap a better one too much. Outputs: the scores, corners and classes of the best, and "
           "how many there are; the rows behind them are zeros.",
           {floats("scores"), floats("box_codes"), floats("anchors"), number("y_scale"), number("x_scale"), number("height_scale"),
            number("width_scale"), scalar("regular", kTruth), scalar("most"), scalar("most_classes"), scalar("most_of_class"),
            number("score_threshold"), number("overlap_threshold"), scalar("background_in_labels", kTruth)},
           {floats("scores"), floats("boxes"), tensor("classes", kInt), tensor("counts", kInt)},
           postprocessing,
           {},
           check_postprocessing}};
}

}  // namespace pumice::nnapi
