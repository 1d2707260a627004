// How a graph is compiled into a program.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "graph/description/fusions.h"

namespace pumice {

class UploadMemory;
struct MeasuredVariants;

// How far a compilation is: what is being done, and how much of it.
using CompileProgress = std::function<void(const char* phase, uint64_t done, uint64_t total)>;

struct ProgramOptions {
  std::string precision = "fp32";  // "fp32", "fp16" or "bf16"
  bool keep_all = false;           // every node's outputs become outputs of the program (validation)
  FusionSet fuse = FusionSet::all();
  bool check_indices = false;                      // executions throw IndexRangeError for indices out of range that only the device knows
  CompileProgress progress = {};                   // may be empty; may throw
  std::shared_ptr<UploadMemory> memory = nullptr;  // begun already, of the same context; none: compile begins it
  bool deterministic = false;                      // results are the same bits in every run
  std::shared_ptr<const MeasuredVariants> measured =
      nullptr;                               // variants of steps that the program takes where it can; none: its own choices
  std::set<std::string> float32_nodes = {};  // names, as in reports, of nodes that compute in float32 whatever the precision is
};

}  // namespace pumice
