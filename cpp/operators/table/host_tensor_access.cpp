#include "operators/table/host_tensor_access.h"

#include <cstring>

#include "core/half.h"
#include "core/saturating_cast.h"

namespace pumice {
namespace {

template <typename T>
void write_bytes(std::byte* target, T value) {
  std::memcpy(target, &value, sizeof value);
}

}  // namespace

HostTensorWriter::HostTensorWriter(TensorDesc desc)
    : desc_(std::move(desc)),
      element_bytes_(static_cast<size_t>(bits(desc_.dtype)) / 8),
      bytes_(new std::byte[static_cast<size_t>(desc_.bytes()) + 4]()) {}

void HostTensorWriter::store(int64_t element, int64_t value) {
  if (is_float(desc_.dtype)) return store(element, static_cast<double>(value));
  if (desc_.dtype == DType::bool_) value = value != 0;
  std::memcpy(at(element), &value, element_bytes_);  // little-endian: copies the low bytes
}

void HostTensorWriter::store(int64_t element, double value) {
  switch (desc_.dtype) {
    case DType::float64:
      return write_bytes(at(element), value);
    case DType::float32:
      return write_bytes(at(element), static_cast<float>(value));
    case DType::float16:
      return write_bytes(at(element), half_from_float(static_cast<float>(value)));
    case DType::bfloat16:
      return write_bytes(at(element), bfloat16_from_float(static_cast<float>(value)));
    case DType::bool_:
      return store(element, static_cast<int64_t>(value != 0));
    case DType::uint64:
      return write_bytes(at(element), saturating_cast<uint64_t>(value));
    case DType::uint32:
      return write_bytes(at(element), saturating_cast<uint32_t>(value));
    case DType::uint16:
      return write_bytes(at(element), saturating_cast<uint16_t>(value));
    case DType::uint8:
      return write_bytes(at(element), saturating_cast<uint8_t>(value));
    case DType::int32:
      return write_bytes(at(element), saturating_cast<int32_t>(value));
    case DType::int16:
      return write_bytes(at(element), saturating_cast<int16_t>(value));
    case DType::int8:
      return write_bytes(at(element), saturating_cast<int8_t>(value));
    default:
      return write_bytes(at(element), saturating_cast<int64_t>(value));
  }
}

HostTensor HostTensorWriter::take() {
  const std::byte* data = bytes_.get();
  return {std::move(desc_), std::move(bytes_), data};
}

HostTensor gather_elements(const HostTensor& x, const TensorDesc& desc, const Strides& strides, int64_t first) {
  HostTensorWriter writer(desc);
  const size_t size = writer.element_bytes();
  for_each_index(desc.shape, strides,
                 [&](int64_t i, int64_t offset) { std::memcpy(writer.at(i), x.data + static_cast<size_t>(first + offset) * size, size); });
  return writer.take();
}

std::array<uint32_t, 2> get_first_element_bits(const HostTensor& tensor) {
  std::array<uint32_t, 2> words{};
  std::memcpy(words.data(), tensor.data, static_cast<size_t>(bits(tensor.desc.dtype)) / 8);
  return words;
}

}  // namespace pumice
