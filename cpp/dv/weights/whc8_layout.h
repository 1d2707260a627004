// WHC8, the activation layout of the dv interface: groups of 8 channels; within a group x is outermost, then y, then the channel. The last
// group has the remaining channels, without padding.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "dv/weights/extent.h"

namespace pumice::dv {

constexpr size_t kGroupChannels = 8;

// Returns the element offset in a WHC8 tensor.
constexpr uint64_t whc8_index(const Extent& extent, uint32_t channel, uint32_t x, uint32_t y) {
  const uint64_t first = channel / kGroupChannels * kGroupChannels;
  const uint64_t channels = std::min<uint64_t>(kGroupChannels, extent.channels - first);
  return (first * extent.width * extent.height) + (uint64_t{x} * extent.height + y) * channels + (channel - first);
}

// Byte strides of a host array.
struct HostStrides {
  std::ptrdiff_t image = 0, channel = 0, row = 0, column = 0;
};

// Calls visit(byte offset) for each element in WHC8 order.
template <typename Visit>
void visit_whc8(const Extent& extent, const HostStrides& strides, const Visit& visit) {
  for (uint32_t first = 0; first < extent.channels; first += kGroupChannels) {
    const uint32_t channels = std::min<uint32_t>(kGroupChannels, extent.channels - first);
    for (uint32_t x = 0; x < extent.width; ++x)
      for (uint32_t y = 0; y < extent.height; ++y) {
        std::ptrdiff_t at = first * strides.channel + y * strides.row + x * strides.column;
        for (uint32_t channel = 0; channel < channels; ++channel, at += strides.channel) visit(at);
      }
  }
}

// Copies between WHC8 tensors, which are contiguous, and arrays with any byte strides. Elements have 1, 2, 4 or 8 bytes and are aligned.
void to_whc8(size_t element_bytes, uint32_t images, const Extent& extent, const std::byte* source, const HostStrides& strides,
             std::byte* target);
void from_whc8(size_t element_bytes, uint32_t images, const Extent& extent, const std::byte* source, std::byte* target,
               const HostStrides& strides);

}  // namespace pumice::dv
