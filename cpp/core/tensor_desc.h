// What a tensor looks like in memory: pure arithmetic, no device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace pumice {

using Shape = std::vector<int64_t>;
using Strides = std::vector<int64_t>;  // in elements, >= 0; 0 broadcasts

inline constexpr int kMaxRank = 8;

// 64-bit checked products and sums; throw GraphError naming `what` on overflow.
int64_t checked_mul(int64_t a, int64_t b, std::string_view what);
int64_t checked_add(int64_t a, int64_t b, std::string_view what);

int64_t element_count(const Shape& shape);  // 1 for rank 0; checked
Strides packed_strides(const Shape& shape);
// Strides of `shape` seen as the larger `target` (NumPy broadcasting). Throws GraphError with both shapes.
Strides broadcast_strides(const Shape& shape, const Strides& strides, const Shape& target);
Shape broadcast_shape(const Shape& a, const Shape& b);
// Bytes from element 0 to the last one reached, rounded up to 4; 0 where a dimension is 0 (binding rules R5, R6, R8).
uint64_t buffer_size(DType dtype, const Shape& shape, const Strides* strides = nullptr);
// Strides of a layout given by name ("NCHW", "NHWC", "NCDHW", "NDHWC", or any permutation of axis letters); sizes in logical order.
Strides layout_strides(const Shape& shape, std::string_view layout);
std::string to_string(const Shape& shape);  // "[1, 3, 224, 224]"

// dtype, shape and strides of one tensor. Immutable in use; validated at construction (rules R4, R5, R8).
struct TensorDesc {
  TensorDesc() = default;
  TensorDesc(DType dtype, Shape shape, std::optional<Strides> strides = {}, bool owned = false, uint64_t alignment = 0);

  DType dtype = DType::float32;
  Shape shape;
  Strides strides;         // always filled; packed unless given
  bool owned = false;      // OWNED_BY_DML: bound at initialisation only
  uint64_t alignment = 0;  // guaranteed base offset alignment in bytes, 0 or a power of two
  std::optional<float> scale;
  std::optional<int32_t> zero_point;

  int rank() const { return static_cast<int>(shape.size()); }
  int64_t elements() const { return element_count(shape); }
  uint64_t bytes() const { return buffer_size(dtype, shape, &strides); }
  uint64_t element_bytes() const { return static_cast<uint64_t>((elements() * bits(dtype) + 7) / 8); }  // of all elements, row-major
  bool is_packed() const { return strides == packed_strides(shape); }
  bool operator==(const TensorDesc&) const = default;
};

std::string to_string(const TensorDesc& desc);  // "float32[1, 3, 224, 224]"

// A tensor's bytes on the host, packed row-major; `owner` keeps them alive.
struct HostTensor {
  TensorDesc desc;
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;

  // Copies `bytes` (desc.bytes() of them, at least) into memory of its own.
  static HostTensor copy_of(TensorDesc desc, const void* bytes);
  // The elements of an integer or bool tensor as int64. Throws GraphError for other dtypes.
  std::vector<int64_t> as_int64() const;
  // Itself, or between float32, float16 and bfloat16, rounded to nearest even. Throws Error for other dtypes.
  HostTensor converted(DType dtype) const;
  // The elements of any numeric tensor as double (float16 and bfloat16 included).
  std::vector<double> as_double() const;
};

}  // namespace pumice
