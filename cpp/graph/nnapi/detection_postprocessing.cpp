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

constexpr size_t kScores = 0, kCodes = 1, kAnchors = 2, kFactors = 3, kRegular = 7, kMost = 8, kMostClasses = 9, kMostOfClass = 10,
                 kScoreThreshold = 11, kOverlap = 12, kBackground = 13;

void expect_real(const Operands& o, size_t i, bool takes_zero) {
  const auto& elements = o.facts()[i].elements;
  if (!elements) o.refuse(i, "that is no constant");
  const double given = elements->as_double().at(0);
  if (!(takes_zero ? given >= 0 : given > 0))
    o.fail(i, "N16.1", std::string("a number ") + (takes_zero ? "of at least 0" : "above 0") + " expected; given " + general_text(given));
}

void expect_above_zero(const Operands& o, size_t i) {
  if (const int64_t given = o.integer(i); given < 1) o.fail(i, "N16.1", "a number above 0 expected; given " + std::to_string(given));
}

void check_postprocessing(Operands& o) {
  expect_ranks(o, kScores, 2, 3);
  o.expect_rank(kAnchors, 2);
  o.expect_size(kAnchors, 1, 4);
  expect_one_size(o, {{kScores, 0}, {kCodes, 0}}, "N16.1");
  expect_one_size(o, {{kScores, 1}, {kCodes, 1}, {kAnchors, 0}}, "N16.1");
  refuse_empty(o, "NG2");
  if (const auto classes = o.size(kScores, 2); classes && *classes < 2)
    o.fail(kScores, "N16.1", "a background and at least one class expected; given " + o.shape_text(kScores));
  if (const auto length = o.size(kCodes, 2); length && *length < 4)
    o.fail(kCodes, "N16.1", "at least 4 numbers for each box expected; given " + o.shape_text(kCodes));
  for (size_t i = kFactors; i < kRegular; ++i) expect_real(o, i, false);
  expect_above_zero(o, kMost);
  expect_above_zero(o, o.integer(kRegular) != 0 ? kMostOfClass : kMostClasses);
  for (const size_t i : {kScoreThreshold, kOverlap}) expect_real(o, i, true);
}

// Candidate detections per image; each array is [images, candidates]. Unused slots come last or have a score of -1.
struct Candidates {
  ValueId score, box, label, found;
};

class Detector {
 public:
  explicit Detector(Expansion& e) : e_(e), images_(e.size(kScores, 0)), anchors_(e.size(kScores, 1)), classes_(e.size(kScores, 2) - 1) {
    const ValueId scores = in_float32(e, kScores);
    const ValueId all = e.integers({classes_ + 1});
    scores_ = e.add("Slice", {scores, e.integers({1}), all, e.integers({2})});
    boxes_ = decoded();
  }

  void run() {
    const bool regular = e_.integer(kRegular) != 0;
    rows_ = e_.integer(kMost);
    if (!regular) rows_ = checked_mul(rows_, e_.integer(kMostClasses), "detections");
    give(regular ? best_of_all(of_each_class()) : first_of(of_each_anchor()));
  }

 private:
  ValueId real(double value) { return e_.scalar(value, DType::float32); }
  ValueId reshaped(ValueId id, const std::vector<int64_t>& shape) { return e_.add("Reshape", {id, e_.integers(shape)}); }
  ValueId expanded(ValueId id, const std::vector<int64_t>& shape) { return e_.add("Expand", {id, e_.integers(shape)}); }
  ValueId part(ValueId id, int64_t first, int64_t end, int64_t axis) {
    return e_.add("Slice", {id, e_.integers({first}), e_.integers({end}), e_.integers({axis})});
  }
  ValueId gathered(ValueId id, ValueId places, int64_t axis) { return e_.add("GatherElements", {id, places}, with({{"axis", axis}})); }
  std::vector<ValueId> best(ValueId id, int64_t count, int64_t axis) {
    return e_.add_many("TopK", {id, e_.integers({count})}, 2, with({{"axis", axis}}));
  }
  // Corners [images, anchors, 4] as (y, x, y, x).
  ValueId decoded() {
    const ValueId codes = in_float32(e_, kCodes), anchors = in_float32(e_, kAnchors);
    const auto over = [&](ValueId id, size_t first) {
      return e_.add("Div", {id, e_.numbers({e_.real(first), e_.real(first + 1)}, DType::float32)});
    };
    const ValueId size = part(anchors, 2, 4, 1);
    const ValueId moved = e_.add("Mul", {over(part(codes, 0, 2, 2), kFactors), size});
    const ValueId center = e_.add("Add", {part(anchors, 0, 2, 1), moved});
    const ValueId grown = e_.add("Mul", {size, e_.add("Exp", {over(part(codes, 2, 4, 2), kFactors + 2)})});
    const ValueId half = e_.add("Mul", {grown, real(0.5)});
    return e_.add("Concat", {e_.add("Sub", {center, half}), e_.add("Add", {center, half})}, with({{"axis", int64_t{2}}}));
  }

  // Returns, for each row of scores [images, rows, anchors], 1 + the indices of the boxes that NMS keeps: best first, then zeros.
  ValueId kept(ValueId scores, int64_t most) {
    const double overlap = e_.real(kOverlap);
    // SelectBoxes drops boxes with IoU > limit; the NNAPI operation drops IoU >= limit. With limit 0 only one box remains.
    const float below = std::nextafter(static_cast<float>(overlap), -1.0f);
    const ValueId count = e_.integers({overlap > 0 ? most : 1});
    const auto order = best(scores, anchors_, -1);
    return e_.add("pumice::SelectBoxes",
                  {boxes_, order[0], order[1], count, real(static_cast<double>(std::max(below, 0.0f))), real(e_.real(kScoreThreshold))});
  }
  int64_t kept_count(int64_t most) { return e_.real(kOverlap) > 0 ? std::min(most, anchors_) : 1; }

  ValueId place_of(ValueId kept) {
    return e_.add("Max", {e_.add("Sub", {e_.cast(kept, DType::int64), e_.integers({1})}), e_.integers({0})});
  }

  Candidates of_each_class() {
    const ValueId scores = e_.transposed(scores_, {0, 2, 1});
    const int64_t most = e_.integer(kMostOfClass), count = kept_count(most);
    const ValueId chosen = kept(scores, most), place = place_of(chosen);
    const std::vector<int64_t> flat{images_, classes_ * count};
    std::vector<double> labels;
    for (int64_t c = 0; c < classes_; ++c) labels.insert(labels.end(), static_cast<size_t>(count), static_cast<double>(c));
    return {reshaped(gathered(scores, place, 2), flat), reshaped(place, flat), expanded(e_.numbers(labels, DType::int64), flat),
            reshaped(e_.add("Greater", {chosen, e_.scalar(0, DType::int32)}), flat)};
  }

  // Returns the best classes of each anchor that NMS keeps based on its highest class score.
  Candidates of_each_anchor() {
    const auto top = e_.add("ReduceMax", {e_.transposed(scores_, {0, 2, 1}), e_.integers({1})}, with({{"keepdims", int64_t{1}}}));
    const int64_t most = e_.integer(kMost), count = kept_count(most), each = std::min(classes_, e_.integer(kMostClasses));
    const ValueId chosen = reshaped(kept(top, most), {images_, count, 1}), place = place_of(chosen);
    const auto classes = best(gathered(scores_, expanded(place, {images_, count, classes_}), 1), each, 2);
    const std::vector<int64_t> flat{images_, count * each}, whole{images_, count, each};
    const ValueId found = e_.add("Greater", {chosen, e_.scalar(0, DType::int32)});
    return {reshaped(classes[0], flat), reshaped(expanded(place, whole), flat), reshaped(classes[1], flat),
            reshaped(expanded(found, whole), flat)};
  }

  // Appends as many unused candidates as the table has rows.
  Candidates padded(const Candidates& c) {
    const auto behind = [&](ValueId id, double value) {
      const ValueId more = expanded(e_.scalar(value, e_.of(id).dtype), {images_, rows_});
      return e_.add("Concat", {id, more}, with({{"axis", int64_t{1}}}));
    };
    return {behind(c.score, 0), behind(c.box, 0), behind(c.label, 0), behind(c.found, 0)};
  }

  Candidates best_of_all(const Candidates& candidates) {
    const Candidates all = padded(candidates);
    const auto order = best(e_.add("Where", {all.found, all.score, real(-1)}), rows_, 1);
    const auto at = [&](ValueId id) { return gathered(id, order[1], 1); };
    return {at(all.score), at(all.box), at(all.label), at(all.found)};
  }

  Candidates first_of(const Candidates& candidates) {
    const Candidates all = padded(candidates);
    const auto first = [&](ValueId id) { return part(id, 0, rows_, 1); };
    return {first(all.score), first(all.box), first(all.label), first(all.found)};
  }

  void give(const Candidates& c) {
    const ValueId place = e_.add("Unsqueeze", {c.box, e_.integers({2})}), found = e_.add("Unsqueeze", {c.found, e_.integers({2})});
    const ValueId boxes = gathered(boxes_, expanded(place, {images_, rows_, 4}), 1);
    const ValueId first = e_.scalar(e_.integer(kBackground) != 0 ? 1 : 0, DType::int32);
    const ValueId label = e_.add("Add", {e_.cast(c.label, DType::int32), first});
    e_.give(e_.cast(e_.add("Where", {c.found, c.score, real(0)}), e_.dtype(kScores)));
    e_.give(e_.cast(e_.add("Where", {found, boxes, real(0)}), e_.dtype(kScores)));
    e_.give(e_.add("Where", {c.found, label, e_.scalar(0, DType::int32)}));
    e_.give(e_.add("ReduceSum", {e_.cast(c.found, DType::int32), e_.integers({1})}, with({{"keepdims", int64_t{0}}})));
  }

  Expansion& e_;
  int64_t images_, anchors_, classes_, rows_ = 0;
  ValueId scores_ = kAbsent, boxes_ = kAbsent;  // class scores without background [images, anchors, classes]; corners
};

void postprocessing(Expansion& e) {
  Detector(e).run();
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
