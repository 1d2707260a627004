// Folds a grid of workgroups that exceeds the device's limits; the shader side is in shaders/include/grid.glsl.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "dispatch/kernel/kernel.h"

namespace pumice {

// A kernel variant with its group counts.
struct KernelLaunch {
  std::shared_ptr<const KernelVariant> kernel;
  std::array<uint32_t, 3> groups{1, 1, 1};
};

// Returns the kernel as is if the device supports the group counts, else its folded variant (see KernelVariant::get_folded_variant()).
// Throws Error if the kernel cannot fold (a bug in its lowering, which must split the work), UnsupportedError if the grid exceeds 32-bit
// counts or the device's limit on the total over all three axes.
KernelLaunch make_launch(const std::shared_ptr<const KernelVariant>& kernel, const std::array<uint64_t, 3>& groups);

}  // namespace pumice
