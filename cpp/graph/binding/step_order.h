// Orders a plan's steps and assigns offsets to its temporary tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/binding/memory_plan.h"
#include "graph/binding/stored_value.h"

namespace pumice {

struct OrderedSteps {
  std::vector<PlannedStep> steps;      // the steps, wave by wave
  uint64_t temporary_bytes = 0;        // size of the arena
  uint64_t sequential_peak_bytes = 0;  // memory peak if steps run one at a time
  uint32_t wave_count = 0;
};

// Schedules the steps in waves, assigns arena offsets by lifetime, and resolves the StorageRoot of each operand to a memory kind and
// offset. Resolves the stored values in the same way and sets their `last_write`.
OrderedSteps order_steps(std::vector<PlannedStep> steps, const MemoryPlan& memory_plan, std::span<StoredValue> stored = {});

}  // namespace pumice
