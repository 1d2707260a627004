// Folds the workgroups that a kernel is asked for into a grid that the device takes: shaders/include/grid.glsl has the other half.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "dispatch/kernel/kernel.h"

namespace pumice {

// The form of a kernel, and its workgroups on each axis.
struct Launch {
  std::shared_ptr<const KernelVariant> kernel;
  std::array<uint32_t, 3> groups{1, 1, 1};
};

// The kernel as it is where the device takes so many workgroups on every axis, else folded: see KernelVariant::folded().
// Throws Error where the kernel has no form for that (a mistake of its lowering, which must cut the work), UnsupportedError where the grid
// is larger than 32-bit numbers count or than all three axes of the device hold.
Launch launch_of(const std::shared_ptr<const KernelVariant>& kernel, const std::array<uint64_t, 3>& groups);

}  // namespace pumice
