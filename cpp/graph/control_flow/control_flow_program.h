// The compiled routines of a program with control flow.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/control_flow/routine.h"

namespace pumice {

// Shared by all executions of a program. Immutable except for its regions, which are thread-safe.
struct ControlFlowProgram {
  std::shared_ptr<Context> context;
  std::string name;
  std::vector<Routine> routines;

  // Whether any region checks indices. The host then drives all control flow, so that it can check after each region.
  bool checks_indices() const;
};

}  // namespace pumice
