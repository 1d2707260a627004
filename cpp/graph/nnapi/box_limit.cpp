// BOX_WITH_NMS_LIMIT: soft-NMS per class and image, keeping the best boxes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/number_format.h"
#include "graph/nnapi/boxes.h"
#include "graph/nnapi/operations.h"
#include "graph/nnapi/recurrent_helpers.h"

namespace pumice::nnapi {
namespace {

constexpr size_t kLimitScores = 0, kLimitBoxes = 1, kLimitImages = 2, kLimitThreshold = 3, kLimitMaxBoxes = 4, kLimitMethod = 5,
                 kLimitIou = 6, kLimitSigma = 7, kLimitMinScore = 8;
constexpr int64_t kLimitGaussian = 2;

void expect_image_indices(Operands& o) {
  const auto actual = o.facts()[kLimitImages].elements;
  if (!actual) return;
  for (const int64_t index : actual->as_int64())
    if (index < 0) o.fail(kLimitImages, "N14.3", "indices of images from 0 on expected; given " + std::to_string(index));
}

void check_box_limit(Operands& o) {
  const int64_t method = o.integer(kLimitMethod);
  if (method < 0 || method > kLimitGaussian)
    o.fail(kLimitMethod, "N14.1", "0 (hard), 1 (linear) or 2 (gaussian) expected; given " + std::to_string(method));
  expect_ranks(o, kLimitScores, 2, 2);
  o.expect_rank(kLimitImages, 1);
  expect_equal_sizes(o, {{kLimitScores, 0}, {kLimitBoxes, 0}, {kLimitImages, 0}}, "N14.1");
  const auto classes = o.size(kLimitScores, 1), corners = o.size(kLimitBoxes, 1);
  if (classes && *classes < 2)
    o.fail(kLimitScores, "N14.1", "a background and at least one class expected; given " + o.shape_text(kLimitScores));
  if (classes && corners && *corners != 4 * *classes)
    o.fail(kLimitBoxes, "N14.1",
           std::to_string(4 * *classes) + " numbers in each row expected, four for each class; given " + o.shape_text(kLimitBoxes));
  check_boxes(o, kLimitBoxes);
  expect_image_indices(o);
}

class BoxLimit {
 public:
  explicit BoxLimit(Expansion& e) : e_(e), classes_(e.length(kLimitScores, 1)), rows_(e.length(kLimitScores, 0)) {
    const ValueId labels = e.add("Sub", {e.sizes({classes_}), e.integers({1})});
    slots_ = e.add("Mul", {e.sizes({rows_}), labels});
  }

  void run() {
    const ValueId boxes = e_.reshaped(as_float32(e_, kLimitBoxes), {rows_, classes_, {4}});
    const std::string method = e_.integer(kLimitMethod) == 0 ? "hard" : e_.integer(kLimitMethod) == 1 ? "linear" : "gaussian";
    const Attributes numbers = with({{"method", method},
                                     {"most", e_.integer(kLimitMaxBoxes)},
                                     {"threshold", e_.real(kLimitThreshold)},
                                     {"least", e_.real(kLimitMinScore)},
                                     {"overlap", e_.real(kLimitIou)},
                                     {"sigma", e_.real(kLimitSigma)}});
    const auto nms_outputs = e_.add_many("pumice::SuppressBoxes", {boxes, as_float32(e_, kLimitScores), e_[kLimitImages]}, 4, numbers);
    ValueId selected_flags = nms_outputs[0], score = e_.bit_cast_to(nms_outputs[1], DType::float32);
    const bool is_limited = e_.integer(kLimitMaxBoxes) > 0, may_reorder = e_.real(kLimitThreshold) < 0;
    if (is_limited || may_reorder) {
      const ValueId order = sort_by_score(selected_flags, score);
      if (is_limited) selected_flags = limit_per_image(selected_flags, order, nms_outputs[2]);
      // Soft-NMS may raise negative scores, so it may select boxes in an order that differs from that of their final scores.
      if (may_reorder) {
        const ValueId reordered = sort_slots_by(nms_outputs[3], order);
        selected_flags = gather(selected_flags, reordered), score = gather(score, reordered);
      }
    }
    add_output(selected_flags, score);
  }

 private:
  ValueId gather(ValueId id, ValueId indices) { return e_.add("Gather", {id, indices}, with({{"axis", int64_t{0}}})); }
  ValueId to_scalar(ValueId length) { return e_.cast(e_.add("Squeeze", {length, e_.integers({0})}), DType::int32); }
  ValueId number(int64_t value) { return e_.scalar(static_cast<double>(value), DType::int32); }

  // Slots by descending score, unselected ones last; ties keep their order.
  ValueId sort_by_score(ValueId selected_flags, ValueId score) {
    const ValueId none = e_.scalar(-std::numeric_limits<double>::infinity(), DType::float32);
    const ValueId key = e_.add("Where", {e_.add("Greater", {selected_flags, number(0)}), score, none});
    return e_.add_many("TopK", {key, slots_}, 2, {})[1];
  }

  // The same slots stably sorted by `first`.
  ValueId sort_slots_by(ValueId first, ValueId order) {
    return gather(order, e_.add_many("TopK", {gather(first, order), slots_}, 2, with({{"largest", int64_t{0}}}))[1]);
  }

  // Removes selected boxes beyond the limit per image. Slots are sorted by image, so those of one image are contiguous.
  ValueId limit_per_image(ValueId selected_flags, ValueId order, ValueId image_first) {
    const ValueId rank = e_.add("Sub", {e_.add("Range", {number(0), to_scalar(slots_), number(1)}), image_first});
    const ValueId is_kept = e_.cast(e_.add("Less", {rank, number(e_.integer(kLimitMaxBoxes))}), DType::int32);
    const ValueId flags =
        e_.add("ScatterElements", {selected_flags, sort_slots_by(image_first, order), is_kept}, with({{"axis", int64_t{0}}}));
    return e_.add("Mul", {selected_flags, flags});
  }

  void add_output(ValueId selected_flags, ValueId score) {
    const ValueId selected = e_.add("Squeeze", {e_.add("NonZero", {selected_flags}), e_.integers({0})});
    const ValueId box_index = e_.add("Sub", {gather(selected_flags, selected), number(1)}), classes = to_scalar(e_.sizes({classes_}));
    const ValueId scores = gather(score, selected);
    if (e_.is_quantized(kLimitScores)) {
      const Quantization quantization = e_.operand_quantization(kLimitScores);
      e_.add_output(e_.quantized(scores, quantization, e_.dtype(kLimitScores)), quantization);
    } else {
      e_.add_output(e_.cast(scores, e_.dtype(kLimitScores)));
    }
    const ValueId corners = e_.reshaped(e_[kLimitBoxes], {e_.product(rows_, classes_), {4}});
    e_.add_output(gather(corners, box_index), e_.quantization(kLimitBoxes));
    e_.add_output(e_.add("Mod", {box_index, classes}));
    e_.add_output(gather(e_[kLimitImages], e_.add("Div", {box_index, classes})));
  }

  Expansion& e_;
  const Length classes_, rows_;
  ValueId slots_ = kAbsent;  // total selection limit over all rows and classes, as a vector
};

void box_limit(Expansion& e) {
  expect_box_type(e, kLimitBoxes, kLimitScores, "N14.1");
  expect_box_scale(e, kLimitBoxes);
  if (const double sigma = e.real(kLimitSigma); e.integer(kLimitMethod) == kLimitGaussian && !(sigma > 0))
    e.fail(kLimitSigma, "N14.1", "a number above 0 expected, as the method is gaussian; given " + format_general(sigma));
  BoxLimit(e).run();
}

}  // namespace

Operations box_limit_operations() {
  constexpr DTypeSet reals = kFloat | kQuant;
  const auto number = [](std::string_view name) { return scalar(name, kFloat); };
  return {
      {"nnapi::BOX_WITH_NMS_LIMIT",
       3,
       "The best boxes of each class but the first, and of each image, whose rows stand beside each other; overlaps with better ones "
       "lower the scores of the others. Outputs: scores, boxes, classes and indices of images, as many as there are.",
       {tensor("scores", reals), tensor("boxes", kFloat | set_of(DType::uint16)), tensor("batch_index", kInt), number("score_threshold"),
        scalar("most"), scalar("method"), number("overlap_threshold"), number("sigma"), number("least_score")},
       {tensor("scores", reals), tensor("boxes", kFloat | set_of(DType::uint16)), tensor("classes", kInt), tensor("batch_index", kInt)},
       box_limit,
       {},
       check_box_limit}};
}

}  // namespace pumice::nnapi
