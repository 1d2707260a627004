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

struct VkImage_T;
struct VkImageView_T;
struct VkSampler_T;

namespace pumice {

enum class ImageFormat : uint8_t { r32f, r16f, rgba16f, rgba32f };
std::string_view name(ImageFormat format);                  // as a shader declares it
ImageFormat image_format_from_name(std::string_view name);  // throws UnsupportedError listing the known names
DType channel_type(ImageFormat format);
uint32_t channels(ImageFormat format);

enum class Filter : uint8_t { nearest, linear };
enum class AddressMode : uint8_t { clamp, repeat, border };  // outside of the image: its nearest texel, the image again, zeros
std::string_view name(Filter filter);
std::string_view name(AddressMode mode);

// How a shader's texture functions read; texelFetch and storage images do not use it.
struct SamplerOptions {
  Filter filter = Filter::nearest;
  AddressMode address = AddressMode::clamp;
  bool normalized = true;  // coordinates from 0 to 1, not in texels
  bool operator==(const SamplerOptions&) const = default;
};

// Whether a device samples with coordinates in texels: not in volumes, nor in images that repeat.
bool may_be_unnormalized(size_t dimensions, AddressMode mode);

// One to three dimensions; one kind of use at a time, like a buffer: reads and writes of it are ordered by command lists.
class Image {
 public:
  // `shape` is that of an array with the texels: depth, height, width as far as there are such, and 4 for the channels of rgba formats.
  // Content is undefined. Throws UnsupportedError (shape, size, format or sampler), OutOfMemoryError.
  static std::shared_ptr<Image> create(std::shared_ptr<Context> context, ImageFormat format, Shape shape,
                                       const SamplerOptions& sampler = {}, const Interrupted& interrupted = {});
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
  uint64_t bytes() const;  // of an array with the texels

  // Packed row-major host bytes. Both wait; ordered after work already submitted. Throw BindingError (R2) for another size.
  void upload(std::span<const std::byte> source, const Interrupted& interrupted = {}) const;
  void download(std::span<std::byte> target, const Interrupted& interrupted = {}) const;

  // Where it lies, for hazards: as those of a Buffer.
  uint64_t memory() const;
  uint64_t memory_offset() const;
  uint64_t memory_bytes() const;
  VkImage_T* handle() const;
  VkImageView_T* view() const;
  VkSampler_T* sampler() const;

 private:
  Image() = default;
  void check_transfer(size_t host_bytes) const;
  std::shared_ptr<Context> context_;
  ImageFormat format_ = ImageFormat::r32f;
  Shape shape_;
  SamplerOptions sampling_;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pumice
