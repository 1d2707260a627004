// Builds tensors on the host: stores elements in the tensor's dtype and copies them by strides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

// Memory of a packed tensor, written element by element. Sub-byte dtypes are not supported.
class HostWriter {
 public:
  explicit HostWriter(TensorDesc desc);
  size_t element_bytes() const { return element_bytes_; }
  std::byte* at(int64_t element) { return bytes_.get() + static_cast<size_t>(element) * element_bytes_; }
  // Integers wrap to the dtype's width. Reals round to nearest for floats and are saturated() for integers. Nonzero becomes true for bool.
  void store(int64_t element, int64_t value);
  void store(int64_t element, double value);
  HostTensor take();

 private:
  TensorDesc desc_;
  size_t element_bytes_;
  std::shared_ptr<std::byte[]> bytes_;
};

// All elements, as int64 (for integers and bools) or as double (for floats).
template <typename T>
std::vector<T> elements_of(const HostTensor& tensor) {
  static_assert(std::is_same_v<T, int64_t> || std::is_same_v<T, double>);
  if constexpr (std::is_same_v<T, int64_t>)
    return tensor.as_int64();
  else
    return tensor.as_double();
}

// Gathers x[first + sum(index * stride)] for all indices of `desc` in row-major order. Strides may be negative.
HostTensor gather_elements(const HostTensor& x, const TensorDesc& desc, const Strides& strides, int64_t first);

// Returns the bits of the first element as uint32 words for push constants.
std::array<uint32_t, 2> element_bits_of(const HostTensor& tensor);

// Calls visit(i, offset) for each index of `shape` in row-major order, with offset = sum(index * stride).
template <typename Visit>
void for_each_index(const Shape& shape, const Strides& strides, const Visit& visit) {
  const int64_t count = element_count(shape);
  std::vector<int64_t> index(shape.size());
  int64_t offset = 0;
  for (int64_t i = 0; i < count; ++i) {
    visit(i, offset);
    for (size_t axis = shape.size(); axis-- > 0;) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace pumice
