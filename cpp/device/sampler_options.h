// Sampler options: filter and address mode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pumice {

enum class Filter : uint8_t { nearest, linear };
enum class AddressMode : uint8_t { clamp, repeat, border };  // texels outside the image: nearest texel, wrap around, zeros
std::string_view name(Filter filter);
std::string_view name(AddressMode mode);

// Sampling options of a shader's texture functions; texelFetch and storage images ignore them.
struct SamplerOptions {
  Filter filter = Filter::nearest;
  AddressMode address = AddressMode::clamp;
  bool normalized = true;  // coordinates from 0 to 1 instead of texels
  bool operator==(const SamplerOptions&) const = default;
};

// Whether Vulkan allows unnormalised coordinates: not for 3D images or repeat.
bool supports_unnormalized_coordinates(size_t dimensions, AddressMode mode);

}  // namespace pumice
