#include "device/image.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "device/context_state.h"

namespace pumice {

// Vulkan handles of an image.
struct Image::State {
  VkImage image = VK_NULL_HANDLE;
  VkImageView view = VK_NULL_HANDLE;
  VkSampler sampler = VK_NULL_HANDLE;  // owned by the context
  Allocation allocation;
  bool supports_storage = false;
  std::atomic<bool> closed{true};  // false once construction is complete
};

namespace {

struct FormatInfo {
  std::string_view name;
  VkFormat format;
  DType type;
  uint32_t channels;
};

constexpr FormatInfo kFormats[] = {
    // indexed by ImageFormat
    {"r32f", VK_FORMAT_R32_SFLOAT, DType::float32, 1},
    {"r16f", VK_FORMAT_R16_SFLOAT, DType::float16, 1},
    {"rgba16f", VK_FORMAT_R16G16B16A16_SFLOAT, DType::float16, 4},
    {"rgba32f", VK_FORMAT_R32G32B32A32_SFLOAT, DType::float32, 4},
    {"rg32f", VK_FORMAT_R32G32_SFLOAT, DType::float32, 2},
    {"rg16f", VK_FORMAT_R16G16_SFLOAT, DType::float16, 2},
    {"r8", VK_FORMAT_R8_UNORM, DType::uint8, 1},
    {"rg8", VK_FORMAT_R8G8_UNORM, DType::uint8, 2},
    {"rgba8", VK_FORMAT_R8G8B8A8_UNORM, DType::uint8, 4},
    {"r32ui", VK_FORMAT_R32_UINT, DType::uint32, 1},
    {"rg32ui", VK_FORMAT_R32G32_UINT, DType::uint32, 2},
    {"rgba32ui", VK_FORMAT_R32G32B32A32_UINT, DType::uint32, 4},
    {"r16ui", VK_FORMAT_R16_UINT, DType::uint16, 1},
    {"r8ui", VK_FORMAT_R8_UINT, DType::uint8, 1},
    {"rgba8ui", VK_FORMAT_R8G8B8A8_UINT, DType::uint8, 4},
    {"r32i", VK_FORMAT_R32_SINT, DType::int32, 1},
    {"rg32i", VK_FORMAT_R32G32_SINT, DType::int32, 2},
    {"rgba32i", VK_FORMAT_R32G32B32A32_SINT, DType::int32, 4},
    {"r16i", VK_FORMAT_R16_SINT, DType::int16, 1},
    {"r8i", VK_FORMAT_R8_SINT, DType::int8, 1},
};
static_assert(std::size(kFormats) == static_cast<size_t>(ImageFormat::r8i) + 1);

const FormatInfo& get_format_info(ImageFormat format) {
  return kFormats[static_cast<size_t>(format)];
}

// Parameters of an image to be created, for checks and error messages.
struct ImageCreateParams {
  Context& context;
  ImageFormat format;
  const Shape& shape;
  size_t dimensions;
  VkImageUsageFlags usage = VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT;

  VkImageType type() const { return static_cast<VkImageType>(VK_IMAGE_TYPE_1D + dimensions - 1); }
  [[noreturn]] void throw_unsupported(const std::string& why) const {
    throw UnsupportedError("an image of " + to_string(shape) + " in " + std::string(name(format)) + ": " + why);
  }
};

size_t count_dimensions(ImageFormat format, const Shape& shape) {
  const bool vectors = get_channel_count(format) > 1;
  if (vectors && (shape.empty() || shape.back() != get_channel_count(format)))
    throw UnsupportedError("an image of " + to_string(shape) + " in " + std::string(name(format)) + ": the last axis must be the " +
                           std::to_string(get_channel_count(format)) + " channels of that format");
  const size_t dimensions = shape.size() - (vectors ? 1 : 0);
  if (dimensions < 1 || dimensions > 3)
    throw UnsupportedError("an image of " + to_string(shape) + " in " + std::string(name(format)) + ": expected 1 to 3 dimensions" +
                           (vectors ? " and the channels" : "") + ", given " + std::to_string(dimensions));
  return dimensions;
}

uint64_t compute_image_bytes(ImageFormat format, const Shape& shape) {
  return static_cast<uint64_t>(element_count(shape)) * static_cast<uint64_t>(bits(get_channel_dtype(format))) / 8;
}

void check_format(ImageCreateParams& request, const SamplerOptions& sampling) {
  VkFormatProperties properties;
  vkGetPhysicalDeviceFormatProperties(request.context.vk().physical, get_format_info(request.format).format, &properties);
  const VkFormatFeatureFlags features = properties.optimalTilingFeatures;
  const std::string device = "'" + request.context.info().name + "'";
  for (const auto& [bit, use] : {std::pair{VK_FORMAT_FEATURE_SAMPLED_IMAGE_BIT, "sampled images"},
                                 std::pair{VK_FORMAT_FEATURE_TRANSFER_SRC_BIT, "copies from images"},
                                 std::pair{VK_FORMAT_FEATURE_TRANSFER_DST_BIT, "copies to images"}})
    if (!(features & bit)) request.throw_unsupported(device + " has no " + use + " of this format");
  if (sampling.filter == Filter::linear && !(features & VK_FORMAT_FEATURE_SAMPLED_IMAGE_FILTER_LINEAR_BIT))
    request.throw_unsupported(device + " does not support linear filtering of this format");
  if (sampling.address == AddressMode::border && get_shader_dtype(request.format) != DType::float32)
    request.throw_unsupported("images of integers have no border");
  if (features & VK_FORMAT_FEATURE_STORAGE_IMAGE_BIT) request.usage |= VK_IMAGE_USAGE_STORAGE_BIT;
}

void check_size(const ImageCreateParams& request) {
  VkImageFormatProperties max_properties;
  const VkResult result =
      vkGetPhysicalDeviceImageFormatProperties(request.context.vk().physical, get_format_info(request.format).format, request.type(),
                                               VK_IMAGE_TILING_OPTIMAL, request.usage, 0, &max_properties);
  if (result == VK_ERROR_FORMAT_NOT_SUPPORTED)
    request.throw_unsupported("'" + request.context.info().name + "' does not support images of this kind");
  check_vk_result(result, "vkGetPhysicalDeviceImageFormatProperties");
  const std::array<uint32_t, 3> limits{max_properties.maxExtent.width, max_properties.maxExtent.height, max_properties.maxExtent.depth};
  for (size_t axis = 0; axis < request.dimensions; ++axis) {
    const int64_t size = request.shape[axis], limit = limits[request.dimensions - 1 - axis];
    if (size < 1 || size > limit)
      request.throw_unsupported("axis " + std::to_string(axis) + " has " + std::to_string(size) + " texels; the device supports 1 to " +
                                std::to_string(limit));
  }
  const uint64_t bytes = compute_image_bytes(request.format, request.shape);
  if (bytes > max_properties.maxResourceSize)
    request.throw_unsupported("it has " + std::to_string(bytes) + " bytes; the device supports at most " +
                              std::to_string(max_properties.maxResourceSize));
}

VkImage create_image(const ImageCreateParams& request, const std::array<uint32_t, 3>& extent) {
  auto& vk = request.context.vk();
  VkImageCreateInfo info{VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO};
  info.imageType = request.type();
  info.format = get_format_info(request.format).format;
  info.extent = {extent[0], extent[1], extent[2]};
  info.mipLevels = info.arrayLayers = 1;
  info.samples = VK_SAMPLE_COUNT_1_BIT;
  info.tiling = VK_IMAGE_TILING_OPTIMAL;
  info.usage = request.usage;
  info.initialLayout = VK_IMAGE_LAYOUT_UNDEFINED;
  VkImage image = VK_NULL_HANDLE;
  check_vk_result(vk.vkCreateImage(vk.device, &info, nullptr, &image), "vkCreateImage");
  return image;
}

VkImageView create_view(const ImageCreateParams& request, VkImage image) {
  auto& vk = request.context.vk();
  VkImageViewCreateInfo info{VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO};
  info.image = image;
  info.viewType = static_cast<VkImageViewType>(VK_IMAGE_VIEW_TYPE_1D + request.dimensions - 1);
  info.format = get_format_info(request.format).format;
  info.subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
  VkImageView view = VK_NULL_HANDLE;
  check_vk_result(vk.vkCreateImageView(vk.device, &info, nullptr, &view), "vkCreateImageView");
  return view;
}

VkSampler create_sampler(DeviceTable& vk, const SamplerOptions& options) {
  VkSamplerCreateInfo info{VK_STRUCTURE_TYPE_SAMPLER_CREATE_INFO};
  info.magFilter = info.minFilter = options.filter == Filter::linear ? VK_FILTER_LINEAR : VK_FILTER_NEAREST;
  info.mipmapMode = VK_SAMPLER_MIPMAP_MODE_NEAREST;
  info.addressModeU = info.addressModeV = info.addressModeW = options.address == AddressMode::clamp ? VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_EDGE
                                                              : options.address == AddressMode::repeat
                                                                  ? VK_SAMPLER_ADDRESS_MODE_REPEAT
                                                                  : VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER;
  info.borderColor = VK_BORDER_COLOR_FLOAT_TRANSPARENT_BLACK;
  info.unnormalizedCoordinates = options.normalized ? VK_FALSE : VK_TRUE;
  VkSampler sampler = VK_NULL_HANDLE;
  check_vk_result(vk.vkCreateSampler(vk.device, &info, nullptr, &sampler), "vkCreateSampler");
  return sampler;
}

// Returns the context's sampler with these options, creating it on first use.
VkSampler get_or_create_sampler(ContextState& owner, const SamplerOptions& options) {
  const std::lock_guard lock(owner.mutex);
  for (const auto& [cached_options, sampler] : owner.samplers)
    if (cached_options == options) return sampler;
  return owner.samplers.emplace_back(options, create_sampler(*owner.vk, options)).second;
}

// Allocates whole multiples of bufferImageGranularity, since adjacent memory may belong to a buffer.
Allocation allocate_image_memory(Context& context, VkImage image) {
  auto& owner = get_usable_state(context);
  auto& vk = *owner.vk;
  VkMemoryRequirements requirements;
  vk.vkGetImageMemoryRequirements(vk.device, image, &requirements);
  const uint64_t granule = context.limit("bufferImageGranularity");
  requirements.alignment = std::max<uint64_t>(requirements.alignment, granule);
  requirements.size = (requirements.size + granule - 1) / granule * granule;
  return owner.memory->allocate(requirements, owner.choose_memory_type(Heap::default_, requirements.memoryTypeBits), "an image");
}

}  // namespace

std::string_view name(ImageFormat format) {
  return get_format_info(format).name;
}

ImageFormat image_format_from_name(std::string_view requested) {
  std::string known_names;
  for (size_t i = 0; i < std::size(kFormats); ++i) {
    if (kFormats[i].name == requested) return static_cast<ImageFormat>(i);
    known_names += (known_names.empty() ? "" : ", ") + std::string(kFormats[i].name);
  }
  throw UnsupportedError("image format '" + std::string(requested) + "'; supported: " + known_names);
}

DType get_channel_dtype(ImageFormat format) {
  return get_format_info(format).type;
}
DType get_shader_dtype(ImageFormat format) {
  const std::string_view declared = name(format);
  return declared.ends_with("ui") ? DType::uint32 : declared.ends_with('i') ? DType::int32 : DType::float32;
}
uint32_t get_channel_count(ImageFormat format) {
  return get_format_info(format).channels;
}

std::shared_ptr<Image> Image::create(std::shared_ptr<Context> context, ImageFormat format, Shape shape, const SamplerOptions& sampler) {
  auto& owner = get_usable_state(*context);
  auto& vk = *owner.vk;
  const std::shared_ptr<Image> result(new Image);
  result->context_ = std::move(context);
  result->format_ = format;
  result->shape_ = std::move(shape);
  result->sampling_ = sampler;
  result->state_ = std::make_unique<State>();
  ImageCreateParams request{*result->context_, format, result->shape_, count_dimensions(format, result->shape_)};
  if (!sampler.normalized && !supports_unnormalized_coordinates(request.dimensions, sampler.address))
    request.throw_unsupported("coordinates in texels need one or two dimensions and the address mode 'clamp' or 'border'");
  check_format(request, sampler);
  check_size(request);
  State& state = *result->state_;
  state.supports_storage = (request.usage & VK_IMAGE_USAGE_STORAGE_BIT) != 0;
  try {
    state.image = create_image(request, result->extent());
    state.allocation = allocate_image_memory(*result->context_, state.image);
    owner.check_device_result(vk.vkBindImageMemory(vk.device, state.image, state.allocation.block->memory, state.allocation.offset),
                              "vkBindImageMemory");
    state.view = create_view(request, state.image);
    state.sampler = get_or_create_sampler(owner, sampler);
  } catch (...) {
    owner.retire({.image = state.image, .view = state.view, .allocation = state.allocation});
    throw;
  }
  state.closed = false;
  ++owner.live_images;
  owner.live_image_bytes += state.allocation.bytes;
  return result;
}

Image::~Image() {
  close();
}

void Image::close() {
  if (!state_ || state_->closed.exchange(true)) return;
  auto& owner = context_->state();
  --owner.live_images;
  owner.live_image_bytes -= state_->allocation.bytes;
  if (owner.is_forked_child()) return;
  owner.retire({.image = state_->image, .view = state_->view, .allocation = state_->allocation});
}

std::array<uint32_t, 3> Image::extent() const {
  const auto size = [&](size_t axis) { return axis < dimensions() ? static_cast<uint32_t>(shape_[dimensions() - 1 - axis]) : 1u; };
  return {size(0), size(1), size(2)};
}

bool Image::closed() const {
  return state_->closed;
}

bool Image::supports_storage() const {
  return state_->supports_storage;
}

uint64_t Image::bytes() const {
  return compute_image_bytes(format_, shape_);
}

uint64_t Image::memory() const {
  return state_->allocation.block->id;
}
uint64_t Image::memory_offset() const {
  return state_->allocation.offset;
}
uint64_t Image::memory_bytes() const {
  return state_->allocation.bytes;
}
VkImage_T* Image::handle() const {
  return state_->image;
}
VkImageView_T* Image::view() const {
  return state_->view;
}
VkSampler_T* Image::sampler() const {
  return state_->sampler;
}

}  // namespace pumice
