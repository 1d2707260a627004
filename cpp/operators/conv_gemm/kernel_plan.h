// The plan of a GEMM or convolution dispatch, and helpers shared by the plans of all kernels.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "operators/conv_gemm/conv_gemm_params.h"
#include "operators/table/measured_variants.h"

namespace pumice {

// The kernel of a GEMM or convolution with its macros and constants, workgroup tile, and maximum number of loop iterations per invocation.
struct ConvGemmPlan {
  std::string_view shader;
  Macros macros;
  SpecValues spec;
  int64_t tile_pixels, tile_channels;
  int64_t additions;         // see LoweredNode
  int64_t iterations;        // 0 for kernels that drivers with loop limits do not run (cooperative matrices, subgroup operations)
  std::string variant;       // name of this kernel variant
  std::string spilled = {};  // the variant that was rejected because its kernel spills registers
  std::shared_ptr<const StepChoice> choice = nullptr;
  int64_t tiles = 0;                             // number of workgroups for all pixels; 0: one per tile_pixels pixels
  int64_t weights_first = 0, weights_count = 0;  // range of the weights that the kernel reads, if it does not read all
};

inline SpecValues make_spec_constants(std::initializer_list<std::pair<std::string_view, int64_t>> values) {
  SpecValues spec;
  for (const auto& [name, value] : values) spec.emplace_back(name, value);
  return spec;
}

// Like make_spec_constants(), but adds the taps, strides and dilations of a convolution.
inline SpecValues make_window_constants(const ConvGemmParams& c, std::initializer_list<std::pair<std::string_view, int64_t>> values) {
  SpecValues spec = make_spec_constants(values);
  const SpecValues window = make_spec_constants({{"KERNEL_H", c.taps_h},
                                                 {"KERNEL_W", c.taps_w},
                                                 {"STEP_H", c.in_step_h},
                                                 {"STEP_W", c.in_step_w},
                                                 {"DILATION_H", c.tap_step_h},
                                                 {"DILATION_W", c.tap_step_w}});
  spec.insert(spec.end(), window.begin(), window.end());
  return spec;
}

inline int64_t count_reduction_terms(const ConvGemmParams& c) {
  return c.taps_h * c.taps_w * c.weights.channels_in;
}

// Formats a tile size as in variant names.
inline std::string format_size(int64_t pixels, int64_t channels) {
  return std::to_string(pixels) + "x" + std::to_string(channels);
}

constexpr int64_t kEpilogueAdditions = 2;  // additions after the sum over K
// An addition in a cooperative matrix counts as two, because it may truncate, with an error of up to two roundings.
constexpr int64_t kCoopmatRoundings = 2;

}  // namespace pumice
