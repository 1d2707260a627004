#include "dispatch/kernel/grid_folding.h"

#include <algorithm>

#include "core/error.h"
#include "core/injected_fault.h"
#include "core/rounding.h"

namespace pumice {
namespace {

std::string format_groups(const std::array<uint64_t, 3>& groups) {
  return std::to_string(groups[0]) + " by " + std::to_string(groups[1]) + " by " + std::to_string(groups[2]) + " workgroups";
}

[[noreturn]] void throw_grid_error(const KernelVariant& kernel, const std::array<uint64_t, 3>& groups, const std::string& why) {
  throw UnsupportedError("kernel '" + kernel.name() + "' needs " + format_groups(groups) + ", " + why);
}

// Returns the total number of workgroups, or 0 if it exceeds 32 bits.
uint64_t count_groups(const std::array<uint64_t, 3>& groups) {
  uint64_t count = 1;
  for (const uint64_t size : groups) {
    if (size > UINT32_MAX) return 0;
    count *= size;
    if (count > UINT32_MAX) return 0;
  }
  return count;
}

}  // namespace

KernelLaunch make_launch(const std::shared_ptr<const KernelVariant>& kernel, const std::array<uint64_t, 3>& groups) {
  const std::array<uint64_t, 3>& max_groups = kernel->max_groups();
  const uint32_t axes = kernel->foldable_grid_axes();
  if (axes == 1 && (groups[1] != 1 || groups[2] != 1))
    throw Error("kernel '" + kernel->name() + "' has a grid of one axis but is given " + format_groups(groups));
  const auto fits = [&](const std::array<uint64_t, 3>& counts) {
    return counts[0] <= max_groups[0] && counts[1] <= max_groups[1] && counts[2] <= max_groups[2];
  };
  if (fits(groups)) return {kernel, {static_cast<uint32_t>(groups[0]), static_cast<uint32_t>(groups[1]), static_cast<uint32_t>(groups[2])}};
  if (axes == 0)
    throw Error("kernel '" + kernel->name() + "' does not support folded grids but is given " + format_groups(groups) +
                "; the device supports " + format_groups(max_groups) + ", so its lowering must split the work");
  const uint64_t count = count_groups(groups);
  if (count == 0) throw_grid_error(*kernel, groups, "more than fit in 32 bits");
  const uint64_t layers = ceil_div(ceil_div(count, max_groups[0]), max_groups[1]), rows = ceil_div(ceil_div(count, layers), max_groups[0]);
  const std::array<uint64_t, 3> folded{ceil_div(ceil_div(count, layers), rows), rows, layers};
  if (!fits(folded)) throw_grid_error(*kernel, groups, "more than the device's " + format_groups(max_groups));
  if (count_groups(folded) == 0) throw_grid_error(*kernel, groups, "more than fit in 32 bits");
  const uint64_t done = is_fault_injected("fold") ? 1 : rows;
  return {kernel->get_folded_variant(), {static_cast<uint32_t>(folded[0]), static_cast<uint32_t>(done), static_cast<uint32_t>(layers)}};
}

}  // namespace pumice
