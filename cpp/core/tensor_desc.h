// A tensor's description, its layout in memory: pure arithmetic, no device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/strides.h"

namespace pumice {

class MappedFile;

// Bytes from element 0 to the last one reached, rounded up to 4; 0 where a dimension is 0 (binding rules R5, R6, R8).
uint64_t buffer_size(DType dtype, const Shape& shape, const Strides* strides = nullptr);

inline constexpr uint64_t kTensorAlignment = 16;  // alignment of the first byte that is bound (rule R3)

// The rule by which the integers of a quantized tensor stand for reals: (integer - zero_point) * scale.
struct Quantization {
  std::vector<float> scale;  // none: not quantized; one, or one for each channel of channel_axis
  std::optional<int32_t> zero_point;
  std::optional<int> channel_axis;

  bool operator==(const Quantization&) const = default;
};
std::string to_string(const Quantization& quantization);  // "scale 0.5 and zero point 128"

// dtype, shape and strides of one tensor. Immutable in use; validated at construction (rules R4, R5, R8).
struct TensorDesc : Quantization {
  TensorDesc() = default;
  // total_bytes: as bound, padding at the end included (TotalTensorSizeInBytes); none: minimum_bytes().
  TensorDesc(DType dtype, Shape shape, std::optional<Strides> strides = {}, bool owned = false, uint64_t alignment = 0,
             std::optional<uint64_t> total_bytes = {});

  DType dtype = DType::float32;
  Shape shape;
  Strides strides;             // always filled; packed unless given
  bool owned = false;          // OWNED_BY_DML: bound at initialisation only
  uint64_t alignment = 0;      // guaranteed base offset alignment in bytes, 0 or a power of two
  uint64_t padding_bytes = 0;  // after the last element, part of the tensor

  int rank() const { return static_cast<int>(shape.size()); }
  int64_t elements() const { return element_count(shape); }
  uint64_t minimum_bytes() const { return buffer_size(dtype, shape, &strides); }
  uint64_t bytes() const { return minimum_bytes() + padding_bytes; }
  uint64_t element_bytes() const { return static_cast<uint64_t>((elements() * bits(dtype) + 7) / 8); }  // bytes of all elements, row-major
  bool is_packed() const { return pumice::is_packed(shape, strides); }
  uint64_t required_alignment() const { return std::max(kTensorAlignment, alignment); }  // alignment of the first byte, where it is bound

  static TensorDesc with_layout(DType dtype, Shape shape, std::string_view layout, const std::vector<bool>& broadcast = {});
  // The same tensor with other strides, or seen another way. Throw GraphError.
  TensorDesc packed() const;
  TensorDesc broadcast_to(const Shape& target) const;
  TensorDesc permute(const std::vector<int>& axes) const;  // negative axes count from the end
  TensorDesc pad_rows(int64_t multiple) const;             // in elements; the order of axes in memory stays
  // Sets the parameters of a quantized tensor. Throws GraphError where the scales are not as many as there are channels.
  TensorDesc& quantized(Quantization given);

  bool operator==(const TensorDesc&) const = default;

 private:
  TensorDesc with_strides(Shape new_shape, Strides new_strides) const;
};

std::string to_string(const TensorDesc& desc);  // "float32[1, 3, 224, 224]"

// A tensor's bytes on the host, packed row-major; `owner` keeps them alive.
struct HostTensor {
  TensorDesc desc;
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;           // aligned in any way
  std::shared_ptr<const MappedFile> file{};  // the file that `data` lies in, if it lies in one

  // Copies `bytes` (desc.bytes() of them, at least) into memory of its own.
  static HostTensor copy_of(TensorDesc desc, const void* bytes);
  // The elements of an integer or bool tensor as int64. Throws GraphError for other dtypes.
  std::vector<int64_t> as_int64() const;
  // The elements as another dtype: the tensor itself where it has that dtype already, else converted between float32, float16 and bfloat16,
  // rounded to nearest even, a finite number beyond the range to the largest one. Throws Error for other dtypes.
  HostTensor converted(DType dtype) const;
  // Like converted(), for as many elements as `target` holds, from element `first` on. Reads past the mapping of a file (see
  // MappedFile::read).
  void convert_to(DType dtype, int64_t first, std::span<std::byte> target) const;
  // The elements of any numeric tensor as double (float16 and bfloat16 included).
  std::vector<double> as_double() const;
};

bool same_elements(const HostTensor& a, const HostTensor& b);  // both have one dtype and shape

}  // namespace pumice
