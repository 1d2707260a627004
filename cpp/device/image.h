// Device images with a view and a sampler; only kernels bind them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/tensor_desc.h"
#include "device/buffer.h"
#include "device/sampler_options.h"

struct VkImage_T;
struct VkImageView_T;
struct VkSampler_T;

namespace pumice {

// Float formats, 8-bit unorm formats (shaders read floats from 0 to 1), then integer formats.
enum class ImageFormat : uint8_t {
  r32f,
  r16f,
  rgba16f,
  rgba32f,
  rg32f,
  rg16f,
  r8,
  rg8,
  rgba8,
  r32ui,
  rg32ui,
  rgba32ui,
  r16ui,
  r8ui,
  rgba8ui,
  r32i,
  rg32i,
  rgba32i,
  r16i,
  r8i,
};
std::string_view name(ImageFormat format);                  // GLSL format qualifier
ImageFormat image_format_from_name(std::string_view name);  // throws UnsupportedError listing the known names
DType get_channel_dtype(ImageFormat format);
DType get_shader_dtype(ImageFormat format);  // channel type in shaders: float32, int32 or uint32
uint32_t get_channel_count(ImageFormat format);

// A 1D, 2D or 3D image. Command lists order its reads and writes, as for buffers.
class Image {
 public:
  // `shape`: array shape of the texels ([depth, height,] width), plus 2 or 4 channels for rg and rgba formats. The image is in the
  // undefined layout; create_image_in_general_layout() (image_transfer.h) transitions it. Throws UnsupportedError for an unsupported shape,
  // size, format or sampler, OutOfMemoryError.
  static std::shared_ptr<Image> create(std::shared_ptr<Context> context, ImageFormat format, Shape shape,
                                       const SamplerOptions& sampler = {});
  ~Image();
  Image(const Image&) = delete;

  void close();  // idempotent; memory is freed once the work in flight has finished
  bool closed() const;
  const std::shared_ptr<Context>& context() const { return context_; }
  ImageFormat format() const { return format_; }
  const Shape& shape() const { return shape_; }
  size_t dimensions() const { return shape_.size() - (get_channel_count(format_) > 1 ? 1 : 0); }
  std::array<uint32_t, 3> extent() const;  // width, height, depth; 1 for missing dimensions
  const SamplerOptions& sampler_options() const { return sampling_; }
  bool supports_storage() const;  // whether shaders can store to the image
  uint64_t bytes() const;         // size in bytes of a packed array of the texels

  // Memory identity for hazard tracking, like Buffer::memory().
  uint64_t memory() const;
  uint64_t memory_offset() const;
  uint64_t memory_bytes() const;
  VkImage_T* handle() const;
  VkImageView_T* view() const;
  VkSampler_T* sampler() const;

 private:
  Image() = default;
  std::shared_ptr<Context> context_;
  ImageFormat format_ = ImageFormat::r32f;
  Shape shape_;
  SamplerOptions sampling_;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pumice
