// A program with control flow: its routines, and executions that run them step by step; the host decides what the device cannot.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/flow/routine.h"
#include "graph/region/lease_pool.h"

namespace pumice {

// What executions of one program share. Immutable but for the regions, which are thread-safe.
struct FlowProgram {
  std::shared_ptr<Context> context;
  std::string name;
  std::vector<Routine> routines;

  // Indices are checked run by run: the host drives all control flow.
  bool checks_indices() const;
};

// Memory of inputs of these shapes, and everything that runs on it. The lease's input_desc() are those of the shapes last prepared for.
class FlowLease : public Lease {
 public:
  static std::shared_ptr<FlowLease> create(std::shared_ptr<const FlowProgram> program, const RecordingOptions& options);
  virtual void prepare(std::span<const ShapeView> shapes) = 0;
};

}  // namespace pumice
