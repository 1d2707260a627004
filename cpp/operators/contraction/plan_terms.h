// The plan of a contraction, and what those of all kernels say alike.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "operators/contraction/contraction_terms.h"
#include "operators/row/measured_variants.h"

namespace pumice {

// The kernel that computes a contraction, what it is told, the tile that a workgroup computes, and how often an invocation's loops run
// for that at most.
struct ContractionPlan {
  std::string_view shader;
  Macros macros;
  SpecValues spec;
  int64_t tile_pixels, tile_channels;
  int64_t additions;         // see LoweredNode
  int64_t iterations;        // 0: of a kernel for matrix units or subgroups, which no driver that ends long loops has
  std::string variant;       // its name among those that a step can take
  std::string spilled = {};  // the name of the one that it stands for, since that one's kernel spills
  std::shared_ptr<const StepChoice> choice = nullptr;
  int64_t tiles = 0;                             // workgroups for all pixels, where tiles are no runs of tile_pixels of them
  int64_t weights_first = 0, weights_count = 0;  // the elements of the weights that the kernel reads, where these are not all packed ones
};

inline SpecValues specialized(std::initializer_list<std::pair<std::string_view, int64_t>> values) {
  SpecValues spec;
  for (const auto& [name, value] : values) spec.emplace_back(name, value);
  return spec;
}

// The same, and the taps, steps and dilation of a convolution's windows.
inline SpecValues with_window(const Contraction& c, std::initializer_list<std::pair<std::string_view, int64_t>> values) {
  SpecValues spec = specialized(values);
  const SpecValues window = specialized({{"KERNEL_H", c.taps_h},
                                         {"KERNEL_W", c.taps_w},
                                         {"STEP_H", c.in_step_h},
                                         {"STEP_W", c.in_step_w},
                                         {"DILATION_H", c.tap_step_h},
                                         {"DILATION_W", c.tap_step_w}});
  spec.insert(spec.end(), window.begin(), window.end());
  return spec;
}

inline int64_t depth_of(const Contraction& c) {
  return c.taps_h * c.taps_w * c.weights.channels_in;
}

// As it stands in the name of a variant.
inline std::string sides(int64_t pixels, int64_t channels) {
  return std::to_string(pixels) + "x" + std::to_string(channels);
}

constexpr int64_t kBiases = 2;  // additions behind a sum
// An addition of a matrix unit counts for two: it may cut off what does not fit, and is then off by as much as two that round.
constexpr int64_t kCutting = 2;

}  // namespace pumice
