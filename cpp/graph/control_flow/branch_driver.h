// Runs IF nodes with short branches and a condition that only the device knows: records both branches, and the device skips one.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "graph/control_flow/control_flow_execution.h"
#include "graph/control_flow/predicated_code.h"

namespace pumice {

// Caches its recordings between executions. Not thread-safe.
class BranchDriver {
 public:
  BranchDriver(const ControlFlowProgram& program, ControlFlowExecution& session) : program_(program), execution_(session) {}
  // Runs the IF and returns its results, or nullopt if the host has to read the condition. `operands`: the condition, then the inputs.
  // `read_by_host`: for each result, whether the host will read it.
  std::optional<std::vector<RoutineValue>> run(const RoutineStep& step, std::span<const RoutineValue> operands,
                                               const std::vector<bool>& read_by_host);

 private:
  struct CachedBranch {
    const RoutineStep* step = nullptr;
    std::vector<Shape> shapes;
    std::vector<TensorDesc> results;
    std::unique_ptr<PredicatedCode> code;                   // null if the host has to read the condition
    std::map<std::vector<uint64_t>, CommandList> recorded;  // keyed by the buffer ids of inputs and results
  };
  CachedBranch& find_or_compile(const RoutineStep& step, std::span<const RoutineValue> operands);
  std::unique_ptr<PredicatedCode> compile_branches(const RoutineStep& step, std::span<const RoutineValue> operands,
                                                   std::vector<TensorDesc>& results) const;
  CommandList record_branches(const RoutineStep& step, PredicatedCode& code, std::span<const RoutineValue> operands,
                              std::span<const RoutineValue> outputs);

  const ControlFlowProgram& program_;
  ControlFlowExecution& execution_;
  std::list<CachedBranch> cache_;  // most recently used first
};

}  // namespace pumice
