#include "graph/nnapi/boxes.h"

namespace pumice::nnapi {

void expect_box_scale(const Expansion& e, size_t i) {
  if (e.dtype(i) != DType::uint16) return;
  const Quantization actual = e.quantization(i);
  if (actual.scale != std::vector<float>{kBoxScale} || actual.zero_point.value_or(0) != 0)
    e.fail(i, "ND1", "a scale of 0.125 and a zero point of 0 expected; given " + to_string(actual));
}

void expect_box_type(const Expansion& e, size_t boxes, size_t other, std::string_view rule) {
  const DType actual = e.dtype(boxes), other_dtype = e.dtype(other);
  if (contains(kQuant, other_dtype) ? actual == DType::uint16 : actual == other_dtype) return;
  e.fail(boxes, rule,
         std::string(contains(kQuant, other_dtype) ? "uint16" : name(other_dtype)) + " expected, as operand " + std::to_string(other) +
             " has dtype " + std::string(name(other_dtype)) + "; given " + std::string(name(actual)));
}

ValueId as_float32(Expansion& e, size_t i) {
  return e.cast(e.to_real(i), DType::float32);
}

void add_box_output(Expansion& e, ValueId id, size_t i) {
  if (!e.is_quantized(i)) return e.add_output(e.cast(id, e.dtype(i)));
  const Quantization quantization{{kBoxScale}, 0, {}};
  e.add_output(e.quantize(id, quantization, DType::uint16), quantization);
}

void check_boxes(const Operands& o, size_t i) {
  const HostTensor* elements = o.known_elements(i);
  if (!elements) return;
  const auto corners = elements->as_double();
  for (size_t k = 0; k + 3 < corners.size(); k += 4)
    if (!(corners[k] <= corners[k + 2] && corners[k + 1] <= corners[k + 3]))
      o.fail(i, "ND1", "corners [x1, y1, x2, y2] with x1 <= x2 and y1 <= y2 expected; given other corners in box " + std::to_string(k / 4));
}

void check_image_indices(Operands& o, size_t i, size_t images, std::string_view rule) {
  const auto& elements = o.facts()[i].elements;
  if (!elements) return;
  const auto size = o.size(images, 0);
  for (const int64_t index : elements->as_int64())
    if (index < 0 || (size && index >= *size))
      o.fail(i, rule,
             "non-negative image indices expected, below " + (size ? std::to_string(*size) : std::string("?")) + "; given " +
                 std::to_string(index));
}

}  // namespace pumice::nnapi
