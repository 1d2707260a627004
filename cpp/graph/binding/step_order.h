// The order of a plan's steps, and where their temporary tensors lie.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/binding/placement.h"
#include "graph/binding/stored_value.h"

namespace pumice {

struct OrderedSteps {
  std::vector<PlannedStep> steps;      // wave by wave
  uint64_t temporary_bytes = 0;        // bytes of the arena
  uint64_t sequential_peak_bytes = 0;  // what the arena takes at least where steps run one after the other
  uint32_t wave_count = 0;
};

// Puts the steps into waves, places the arena by lifetimes that are counted in waves, and gives every operand that names its storage root
// its place and offset, those of `stored` too, whose steps of completion are found.
OrderedSteps order_and_place(std::vector<PlannedStep> steps, const Placement& placement, std::span<StoredValue> stored = {});

}  // namespace pumice
