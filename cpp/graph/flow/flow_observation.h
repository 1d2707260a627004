// The record of an execution of a program with control flow whose kernels are looked at one by one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor_desc.h"
#include "graph/region/observed_region.h"

namespace pumice {

// A run of a region: what it was given, and the region once more on the same, with copies of what its kernels store.
struct ObservedRun {
  std::string graph;    // the name of the graph that the region is a part of
  uint64_t number = 0;  // of this region's runs, from 0 on
  std::vector<std::pair<std::string, HostTensor>> inputs;
  std::shared_ptr<ObservedRegion> observed;
  std::vector<std::string> differing;  // outputs of the region whose bits are others in the run without copies
};

struct FlowObservation {
  // How often a region ran, and how many of these runs are among `runs`: the first ones.
  struct Count {
    std::string graph;
    uint64_t runs = 0, observed = 0;
  };

  std::vector<ObservedRun> runs;
  std::vector<HostTensor> outputs;        // of the program
  std::vector<Count> regions;             // all regions of the program
  std::vector<std::string> single_loops;  // loops that one kernel runs whole, which stores nothing of an iteration
};

}  // namespace pumice
