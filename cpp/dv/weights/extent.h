// Sizes of activations.
#pragma once

#include <cstdint>

namespace pumice::dv {

// Activation size in elements.
struct Extent {
  uint32_t width = 0, height = 0, channels = 0;
  Extent transposed() const { return {height, width, channels}; }
  bool empty() const { return width == 0 || height == 0 || channels == 0; }
  uint64_t elements() const { return uint64_t{width} * height * channels; }
  uint64_t bytes() const { return elements() * sizeof(uint16_t); }  // size in bytes as float16
  bool operator==(const Extent&) const = default;
};

}  // namespace pumice::dv
