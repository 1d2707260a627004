// Tensors in the making on the host: elements are stored as their dtype, and moved by strides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

// Memory for a packed tensor whose elements are written one by one. Dtypes of less than a byte are not stored.
class HostWriter {
 public:
  explicit HostWriter(TensorDesc desc);
  size_t element_bytes() const { return element_bytes_; }
  std::byte* at(int64_t element) { return bytes_.get() + static_cast<size_t>(element) * element_bytes_; }
  // Integers wrap to the dtype's bits, reals round to nearest as floats and are saturated() as integers; of a bool what is not 0 is 1.
  void store(int64_t element, int64_t value);
  void store(int64_t element, double value);
  HostTensor take();

 private:
  TensorDesc desc_;
  size_t element_bytes_;
  std::shared_ptr<std::byte[]> bytes_;
};

// All elements, as int64 (of integers and bools) or as double.
template <typename T>
std::vector<T> elements_of(const HostTensor& tensor) {
  static_assert(std::is_same_v<T, int64_t> || std::is_same_v<T, double>);
  if constexpr (std::is_same_v<T, int64_t>)
    return tensor.as_int64();
  else
    return tensor.as_double();
}

// The elements of `x` at first + sum(index * stride), for all indices of `desc` in row-major order; strides may be negative.
HostTensor moved_elements(const HostTensor& x, const TensorDesc& desc, const Strides& strides, int64_t first);

// The bits of the first element, as words that kernels take as parameters.
std::array<uint32_t, 2> element_bits_of(const HostTensor& tensor);

// Calls visit(i, offset) for the row-major indices i of `shape`, offset being the sum of index * stride.
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
