// Activations of the dv interface, "WHC8": groups of 8 channels; in a group x is outermost, then y, then the channel. The last group has
// the channels that are left and no padding.
#pragma once

#include <algorithm>
#include <cstddef>

namespace pumice::dv {

constexpr size_t kGroupChannels = 8;

// Calls visit(index in WHC8, index in CHW) for every element, in the order of WHC8.
template <typename Visit>
void visit_whc8(size_t channels, size_t height, size_t width, const Visit& visit) {
  const size_t plane = height * width;
  size_t index = 0;
  for (size_t first = 0; first < channels; first += kGroupChannels) {
    const size_t end = std::min(first + kGroupChannels, channels) * plane;
    for (size_t x = 0; x < width; ++x)
      for (size_t y = 0; y < height; ++y)
        for (size_t source = first * plane + y * width + x; source < end; source += plane) visit(index++, source);
  }
}

}  // namespace pumice::dv
