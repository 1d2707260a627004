// Executions of a program with control flow, which run its routines step by step; the host decides what the device cannot.
#pragma once

#include <memory>
#include <span>

#include "graph/flow/flow_observation.h"
#include "graph/flow/flow_program.h"
#include "graph/region/lease.h"
#include "graph/region/program_value.h"

namespace pumice {

// A lease of a program with control flow: memory of inputs of the shapes that make_inputs() was given last, and everything that runs on it.
// input_desc() gives these shapes.
class FlowLease : public Lease {
 public:
  static std::shared_ptr<FlowLease> create(std::shared_ptr<const FlowProgram> program, const RecordingOptions& options);
  virtual void make_inputs(std::span<const ShapeView> shapes) = 0;
  // Runs as start() does, but the host drives what the device could, and up to `most` runs of each region are observed. A region's plan and
  // kernels are the same either way. Throws what start() does.
  virtual FlowObservation observe(const RunLimits& limits, uint64_t most) = 0;
};

}  // namespace pumice
