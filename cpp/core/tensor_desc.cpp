#include "core/tensor_desc.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/half.h"
#include "core/low_bit_float.h"
#include "core/mapped_file.h"
#include "core/number_format.h"

namespace pumice {
namespace {

bool is_power_of_two(uint64_t value) {
  return value != 0 && (value & (value - 1)) == 0;
}

// Returns the trailing padding: total_bytes minus the minimum size (R5, R6).
uint64_t compute_padding_bytes(const TensorDesc& desc, uint64_t total_bytes) {
  if (total_bytes % 4 != 0) throw GraphError("total_bytes", "expected a multiple of 4; given " + std::to_string(total_bytes), "R5");
  const uint64_t minimum = desc.minimum_bytes();
  if (total_bytes < minimum)
    throw GraphError("total_bytes",
                     "expected at least the " + std::to_string(minimum) + " bytes that " + to_string(desc) + " spans; given " +
                         std::to_string(total_bytes),
                     "R6");
  return total_bytes - minimum;
}

void check_alignment(DType dtype, uint64_t alignment) {
  if (alignment == 0) return;
  const uint64_t element = static_cast<uint64_t>(std::max(bits(dtype) / 8, 1));
  if (!is_power_of_two(alignment) || alignment < element)
    throw GraphError("alignment",
                     "0 or a power of two of at least " + std::to_string(element) + " bytes; given " + std::to_string(alignment), "R4");
}

template <typename T>
T read_element(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

// Reads the code of element `i` of a packed dtype of at most 8 bits.
uint32_t read_code(DType dtype, const std::byte* data, int64_t i) {
  const int64_t width = bits(dtype), bit = i * width;
  return static_cast<uint32_t>(data[bit / 8]) >> bit % 8 & ((1u << width) - 1);
}

int64_t read_low_bit_integer(DType dtype, const std::byte* data, int64_t i) {
  const int64_t lane = read_code(dtype, data, i), end = int64_t{1} << bits(dtype);
  return is_signed_integer(dtype) && lane >= end / 2 ? lane - end : lane;
}

int64_t read_integer(DType dtype, const std::byte* data, int64_t i) {
  switch (dtype) {
    case DType::int64:
      return read_element<int64_t>(data, i);
    case DType::uint64:
      return static_cast<int64_t>(read_element<uint64_t>(data, i));
    case DType::int32:
      return read_element<int32_t>(data, i);
    case DType::uint32:
      return read_element<uint32_t>(data, i);
    case DType::int16:
      return read_element<int16_t>(data, i);
    case DType::uint16:
      return read_element<uint16_t>(data, i);
    case DType::int8:
      return read_element<int8_t>(data, i);
    case DType::uint8:
      return read_element<uint8_t>(data, i);
    case DType::bool_:
      return read_element<uint8_t>(data, i) != 0;
    default:
      if (contains(kLowBitIntegers, dtype)) return read_low_bit_integer(dtype, data, i);
      throw GraphError("", "expected integers; given " + std::string(name(dtype)));
  }
}

double read_as_double(DType dtype, const std::byte* data, int64_t i) {
  switch (dtype) {
    case DType::float64:
      return read_element<double>(data, i);
    case DType::float32:
      return read_element<float>(data, i);
    case DType::float16:
      return float_from_half(read_element<uint16_t>(data, static_cast<int64_t>(i)));
    case DType::bfloat16:
      return float_from_bfloat16(read_element<uint16_t>(data, static_cast<int64_t>(i)));
    case DType::uint64:
      return static_cast<double>(read_element<uint64_t>(data, i));
    default:
      if (contains(kLowBitFloats, dtype)) return get_low_bit_float_format(dtype).decode(read_code(dtype, data, i));
      return static_cast<double>(read_integer(dtype, data, i));
  }
}

constexpr size_t kConvertChunkBytes = 16384;

float read_as_float(DType dtype, const std::byte* data, int64_t i) {
  if (dtype == DType::float32) return read_element<float>(data, i);
  const auto bits16 = read_element<uint16_t>(data, i);
  return dtype == DType::float16 ? float_from_half(bits16) : float_from_bfloat16(bits16);
}

// Clamps to the finite range of the dtype: attention masks contain the lowest float32, and 0 * -infinity is NaN.
float saturate_to(DType dtype, float value) {
  if (dtype == DType::float32 || !std::isfinite(value)) return value;
  const float largest = dtype == DType::float16 ? 65504.0f : 0x1.fep127f;
  return std::clamp(value, -largest, largest);
}

// Converts between fp32, fp16 and bf16.
void convert_floats(DType from, const std::byte* source, DType to, std::byte* target, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float value = saturate_to(to, read_as_float(from, source, static_cast<int64_t>(i)));
    if (to == DType::float32) {
      std::memcpy(target + i * 4, &value, 4);
      continue;
    }
    const uint16_t rounded = to == DType::float16 ? half_from_float(value) : bfloat16_from_float(value);
    std::memcpy(target + i * 2, &rounded, 2);
  }
}

}  // namespace

uint64_t buffer_size(DType dtype, const Shape& shape, const Strides* strides) {
  check_shape(shape);
  if (strides) check_strides(shape, *strides);
  const int64_t reached = strides ? count_span_elements(shape, *strides) : element_count(shape);
  const int64_t total_bits = checked_mul(reached, bits(dtype), "buffer size");
  return (static_cast<uint64_t>(total_bits) + 31) / 32 * 4;
}

TensorDesc::TensorDesc(DType element, Shape sizes, std::optional<Strides> explicit_strides, bool is_owned, uint64_t base_alignment,
                       std::optional<uint64_t> total_bytes)
    : dtype(element), shape(std::move(sizes)), owned(is_owned), alignment(base_alignment) {
  check_shape(shape);
  strides = explicit_strides ? std::move(*explicit_strides) : packed_strides(shape);
  check_strides(shape, strides);
  check_alignment(dtype, alignment);
  (void)minimum_bytes();  // throws on overflow, so that the error occurs at construction
  if (total_bytes) padding_bytes = compute_padding_bytes(*this, *total_bytes);
}

TensorDesc TensorDesc::with_layout(DType dtype, Shape shape, std::string_view layout, const std::vector<bool>& broadcast) {
  Strides strides = compute_layout_strides(shape, layout, broadcast);
  return {dtype, std::move(shape), std::move(strides)};
}

TensorDesc TensorDesc::with_strides(Shape new_shape, Strides new_strides) const {
  TensorDesc desc(dtype, std::move(new_shape), std::move(new_strides), owned, alignment);
  desc.scale = scale;
  desc.zero_point = zero_point;
  desc.channel_axis = channel_axis;
  return desc;
}

TensorDesc TensorDesc::packed() const {
  return with_strides(shape, packed_strides(shape));
}

TensorDesc TensorDesc::broadcast_to(const Shape& target) const {
  TensorDesc desc = with_strides(target, compute_broadcast_strides(shape, strides, target));
  if (channel_axis) desc.channel_axis = *channel_axis + static_cast<int>(target.size() - shape.size());
  return desc;
}

TensorDesc TensorDesc::permute(const std::vector<int>& axes) const {
  if (axes.size() != shape.size())
    throw GraphError("permute", std::to_string(axes.size()) + " axes for a tensor of rank " + std::to_string(rank()));
  TensorDesc desc = *this;
  std::vector<bool> named(axes.size(), false);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(normalize_axis(axes[i], rank(), "permute"));
    if (named[axis]) throw GraphError("permute", "axis " + std::to_string(axes[i]) + " is named twice");
    named[axis] = true;
    desc.shape[i] = shape[axis];
    desc.strides[i] = strides[axis];
    if (channel_axis && static_cast<size_t>(*channel_axis) == axis) desc.channel_axis = static_cast<int>(i);
  }
  return desc;
}

TensorDesc TensorDesc::pad_rows(int64_t multiple) const {
  return with_strides(shape, compute_padded_strides(shape, strides, multiple));
}

TensorDesc& TensorDesc::quantized(Quantization quantization) {
  for (const float factor : quantization.scale)
    if (!(factor > 0) || factor > std::numeric_limits<float>::max())
      throw GraphError("scale", "expected finite numbers greater than 0; given " + std::to_string(factor));
  auto& axis = quantization.channel_axis;
  if (axis) axis = normalize_axis(*axis, rank(), "channel_axis");
  const int64_t expected = axis ? shape[static_cast<size_t>(*axis)] : 1;
  if ((axis || !quantization.scale.empty()) && static_cast<int64_t>(quantization.scale.size()) != expected)
    throw GraphError("scale",
                     (axis ? "expected one for each of the " + std::to_string(expected) + " channels of axis " + std::to_string(*axis)
                           : std::string("expected one if no channel_axis is given")) +
                         "; given " + std::to_string(quantization.scale.size()));
  static_cast<Quantization&>(*this) = std::move(quantization);
  return *this;
}

// Formats a scale as the shortest text that parses to the same float.
static std::string format_scale(float scale) {
  const std::string text = format_general(scale);
  const auto read = parse_number(text);
  return read && static_cast<float>(*read) == scale ? text : format_general(scale, 9);
}

std::string to_string(const Quantization& quantization) {
  if (quantization.scale.empty()) return "no scale";
  const std::string scale = quantization.channel_axis ? std::to_string(quantization.scale.size()) + " scales on axis " +
                                                            std::to_string(*quantization.channel_axis)
                                                      : "scale " + format_scale(quantization.scale[0]);
  return scale + " and zero point " + std::to_string(quantization.zero_point.value_or(0));
}

std::string to_string(const TensorDesc& desc) {
  const std::string text = std::string(name(desc.dtype)) + to_string(desc.shape);
  return desc.is_packed() ? text : text + " with strides " + to_string(desc.strides);
}

bool have_same_elements(const HostTensor& a, const HostTensor& b) {
  return a.data == b.data || std::memcmp(a.data, b.data, a.desc.element_bytes()) == 0;
}

HostTensor HostTensor::copy_of(TensorDesc desc, const void* bytes) {
  const size_t exact = desc.element_bytes(), capacity = desc.bytes() + 4;
  const auto copy = std::shared_ptr<std::byte[]>(new std::byte[capacity]);
  if (exact > 0) std::memcpy(copy.get(), bytes, exact);
  std::memset(copy.get() + exact, 0, capacity - exact);
  return {std::move(desc), copy, copy.get()};
}

HostTensor HostTensor::converted(DType dtype) const {
  if (desc.dtype == dtype) return *this;
  HostTensor result{TensorDesc(dtype, desc.shape)};
  const auto bytes = std::shared_ptr<std::byte[]>(new std::byte[result.desc.bytes() + 4]());
  convert_to(dtype, 0, {bytes.get(), result.desc.element_bytes()});
  result.data = bytes.get();
  result.owner = bytes;
  return result;
}

void HostTensor::convert_to(DType dtype, int64_t first, std::span<std::byte> target) const {
  const auto from = static_cast<size_t>(bits(desc.dtype)), to = static_cast<size_t>(bits(dtype));
  const std::byte* source = data + static_cast<size_t>(first) * from / 8;
  if (desc.dtype == dtype) {
    if (file)
      file->read(source, target);
    else if (!target.empty())
      std::memcpy(target.data(), source, target.size());
    return;
  }
  if (!is_operator_float(desc.dtype) || !is_operator_float(dtype))
    throw Error("no conversion from " + std::string(name(desc.dtype)) + " to " + std::string(name(dtype)));
  std::array<std::byte, kConvertChunkBytes> buffer;
  const size_t max_elements = kConvertChunkBytes / std::max(from / 8, to / 8);
  for (size_t done = 0, count = target.size() * 8 / to; done < count;) {
    const size_t elements = std::min(max_elements, count - done);
    const std::byte* chunk = source + done * from / 8;
    if (file) file->read(chunk, {buffer.data(), elements * from / 8}), chunk = buffer.data();
    convert_floats(desc.dtype, chunk, dtype, target.data() + done * to / 8, elements);
    done += elements;
  }
}

std::vector<int64_t> HostTensor::as_int64() const {
  std::vector<int64_t> values(static_cast<size_t>(desc.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = read_integer(desc.dtype, data, static_cast<int64_t>(i));
  return values;
}

std::vector<double> HostTensor::as_double() const {
  std::vector<double> values(static_cast<size_t>(desc.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = read_as_double(desc.dtype, data, static_cast<int64_t>(i));
  return values;
}

}  // namespace pumice
