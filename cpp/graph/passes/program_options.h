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

// Progress of a compilation: current phase, work done and total.
using CompileProgress = std::function<void(const char* phase, uint64_t done, uint64_t total)>;

struct ProgramOptions {
  std::string precision = "fp32";  // "fp32", "fp16" or "bf16"
  bool keep_all = false;           // every node's outputs become program outputs (validation)
  FusionSet fuse = FusionSet::all();
  bool check_indices = false;                                  // throw IndexRangeError for out-of-range indices known only on the device
  CompileProgress progress = {};                               // may be empty; may throw
  std::shared_ptr<UploadMemory> memory = nullptr;              // preallocated, of the same context; null: compile() allocates it
  bool deterministic = false;                                  // results are bit-identical in every run
  std::shared_ptr<const MeasuredVariants> measured = nullptr;  // measured step variants to use where possible; null: built-in choices
  std::set<std::string> float32_nodes = {};                    // report names of nodes that compute in float32 at any precision
};

}  // namespace pumice
