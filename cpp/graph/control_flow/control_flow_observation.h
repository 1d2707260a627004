// Record of an execution of a program with control flow in which kernels are observed individually.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor_desc.h"
#include "graph/region/observed_region.h"

namespace pumice {

// A run of a region: its inputs, and a rerun on the same inputs that copies what its kernels store.
struct ObservedRun {
  std::string graph;    // graph that contains the region
  uint64_t number = 0;  // run index of this region
  std::vector<std::pair<std::string, HostTensor>> inputs;
  std::shared_ptr<ObservedRegion> observed;
  std::vector<std::string> differing;  // outputs of the region that differ bitwise from the run without copies
};

struct ControlFlowObservation {
  // How often a region ran, and how many of its first runs are in `runs`.
  struct Count {
    std::string graph;
    uint64_t runs = 0, observed = 0;
  };

  std::vector<ObservedRun> runs;
  std::vector<HostTensor> outputs;        // outputs of the program
  std::vector<Count> regions;             // all regions of the program
  std::vector<std::string> single_loops;  // loops run by a single kernel, which stores nothing per iteration
};

}  // namespace pumice
