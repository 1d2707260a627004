// NNAPI BOX_WITH_NMS_LIMIT: soft-NMS per class and image, keeping the best boxes.
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

void expect_non_negative_image_indices(Operands& o) {
  const auto actual = o.facts()[kLimitImages].elements;
  if (!actual) return;
  for (const int64_t index : actual->as_int64())
    if (index < 0) o.fail(kLimitImages, "N14.3", "non-negative image indices expected; given " + std::to_string(index));
}

void check_box_with_nms_limit(Operands& o) {
  const int64_t method = o.read_int(kLimitMethod);
  if (method < 0 || method > kLimitGaussian)
    o.fail(kLimitMethod, "N14.1", "0 (hard), 1 (linear) or 2 (gaussian) expected; given " + std::to_string(method));
  expect_ranks(o, kLimitScores, 2, 2);
  o.expect_rank(kLimitImages, 1);
  expect_equal_sizes(o, {{kLimitScores, 0}, {kLimitBoxes, 0}, {kLimitImages, 0}}, "N14.1");
  const auto classes = o.size(kLimitScores, 1), corners = o.size(kLimitBoxes, 1);
  if (classes && *classes < 2)
    o.fail(kLimitScores, "N14.1", "a background and at least one class expected; given " + o.format_shape(kLimitScores));
  if (classes && corners && *corners != 4 * *classes)
    o.fail(kLimitBoxes, "N14.1",
           std::to_string(4 * *classes) + " numbers in each row expected, four for each class; given " + o.format_shape(kLimitBoxes));
  check_boxes(o, kLimitBoxes);
  expect_non_negative_image_indices(o);
}

class BoxWithNmsLimitBuilder {
 public:
  explicit BoxWithNmsLimitBuilder(Expansion& e) : e_(e), classes_(e.length(kLimitScores, 1)), rows_(e.length(kLimitScores, 0)) {
    const ValueId labels = e.add("Sub", {e.add_sizes({classes_}), e.add_int64_vector({1})});
    slots_ = e.add("Mul", {e.add_sizes({rows_}), labels});
  }

  void run() {
    const ValueId boxes = e_.reshape(as_float32(e_, kLimitBoxes), {rows_, classes_, {4}});
    const std::string method = e_.read_int(kLimitMethod) == 0 ? "hard" : e_.read_int(kLimitMethod) == 1 ? "linear" : "gaussian";
    const Attributes numbers = make_attrs({{"method", method},
                                           {"most", e_.read_int(kLimitMaxBoxes)},
                                           {"threshold", e_.read_real(kLimitThreshold)},
                                           {"least", e_.read_real(kLimitMinScore)},
                                           {"overlap", e_.read_real(kLimitIou)},
                                           {"sigma", e_.read_real(kLimitSigma)}});
    const auto nms_outputs = e_.add_multi_output("pumice::SoftNMS", {boxes, as_float32(e_, kLimitScores), e_[kLimitImages]}, 4, numbers);
    ValueId selected_flags = nms_outputs[0], score = e_.bit_cast_to(nms_outputs[1], DType::float32);
    const bool is_limited = e_.read_int(kLimitMaxBoxes) > 0, may_reorder = e_.read_real(kLimitThreshold) < 0;
    if (is_limited || may_reorder) {
      const ValueId order = sort_by_score(selected_flags, score);
      if (is_limited) selected_flags = limit_detections_per_image(selected_flags, order, nms_outputs[2]);
      // Soft-NMS may raise negative scores, so boxes may be selected in an order that differs from that of their final scores.
      if (may_reorder) {
        const ValueId reordered = sort_slots_by(nms_outputs[3], order);
        selected_flags = gather(selected_flags, reordered), score = gather(score, reordered);
      }
    }
    add_output(selected_flags, score);
  }

 private:
  ValueId gather(ValueId id, ValueId indices) { return e_.add("Gather", {id, indices}, make_attrs({{"axis", int64_t{0}}})); }
  ValueId to_scalar(ValueId length) { return e_.cast(e_.add("Squeeze", {length, e_.add_int64_vector({0})}), DType::int32); }
  ValueId add_int(int64_t value) { return e_.add_scalar(static_cast<double>(value), DType::int32); }

  // Returns the slots sorted by descending score, unselected ones last; ties keep their order.
  ValueId sort_by_score(ValueId selected_flags, ValueId score) {
    const ValueId none = e_.add_scalar(-std::numeric_limits<double>::infinity(), DType::float32);
    const ValueId key = e_.add("Where", {e_.add("Greater", {selected_flags, add_int(0)}), score, none});
    return e_.add_multi_output("TopK", {key, slots_}, 2, {})[1];
  }

  // Reorders the slots in `order` with a stable sort by the keys `first`.
  ValueId sort_slots_by(ValueId first, ValueId order) {
    return gather(order, e_.add_multi_output("TopK", {gather(first, order), slots_}, 2, make_attrs({{"largest", int64_t{0}}}))[1]);
  }

  // Removes selected boxes beyond the limit per image. Slots are sorted by image, so an image's slots are contiguous.
  ValueId limit_detections_per_image(ValueId selected_flags, ValueId order, ValueId image_first) {
    const ValueId rank = e_.add("Sub", {e_.add("Range", {add_int(0), to_scalar(slots_), add_int(1)}), image_first});
    const ValueId is_kept = e_.cast(e_.add("Less", {rank, add_int(e_.read_int(kLimitMaxBoxes))}), DType::int32);
    const ValueId flags =
        e_.add("ScatterElements", {selected_flags, sort_slots_by(image_first, order), is_kept}, make_attrs({{"axis", int64_t{0}}}));
    return e_.add("Mul", {selected_flags, flags});
  }

  void add_output(ValueId selected_flags, ValueId score) {
    const ValueId selected = e_.add("Squeeze", {e_.add("NonZero", {selected_flags}), e_.add_int64_vector({0})});
    const ValueId box_index = e_.add("Sub", {gather(selected_flags, selected), add_int(1)}), classes = to_scalar(e_.add_sizes({classes_}));
    const ValueId scores = gather(score, selected);
    if (e_.is_quantized(kLimitScores)) {
      const Quantization quantization = e_.operand_quantization(kLimitScores);
      e_.add_output(e_.quantize(scores, quantization, e_.dtype(kLimitScores)), quantization);
    } else {
      e_.add_output(e_.cast(scores, e_.dtype(kLimitScores)));
    }
    const ValueId corners = e_.reshape(e_[kLimitBoxes], {e_.mul_lengths(rows_, classes_), {4}});
    e_.add_output(gather(corners, box_index), e_.quantization(kLimitBoxes));
    e_.add_output(e_.add("Mod", {box_index, classes}));
    e_.add_output(gather(e_[kLimitImages], e_.add("Div", {box_index, classes})));
  }

  Expansion& e_;
  const AxisLength classes_, rows_;
  ValueId slots_ = kAbsent;  // maximum number of selected boxes (rows * classes), as a vector of one element
};

void expand_box_nms_limit(Expansion& e) {
  expect_box_type(e, kLimitBoxes, kLimitScores, "N14.1");
  expect_box_scale(e, kLimitBoxes);
  if (const double sigma = e.read_real(kLimitSigma); e.read_int(kLimitMethod) == kLimitGaussian && !(sigma > 0))
    e.fail(kLimitSigma, "N14.1", "a positive number expected, as the method is gaussian; given " + format_general(sigma));
  BoxWithNmsLimitBuilder(e).run();
}

}  // namespace

Operations make_box_with_nms_limit_operations() {
  constexpr DTypeSet reals = kFloat | kQuant;
  return {{"nnapi::BOX_WITH_NMS_LIMIT",
           3,
           "The best boxes of each class but the first, and of each image, whose rows are adjacent; overlaps with better ones "
           "lower the scores of the others. Outputs: scores, boxes, classes and indices of images, as many as there are.",
           {tensor_arg("scores", reals), tensor_arg("boxes", kFloat | make_dtype_set(DType::uint16)), tensor_arg("batch_index", kInt),
            float_scalar_arg("score_threshold"), scalar_arg("most"), scalar_arg("method"), float_scalar_arg("overlap_threshold"),
            float_scalar_arg("sigma"), float_scalar_arg("least_score")},
           {tensor_arg("scores", reals), tensor_arg("boxes", kFloat | make_dtype_set(DType::uint16)), tensor_arg("classes", kInt),
            tensor_arg("batch_index", kInt)},
           expand_box_nms_limit,
           {},
           check_box_with_nms_limit}};
}

}  // namespace pumice::nnapi
