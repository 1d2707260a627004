// Results of an execution with control flow whose kernels are observed one by one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor_desc.h"
#include "graph/region/intermediate_tensor_capture.h"

namespace pumice {

// One run of a region: its inputs, and a rerun on the same inputs that copies the tensors its kernels store.
struct ObservedRun {
  std::string graph;    // name of the graph that contains the region
  uint64_t number = 0;  // run index of this region
  std::vector<std::pair<std::string, HostTensor>> inputs;
  std::shared_ptr<IntermediateTensorCapture> observed;
  std::vector<std::string> differing;  // names of the outputs that differ bitwise from the normal run
};

struct ControlFlowObservation {
  // How often a region ran, and how many of its runs were observed.
  struct RegionRunCount {
    std::string graph;
    uint64_t runs = 0, observed = 0;
  };

  std::vector<ObservedRun> runs;
  std::vector<HostTensor> outputs;        // outputs of the program
  std::vector<RegionRunCount> regions;    // all regions of the program
  std::vector<std::string> single_loops;  // names of loops that run as a single kernel and store nothing per iteration
};

}  // namespace pumice
