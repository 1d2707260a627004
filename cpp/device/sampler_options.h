// Options of sampling: the filter, and what is read outside of the image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pumice {

enum class Filter : uint8_t { nearest, linear };
enum class AddressMode : uint8_t { clamp, repeat, border };  // outside of the image: its nearest texel, the image again, zeros
std::string_view name(Filter filter);
std::string_view name(AddressMode mode);

// Options of a shader's texture functions; texelFetch and storage images do not use them.
struct SamplerOptions {
  Filter filter = Filter::nearest;
  AddressMode address = AddressMode::clamp;
  bool normalized = true;  // coordinates from 0 to 1, not in texels
  bool operator==(const SamplerOptions&) const = default;
};

// Whether a device samples with coordinates in texels: not in volumes, nor in images that repeat.
bool may_be_unnormalized(size_t dimensions, AddressMode mode);

}  // namespace pumice
