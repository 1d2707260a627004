// Executes programs with control flow: runs their routines step by step. The host evaluates the branches and loops that the device cannot.
#pragma once

#include <memory>
#include <span>

#include "graph/control_flow/control_flow_observation.h"
#include "graph/control_flow/control_flow_program.h"
#include "graph/region/execution_lease.h"
#include "graph/region/program_value.h"

namespace pumice {

// A lease of a program with control flow: its inputs, with the shapes of the last allocate_inputs() call, and the state of its execution.
class ControlFlowLease : public ExecutionLease {
 public:
  static std::shared_ptr<ControlFlowLease> create(std::shared_ptr<const ControlFlowProgram> program, const RecordingOptions& options);
  virtual void allocate_inputs(std::span<const ShapeView> shapes) = 0;
  // Like start(), but the host drives all control flow, and up to `max_runs` runs of each region are observed. Uses the same plans
  // and kernels. Throws as start() does.
  virtual ControlFlowObservation observe(const RunLimits& limits, uint64_t max_runs) = 0;
};

}  // namespace pumice
