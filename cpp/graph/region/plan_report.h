// Reports about a binding's plan: memory, and dispatches in order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "operators/table/lowering.h"

namespace pumice {

struct ArenaReport {
  uint64_t arena_bytes = 0;        // planned size
  uint64_t lower_bound_bytes = 0;  // largest sum of simultaneously live tensors, each padded to the arena alignment
  uint64_t persistent_bytes = 0;
  size_t dispatches = 0, barriers = 0, waves = 0;
};

// One dispatch of a plan, as recorded.
struct StepReport {
  struct Operand {
    std::string name;   // name of the binding
    std::string value;  // value of the graph; empty for scratch memory
    MemoryKind place;
    uint32_t index = 0;           // index of the input or output
    uint64_t begin = 0, end = 0;  // byte range within the place
    bool read = false, write = false;
  };
  std::string label, kernel;
  uint32_t wave = 0;
  bool barrier = false;              // whether a barrier precedes the dispatch
  std::array<uint32_t, 3> groups{};  // workgroups per axis
  bool folded = false;               // `groups` index the workgroups of the kernel's own grid
  std::vector<Operand> operands;
  int64_t additions = 0;                               // additions of its node, see LoweredNode
  std::shared_ptr<const StepChoice> choice = nullptr;  // set if MeasuredVariants has an entry for this step, or lists all variants
};

}  // namespace pumice
