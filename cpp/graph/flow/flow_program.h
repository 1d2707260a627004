// A program with control flow: its routines.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/flow/routine.h"

namespace pumice {

// The compiled routines, which all executions of a program share. Immutable but for the regions, which are thread-safe.
struct FlowProgram {
  std::shared_ptr<Context> context;
  std::string name;
  std::vector<Routine> routines;

  // Indices are checked region by region: the host drives all control flow.
  bool checks_indices() const;
};

}  // namespace pumice
