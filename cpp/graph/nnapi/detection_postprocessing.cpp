// NNAPI DETECTION_POSTPROCESSING: decodes boxes from anchors, runs NMS, and returns a table of fixed size.
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

void expect_number(const Operands& o, size_t i, bool allow_zero) {
  const auto& elements = o.facts()[i].elements;
  if (!elements) o.reject(i, "which is not a constant");
  const double actual = elements->as_double().at(0);
  if (!(allow_zero ? actual >= 0 : actual > 0))
    o.fail(i, "N16.1", std::string(allow_zero ? "a non-negative" : "a positive") + " number expected; given " + format_general(actual));
}

void expect_positive_integer(const Operands& o, size_t i) {
  if (const int64_t actual = o.read_int(i); actual < 1) o.fail(i, "N16.1", "a positive number expected; given " + std::to_string(actual));
}

void check_postprocessing(Operands& o) {
  expect_ranks(o, kScores, 2, 3);
  o.expect_rank(kAnchors, 2);
  o.expect_size(kAnchors, 1, 4);
  expect_equal_sizes(o, {{kScores, 0}, {kBoxCodes, 0}}, "N16.1");
  expect_equal_sizes(o, {{kScores, 1}, {kBoxCodes, 1}, {kAnchors, 0}}, "N16.1");
  reject_empty(o, "NG2");
  if (const auto classes = o.size(kScores, 2); classes && *classes < 2)
    o.fail(kScores, "N16.1", "a background and at least one class expected; given " + o.format_shape(kScores));
  if (const auto length = o.size(kBoxCodes, 2); length && *length < 4)
    o.fail(kBoxCodes, "N16.1", "at least 4 numbers for each box expected; given " + o.format_shape(kBoxCodes));
  for (size_t i = kFactors; i < kRegularNms; ++i) expect_number(o, i, false);
  expect_positive_integer(o, kMaxDetections);
  expect_positive_integer(o, o.read_int(kRegularNms) != 0 ? kMaxPerClass : kMaxClasses);
  for (const size_t i : {kScoreThreshold, kIouThreshold}) expect_number(o, i, true);
}

// Candidate detections; each array is [images, candidates]. Unused candidates come last or have a score of -1.
struct DetectionCandidates {
  ValueId score, box, label, is_found;
};

class DetectionBuilder {
 public:
  explicit DetectionBuilder(Expansion& e)
      : e_(e), images_(e.size(kScores, 0)), anchors_(e.size(kScores, 1)), classes_(e.size(kScores, 2) - 1) {
    const ValueId scores = as_float32(e, kScores);
    const ValueId all = e.add_int64_vector({classes_ + 1});
    scores_ = e.add("Slice", {scores, e.add_int64_vector({1}), all, e.add_int64_vector({2})});
    boxes_ = decode_boxes();
  }

  void run() {
    const bool regular = e_.read_int(kRegularNms) != 0;
    rows_ = e_.read_int(kMaxDetections);
    if (!regular) rows_ = checked_mul(rows_, e_.read_int(kMaxClasses), "detections");
    add_output(regular ? select_best_detections(make_per_class_candidates()) : select_first_detections(make_per_anchor_candidates()));
  }

 private:
  ValueId add_float(double value) { return e_.add_scalar(value, DType::float32); }
  ValueId reshape(ValueId id, const std::vector<int64_t>& shape) { return e_.add("Reshape", {id, e_.add_int64_vector(shape)}); }
  ValueId expand(ValueId id, const std::vector<int64_t>& shape) { return e_.add("Expand", {id, e_.add_int64_vector(shape)}); }
  ValueId slice(ValueId id, int64_t first, int64_t end, int64_t axis) {
    return e_.add("Slice", {id, e_.add_int64_vector({first}), e_.add_int64_vector({end}), e_.add_int64_vector({axis})});
  }
  ValueId gather_elements(ValueId id, ValueId indices, int64_t axis) {
    return e_.add("GatherElements", {id, indices}, make_attrs({{"axis", axis}}));
  }
  std::vector<ValueId> top_k(ValueId id, int64_t count, int64_t axis) {
    return e_.add_multi_output("TopK", {id, e_.add_int64_vector({count})}, 2, make_attrs({{"axis", axis}}));
  }
  // Returns the corners of the boxes, [images, anchors, 4], as (y, x, y, x).
  ValueId decode_boxes() {
    const ValueId codes = as_float32(e_, kBoxCodes), anchors = as_float32(e_, kAnchors);
    const auto over = [&](ValueId id, size_t first) {
      return e_.add("Div", {id, e_.add_vector({e_.read_real(first), e_.read_real(first + 1)}, DType::float32)});
    };
    const ValueId size = slice(anchors, 2, 4, 1);
    const ValueId moved = e_.add("Mul", {over(slice(codes, 0, 2, 2), kFactors), size});
    const ValueId center = e_.add("Add", {slice(anchors, 0, 2, 1), moved});
    const ValueId scaled_size = e_.add("Mul", {size, e_.add("Exp", {over(slice(codes, 2, 4, 2), kFactors + 2)})});
    const ValueId half = e_.add("Mul", {scaled_size, add_float(0.5)});
    return e_.add("Concat", {e_.add("Sub", {center, half}), e_.add("Add", {center, half})}, make_attrs({{"axis", int64_t{2}}}));
  }

  // Runs NMS on each row of scores [images, rows, anchors]. Returns 1 + the indices of the boxes it keeps, best first, then zeros.
  ValueId run_nms(ValueId scores, int64_t max_kept) {
    const double iou_threshold = e_.read_real(kIouThreshold);
    // NMS drops boxes with IoU > limit; the NNAPI operation drops IoU >= limit. With limit 0 only one box remains.
    const float iou_limit = std::nextafter(static_cast<float>(iou_threshold), -1.0f);
    const ValueId count = e_.add_int64_vector({iou_threshold > 0 ? max_kept : 1});
    const auto order = top_k(scores, anchors_, -1);
    return e_.add("pumice::NMS", {boxes_, order[0], order[1], count, add_float(static_cast<double>(std::max(iou_limit, 0.0f))),
                                  add_float(e_.read_real(kScoreThreshold))});
  }
  int64_t compute_nms_count(int64_t max_kept) { return e_.read_real(kIouThreshold) > 0 ? std::min(max_kept, anchors_) : 1; }

  ValueId get_kept_indices(ValueId nms_result) {
    return e_.add("Max", {e_.add("Sub", {e_.cast(nms_result, DType::int64), e_.add_int64_vector({1})}), e_.add_int64_vector({0})});
  }

  DetectionCandidates make_per_class_candidates() {
    const ValueId scores = e_.transpose(scores_, {0, 2, 1});
    const int64_t max_kept = e_.read_int(kMaxPerClass), count = compute_nms_count(max_kept);
    const ValueId kept_boxes = run_nms(scores, max_kept), box_index = get_kept_indices(kept_boxes);
    const std::vector<int64_t> flat{images_, classes_ * count};
    std::vector<double> labels;
    for (int64_t c = 0; c < classes_; ++c) labels.insert(labels.end(), static_cast<size_t>(count), static_cast<double>(c));
    return {reshape(gather_elements(scores, box_index, 2), flat), reshape(box_index, flat),
            expand(e_.add_vector(labels, DType::int64), flat),
            reshape(e_.add("Greater", {kept_boxes, e_.add_scalar(0, DType::int32)}), flat)};
  }

  // Returns the best classes of each anchor that NMS keeps. NMS uses the highest class score of each anchor.
  DetectionCandidates make_per_anchor_candidates() {
    const auto top =
        e_.add("ReduceMax", {e_.transpose(scores_, {0, 2, 1}), e_.add_int64_vector({1})}, make_attrs({{"keepdims", int64_t{1}}}));
    const int64_t max_kept = e_.read_int(kMaxDetections), count = compute_nms_count(max_kept),
                  each = std::min(classes_, e_.read_int(kMaxClasses));
    const ValueId kept_boxes = reshape(run_nms(top, max_kept), {images_, count, 1}), box_index = get_kept_indices(kept_boxes);
    const auto classes = top_k(gather_elements(scores_, expand(box_index, {images_, count, classes_}), 1), each, 2);
    const std::vector<int64_t> flat{images_, count * each}, per_anchor{images_, count, each};
    const ValueId is_found = e_.add("Greater", {kept_boxes, e_.add_scalar(0, DType::int32)});
    return {reshape(classes[0], flat), reshape(expand(box_index, per_anchor), flat), reshape(classes[1], flat),
            reshape(expand(is_found, per_anchor), flat)};
  }

  // Appends unused candidates, as many as the table has rows.
  DetectionCandidates pad_candidates(const DetectionCandidates& c) {
    const auto append_rows = [&](ValueId id, double value) {
      const ValueId more = expand(e_.add_scalar(value, e_.value_of(id).dtype), {images_, rows_});
      return e_.add("Concat", {id, more}, make_attrs({{"axis", int64_t{1}}}));
    };
    return {append_rows(c.score, 0), append_rows(c.box, 0), append_rows(c.label, 0), append_rows(c.is_found, 0)};
  }

  DetectionCandidates select_best_detections(const DetectionCandidates& candidates) {
    const DetectionCandidates all = pad_candidates(candidates);
    const auto order = top_k(e_.add("Where", {all.is_found, all.score, add_float(-1)}), rows_, 1);
    const auto at = [&](ValueId id) { return gather_elements(id, order[1], 1); };
    return {at(all.score), at(all.box), at(all.label), at(all.is_found)};
  }

  DetectionCandidates select_first_detections(const DetectionCandidates& candidates) {
    const DetectionCandidates all = pad_candidates(candidates);
    const auto first = [&](ValueId id) { return slice(id, 0, rows_, 1); };
    return {first(all.score), first(all.box), first(all.label), first(all.is_found)};
  }

  void add_output(const DetectionCandidates& c) {
    const ValueId box_index = e_.add("Unsqueeze", {c.box, e_.add_int64_vector({2})}),
                  is_found = e_.add("Unsqueeze", {c.is_found, e_.add_int64_vector({2})});
    const ValueId boxes = gather_elements(boxes_, expand(box_index, {images_, rows_, 4}), 1);
    const ValueId first = e_.add_scalar(e_.read_int(kBackground) != 0 ? 1 : 0, DType::int32);
    const ValueId label = e_.add("Add", {e_.cast(c.label, DType::int32), first});
    e_.add_output(e_.cast(e_.add("Where", {c.is_found, c.score, add_float(0)}), e_.dtype(kScores)));
    e_.add_output(e_.cast(e_.add("Where", {is_found, boxes, add_float(0)}), e_.dtype(kScores)));
    e_.add_output(e_.add("Where", {c.is_found, label, e_.add_scalar(0, DType::int32)}));
    e_.add_output(
        e_.add("ReduceSum", {e_.cast(c.is_found, DType::int32), e_.add_int64_vector({1})}, make_attrs({{"keepdims", int64_t{0}}})));
  }

  Expansion& e_;
  int64_t images_, anchors_, classes_, rows_ = 0;
  ValueId scores_ = kAbsent,
          boxes_ = kAbsent;  // scores_: class scores without background, [images, anchors, classes]; boxes_: their corners
};

void expand_detection_postprocessing(Expansion& e) {
  DetectionBuilder(e).run();
}

}  // namespace

Operations make_postprocessing_operations() {
  return {{"nnapi::DETECTION_POSTPROCESSING",
           3,
           "Boxes of anchors, without those that overlap a better one too much. Outputs: the scores, corners and classes of the best, and "
           "how many there are; the rows behind them are zeros.",
           {float_tensor_arg("scores"), float_tensor_arg("box_codes"), float_tensor_arg("anchors"), float_scalar_arg("y_scale"),
            float_scalar_arg("x_scale"), float_scalar_arg("height_scale"), float_scalar_arg("width_scale"), scalar_arg("regular", kTruth),
            scalar_arg("most"), scalar_arg("most_classes"), scalar_arg("most_of_class"), float_scalar_arg("score_threshold"),
            float_scalar_arg("overlap_threshold"), scalar_arg("background_in_labels", kTruth)},
           {float_tensor_arg("scores"), float_tensor_arg("boxes"), tensor_arg("classes", kInt), tensor_arg("counts", kInt)},
           expand_detection_postprocessing,
           {},
           check_postprocessing}};
}

}  // namespace pumice::nnapi
