// Tensor descriptions and host tensors, independent of devices.
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

// Returns the bytes from element 0 through the last one, rounded up to a multiple of 4; 0 if a dimension is 0 (binding rules R5, R6, R8).
uint64_t buffer_size(DType dtype, const Shape& shape, const Strides* strides = nullptr);

inline constexpr uint64_t kTensorAlignment = 16;  // alignment of the first bound byte (rule R3)

// Affine quantisation: real = (integer - zero_point) * scale.
struct Quantization {
  std::vector<float> scale;  // empty: not quantised; one value, or one per channel along channel_axis
  std::optional<int32_t> zero_point;
  std::optional<int> channel_axis;

  bool operator==(const Quantization&) const = default;
};
std::string to_string(const Quantization& quantization);  // "scale 0.5 and zero point 128"

// dtype, shape and strides of a tensor. Treated as immutable; validated at construction (rules R4, R5, R8).
struct TensorDesc : Quantization {
  TensorDesc() = default;
  // total_bytes: bound size including trailing padding (TotalTensorSizeInBytes); nullopt: minimum_bytes().
  TensorDesc(DType dtype, Shape shape, std::optional<Strides> strides = {}, bool owned = false, uint64_t alignment = 0,
             std::optional<uint64_t> total_bytes = {});

  DType dtype = DType::float32;
  Shape shape;
  Strides strides;             // never empty; packed by default
  bool owned = false;          // bound only at initialisation, like DirectML's OWNED_BY_DML
  uint64_t alignment = 0;      // guaranteed alignment of the base offset in bytes; 0 or a power of two
  uint64_t padding_bytes = 0;  // trailing padding, included in bytes()

  int rank() const { return static_cast<int>(shape.size()); }
  int64_t elements() const { return element_count(shape); }
  uint64_t minimum_bytes() const { return buffer_size(dtype, shape, &strides); }
  uint64_t bytes() const { return minimum_bytes() + padding_bytes; }
  uint64_t element_bytes() const { return static_cast<uint64_t>((elements() * bits(dtype) + 7) / 8); }  // packed size in bytes
  bool is_packed() const { return pumice::is_packed(shape, strides); }
  uint64_t required_alignment() const { return std::max(kTensorAlignment, alignment); }  // alignment of the first bound byte

  static TensorDesc with_layout(DType dtype, Shape shape, std::string_view layout, const std::vector<bool>& broadcast = {});
  // Return descriptions with other strides or another shape. They throw GraphError for invalid arguments.
  TensorDesc packed() const;
  TensorDesc broadcast_to(const Shape& target) const;
  TensorDesc permute(const std::vector<int>& axes) const;  // negative axes count from the end
  TensorDesc pad_rows(int64_t multiple) const;             // pads rows to a multiple of this many elements; keeps the memory order
  // Sets quantisation parameters. Throws GraphError if the number of scales differs from the number of channels.
  TensorDesc& quantized(Quantization quantization);

  bool operator==(const TensorDesc&) const = default;

 private:
  TensorDesc with_strides(Shape new_shape, Strides new_strides) const;
};

std::string to_string(const TensorDesc& desc);  // "float32[1, 3, 224, 224]"

// Packed row-major tensor data on the host, kept alive by `owner`.
struct HostTensor {
  TensorDesc desc;
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;           // no alignment guarantee
  std::shared_ptr<const MappedFile> file{};  // the file that `data` is mapped from, if any

  // Copies desc.element_bytes() bytes into newly allocated memory.
  static HostTensor copy_of(TensorDesc desc, const void* bytes);
  // Returns the elements of an integer or bool tensor as int64. Throws GraphError for other dtypes.
  std::vector<int64_t> as_int64() const;
  // Converts between fp32, fp16 and bf16, rounding to nearest even and clamping finite values to the target range. Returns the tensor
  // itself if it already has this dtype. Throws Error for other dtypes.
  HostTensor converted(DType dtype) const;
  // Like converted(), for as many elements as fit into `target`, starting at element `first`. Reads a mapped file with
  // MappedFile::read().
  void convert_to(DType dtype, int64_t first, std::span<std::byte> target) const;
  // Returns the elements of any numeric tensor (including fp16 and bf16) as double.
  std::vector<double> as_double() const;
};

bool have_same_elements(const HostTensor& a, const HostTensor& b);  // same dtype, shape and elements

}  // namespace pumice
