// Builds host tensors element by element, and copies strided elements.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

// Builds a row-major host tensor element by element. Sub-byte dtypes are not supported.
class HostTensorWriter {
 public:
  explicit HostTensorWriter(TensorDesc desc);
  size_t element_bytes() const { return element_bytes_; }
  std::byte* at(int64_t element) { return bytes_.get() + static_cast<size_t>(element) * element_bytes_; }
  // Stores a value in the tensor's dtype. An integer wraps to the width of the dtype. A real number is rounded for float dtypes and
  // saturated for integer dtypes. For bool, nonzero becomes true.
  void store(int64_t element, int64_t value);
  void store(int64_t element, double value);
  HostTensor take();

 private:
  TensorDesc desc_;
  size_t element_bytes_;
  std::shared_ptr<std::byte[]> bytes_;
};

// Returns all elements as int64 (for integers and bools) or double (for floats).
template <typename T>
std::vector<T> read_elements(const HostTensor& tensor) {
  static_assert(std::is_same_v<T, int64_t> || std::is_same_v<T, double>);
  if constexpr (std::is_same_v<T, int64_t>)
    return tensor.as_int64();
  else
    return tensor.as_double();
}

// Gathers x[first + sum(index * stride)] for all indices of `desc` in row-major order. Strides may be negative.
HostTensor gather_elements(const HostTensor& x, const TensorDesc& desc, const Strides& strides, int64_t first);

// Returns the bits of the first element as uint32 words for push constants.
std::array<uint32_t, 2> get_first_element_bits(const HostTensor& tensor);

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
