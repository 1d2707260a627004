// Options for compiling a graph into a program.
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

// Progress callback: current phase, work done and total work.
using CompileProgress = std::function<void(const char* phase, uint64_t done, uint64_t total)>;

struct ProgramOptions {
  std::string precision = "fp32";  // "fp32", "fp16" or "bf16"
  bool keep_all = false;           // whether the outputs of all nodes become program outputs (for validation)
  FusionSet fuse = FusionSet::all();
  bool check_indices = false;                      // whether to throw IndexRangeError for out-of-range indices that only the device knows
  CompileProgress progress = {};                   // may be empty; may throw
  std::shared_ptr<UploadMemory> memory = nullptr;  // preallocated upload memory of the same context; null: compile() allocates it
  bool deterministic = false;                      // whether results must be bit-identical in every run
  std::shared_ptr<const MeasuredVariants> measured = nullptr;  // measured kernel variants to use where possible; null: built-in choices
  std::set<std::string> float32_nodes = {};                    // names (as in reports) of nodes that compute in float32 at any precision
};

}  // namespace pumice
