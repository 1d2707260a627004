// Texels in device memory, with a view and a sampler; bound by kernels alone.
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

enum class ImageFormat : uint8_t {
  r32f,
  r16f,
  rgba16f,
  rgba32f,
  rg32f,
  rg16f,  // floats
  r8,
  rg8,
  rgba8,  // bytes that a shader sees as floats from 0 to 1
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
std::string_view name(ImageFormat format);                  // as a shader declares it
ImageFormat image_format_from_name(std::string_view name);  // throws UnsupportedError listing the known names
DType channel_type(ImageFormat format);
DType shader_type(ImageFormat format);  // in which a shader gets and gives a channel: float32, int32 or uint32
uint32_t channels(ImageFormat format);

// An image of one to three dimensions. It has one kind of use at a time, like a buffer: reads and writes of it are ordered by command
// lists.
class Image {
 public:
  // `shape` is that of an array with the texels: depth, height, width as far as there are such, and 2 or 4 for the channels of rg and rgba
  // formats. The image has no layout yet: ready_image() (image_transfer.h) makes one for every use. Throws UnsupportedError (shape, size,
  // format or sampler), OutOfMemoryError.
  static std::shared_ptr<Image> create(std::shared_ptr<Context> context, ImageFormat format, Shape shape,
                                       const SamplerOptions& sampler = {});
  ~Image();
  Image(const Image&) = delete;

  void close();  // idempotent; the memory is freed when the work in flight has finished
  bool closed() const;
  const std::shared_ptr<Context>& context() const { return context_; }
  ImageFormat format() const { return format_; }
  const Shape& shape() const { return shape_; }
  size_t dimensions() const { return shape_.size() - (channels(format_) > 1 ? 1 : 0); }
  std::array<uint32_t, 3> extent() const;  // width, height, depth; 1 for what it has not
  const SamplerOptions& sampling() const { return sampling_; }
  bool can_store() const;  // usable as a storage image
  uint64_t bytes() const;  // bytes of an array with the texels

  // The image's place in memory, by which hazards are found, as for a Buffer.
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
