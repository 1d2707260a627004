// Reports on the plan of a binding: memory use, and dispatches in order.
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
  uint64_t arena_bytes = 0;        // planned size of the arena
  uint64_t lower_bound_bytes = 0;  // largest total size of tensors that are live at the same time, each padded to the arena alignment
  uint64_t persistent_bytes = 0;
  size_t dispatches = 0, barriers = 0, waves = 0;
};

// One dispatch of a plan, as recorded.
struct StepReport {
  struct Operand {
    std::string name;   // name of the binding in the kernel
    std::string value;  // name of the value in the graph; empty for scratch memory
    MemoryKind memory;
    uint32_t index = 0;           // index of the input or output, for these memory kinds
    uint64_t begin = 0, end = 0;  // byte range [begin, end) in this memory
    bool read = false, write = false;
  };
  std::string label, kernel;
  uint32_t wave = 0;
  bool barrier = false;              // whether a barrier precedes the dispatch
  std::array<uint32_t, 3> groups{};  // workgroups per axis
  bool folded = false;               // whether the grid of the kernel is folded into `groups`
  std::vector<Operand> operands;
  int64_t additions = 0;                               // longest chain of additions in the sums of its node, see LoweredNode
  std::shared_ptr<const StepChoice> choice = nullptr;  // set if MeasuredVariants has an entry for the step or lists all variants
};

}  // namespace pumice
