#include "core/tensor_desc.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/half.h"

namespace pumice {
namespace {

constexpr int64_t kMaxElements = 0xffffffff;

bool is_power_of_two(uint64_t value) {
  return value != 0 && (value & (value - 1)) == 0;
}

void check_shape(const Shape& shape) {
  if (shape.size() > static_cast<size_t>(kMaxRank))
    throw GraphError("shape", "rank " + std::to_string(shape.size()) + "; the highest rank is " + std::to_string(kMaxRank), "R8");
  for (const int64_t size : shape)
    if (size < 0) throw GraphError("shape", "a negative size in " + to_string(shape), "R8");
  const int64_t count = element_count(shape);
  if (count > kMaxElements)
    throw GraphError("shape",
                     to_string(shape) + " has " + std::to_string(count) + " elements; the limit is " + std::to_string(kMaxElements), "R8");
}

void check_strides(const Shape& shape, const Strides& strides) {
  if (strides.size() != shape.size())
    throw GraphError("strides", std::to_string(strides.size()) + " strides for a shape of rank " + std::to_string(shape.size()), "R8");
  for (const int64_t stride : strides)
    if (stride < 0) throw GraphError("strides", "a negative stride in " + to_string(strides) + "; strides are 0 or more elements", "R8");
}

void check_alignment(DType dtype, uint64_t alignment) {
  if (alignment == 0) return;
  const uint64_t element = static_cast<uint64_t>(std::max(bits(dtype) / 8, 1));
  if (!is_power_of_two(alignment) || alignment < element)
    throw GraphError("alignment",
                     "0 or a power of two of at least " + std::to_string(element) + " bytes; given " + std::to_string(alignment), "R4");
}

// Positions (in the logical order) of a layout's axes from the outermost in memory to the innermost.
std::vector<size_t> memory_order(std::string_view layout, size_t rank) {
  constexpr std::string_view logical = "NCDHW";
  if (layout.size() != rank)
    throw GraphError("layout", "'" + std::string(layout) + "' names " + std::to_string(layout.size()) + " axes of a shape of rank " +
                                   std::to_string(rank));
  std::string axes(layout);
  std::sort(axes.begin(), axes.end(), [&](char a, char b) { return logical.find(a) < logical.find(b); });
  std::vector<size_t> order;
  for (const char axis : layout) {
    if (logical.find(axis) == std::string_view::npos || std::count(layout.begin(), layout.end(), axis) != 1)
      throw GraphError("layout", "'" + std::string(layout) + "' is no permutation of axis letters of NCDHW");
    order.push_back(axes.find(axis));
  }
  return order;
}

template <typename T>
T element_at(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

int64_t nibble_at(const std::byte* data, int64_t i, bool is_signed) {
  const auto lane = static_cast<int64_t>(static_cast<uint8_t>(data[i / 2]) >> (i % 2 * 4) & 15);
  return is_signed && lane > 7 ? lane - 16 : lane;
}

int64_t integer_at(DType dtype, const std::byte* data, int64_t i) {
  switch (dtype) {
    case DType::int64:
      return element_at<int64_t>(data, i);
    case DType::uint64:
      return static_cast<int64_t>(element_at<uint64_t>(data, i));
    case DType::int32:
      return element_at<int32_t>(data, i);
    case DType::uint32:
      return element_at<uint32_t>(data, i);
    case DType::int16:
      return element_at<int16_t>(data, i);
    case DType::uint16:
      return element_at<uint16_t>(data, i);
    case DType::int8:
      return element_at<int8_t>(data, i);
    case DType::uint8:
      return element_at<uint8_t>(data, i);
    case DType::bool_:
      return element_at<uint8_t>(data, i) != 0;
    case DType::int4:
      return nibble_at(data, i, true);
    case DType::uint4:
      return nibble_at(data, i, false);
    default:
      throw GraphError("", "integers expected; given " + std::string(name(dtype)));
  }
}

double real_at(DType dtype, const std::byte* data, int64_t i) {
  switch (dtype) {
    case DType::float64:
      return element_at<double>(data, i);
    case DType::float32:
      return element_at<float>(data, i);
    case DType::float16:
      return float_from_half(element_at<uint16_t>(data, static_cast<int64_t>(i)));
    case DType::bfloat16:
      return float_from_bfloat16(element_at<uint16_t>(data, static_cast<int64_t>(i)));
    case DType::uint64:
      return static_cast<double>(element_at<uint64_t>(data, i));
    default:
      return static_cast<double>(integer_at(dtype, data, i));
  }
}

}  // namespace

int64_t checked_mul(int64_t a, int64_t b, std::string_view what) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result))
    throw GraphError(std::string(what), std::to_string(a) + " * " + std::to_string(b) + " does not fit in 64 bits", "R8");
  return result;
}

int64_t checked_add(int64_t a, int64_t b, std::string_view what) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result))
    throw GraphError(std::string(what), std::to_string(a) + " + " + std::to_string(b) + " does not fit in 64 bits", "R8");
  return result;
}

int64_t element_count(const Shape& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t count = 1;
  for (const int64_t size : shape) count = checked_mul(count, size, "element count");
  return count;
}

Strides packed_strides(const Shape& shape) {
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();  // no element is reached: any strides do
  Strides strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    const int64_t size = std::max<int64_t>(shape[i], 1);
    stride = empty && stride > INT64_MAX / size ? 1 : checked_mul(stride, size, "strides");
  }
  return strides;
}

Strides broadcast_strides(const Shape& shape, const Strides& strides, const Shape& target) {
  const auto refuse = [&] { throw GraphError("broadcast", to_string(shape) + " does not broadcast to " + to_string(target)); };
  if (shape.size() > target.size()) refuse();
  Strides result(target.size(), 0);
  const size_t added = target.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == target[added + i])
      result[added + i] = strides[i];
    else if (shape[i] != 1)
      refuse();
  }
  return result;
}

Shape broadcast_shape(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) throw GraphError("broadcast", to_string(a) + " and " + to_string(b) + " do not broadcast together");
    result[result.size() - 1 - i] = x == 1 ? y : x;
  }
  return result;
}

uint64_t buffer_size(DType dtype, const Shape& shape, const Strides* strides) {
  check_shape(shape);
  if (strides) check_strides(shape, *strides);
  const int64_t count = element_count(shape);
  if (count == 0) return 0;
  int64_t reached = count;
  if (strides) {
    reached = 1;
    for (size_t i = 0; i < shape.size(); ++i)
      reached = checked_add(reached, checked_mul(shape[i] - 1, (*strides)[i], "buffer size"), "buffer size");
  }
  const int64_t total_bits = checked_mul(reached, bits(dtype), "buffer size");
  return (static_cast<uint64_t>(total_bits) + 31) / 32 * 4;
}

Strides layout_strides(const Shape& shape, std::string_view layout) {
  const auto order = memory_order(layout, shape.size());
  Strides strides(shape.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride = checked_mul(stride, std::max<int64_t>(shape[order[i]], 1), "strides");
  }
  return strides;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

TensorDesc::TensorDesc(DType element, Shape sizes, std::optional<Strides> given, bool is_owned, uint64_t base_alignment)
    : dtype(element), shape(std::move(sizes)), owned(is_owned), alignment(base_alignment) {
  check_shape(shape);
  strides = given ? std::move(*given) : packed_strides(shape);
  check_strides(shape, strides);
  check_alignment(dtype, alignment);
  (void)bytes();  // overflow is found here, not in use
}

std::string to_string(const TensorDesc& desc) {
  const std::string text = std::string(name(desc.dtype)) + to_string(desc.shape);
  return desc.is_packed() ? text : text + " with strides " + to_string(desc.strides);
}

HostTensor HostTensor::copy_of(TensorDesc desc, const void* bytes) {
  const uint64_t padded = desc.bytes();
  const auto copy = std::shared_ptr<std::byte[]>(new std::byte[padded + 4]());
  const size_t exact = desc.element_bytes();
  if (exact > 0) std::memcpy(copy.get(), bytes, exact);
  return {std::move(desc), copy, copy.get()};
}

HostTensor HostTensor::converted(DType dtype) const {
  if (desc.dtype == dtype) return *this;
  if (!is_working_float(desc.dtype) || !is_working_float(dtype))
    throw Error("no conversion from " + std::string(name(desc.dtype)) + " to " + std::string(name(dtype)));
  const auto count = static_cast<size_t>(desc.elements());
  const TensorDesc target(dtype, desc.shape);
  const auto value = [&](size_t i) { return static_cast<float>(real_at(desc.dtype, data, static_cast<int64_t>(i))); };
  if (dtype == DType::float32) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = value(i);
    return copy_of(target, values.data());
  }
  std::vector<uint16_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = dtype == DType::float16 ? half_from_float(value(i)) : bfloat16_from_float(value(i));
  return copy_of(target, values.data());
}

std::vector<int64_t> HostTensor::as_int64() const {
  std::vector<int64_t> values(static_cast<size_t>(desc.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = integer_at(desc.dtype, data, static_cast<int64_t>(i));
  return values;
}

std::vector<double> HostTensor::as_double() const {
  std::vector<double> values(static_cast<size_t>(desc.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = real_at(desc.dtype, data, static_cast<int64_t>(i));
  return values;
}

}  // namespace pumice
