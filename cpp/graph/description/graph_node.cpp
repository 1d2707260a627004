#include "graph/description/graph_node.h"

#include <algorithm>

#include "core/error.h"

namespace pumice {

std::string format_shape(const std::optional<Shape>& shape) {
  if (!shape) return "[...]";
  std::string text = "[";
  for (size_t axis = 0; axis < shape->size(); ++axis) {
    const int64_t size = (*shape)[axis];
    text += (axis ? ", " : "") + (size == kUnknownSize ? std::string("?") : std::to_string(size));
  }
  return text + "]";
}

std::string to_string(const GraphValue& value) {
  std::string text(name(value.dtype));
  const std::string quantized = value.quantization == Quantization{} ? "" : " with " + to_string(value.quantization);
  return text + format_shape(value.shape) + quantized;
}

bool GraphValue::is_known() const {
  return shape && std::find(shape->begin(), shape->end(), kUnknownSize) == shape->end();
}

Quantization validate_quantization(const std::string& user, DType dtype, const std::optional<Shape>& shape, Quantization parameters) {
  if (parameters == Quantization{}) return parameters;
  const auto fail = [&](const std::string& message) { throw GraphError(user, message + "; given " + to_string(parameters)); };
  if (parameters.scale.empty()) fail("a zero point or a channel axis is given without a scale");
  if (!is_integer(dtype) || bits(dtype) < 8 || bits(dtype) > 32) fail("a scale for elements of " + std::string(name(dtype)));
  if (parameters.channel_axis && !shape) fail("a channel axis needs a known rank");
  Shape sizes = parameters.channel_axis ? *shape : Shape{};
  std::ranges::replace(sizes, kUnknownSize,
                       std::ssize(parameters.scale));  // an unknown number of channels is taken to be the number of scales
  TensorDesc desc(dtype, std::move(sizes));
  desc.quantized(parameters);
  const int64_t zero = parameters.zero_point.value_or(0), sign = is_signed_integer(dtype) ? 1 : 0;
  const int64_t span = int64_t{1} << (bits(dtype) - sign);
  if (zero < -sign * span || zero >= span) fail("the zero point is not a valid " + std::string(name(dtype)));
  desc.zero_point = zero;
  return desc;
}

}  // namespace pumice
