// A program with control flow: its routines.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/control_flow/routine.h"

namespace pumice {

// The compiled routines, shared by all executions of a program. Immutable except for the regions, which are thread-safe.
struct ControlFlowProgram {
  std::shared_ptr<Context> context;
  std::string name;
  std::vector<Routine> routines;

  // Whether indices are checked; this is done region by region, so the host drives all control flow.
  bool checks_indices() const;
};

}  // namespace pumice
