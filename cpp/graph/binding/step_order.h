// Orders a plan's steps and assigns offsets to its temporary tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/binding/placement.h"
#include "graph/binding/stored_value.h"

namespace pumice {

struct OrderedSteps {
  std::vector<PlannedStep> steps;      // the steps, wave by wave
  uint64_t temporary_bytes = 0;        // size of the arena
  uint64_t sequential_peak_bytes = 0;  // minimum arena size if steps ran one at a time
  uint32_t wave_count = 0;
};

// Groups the steps into waves, places the arena by lifetimes counted in waves, and resolves each operand's storage root to a place and an
// offset. Resolves the stored values likewise, and sets their `last_write`.
OrderedSteps order_and_place(std::vector<PlannedStep> steps, const Placement& placement, std::span<StoredValue> stored = {});

}  // namespace pumice
