// IF nodes with a condition known only on the device and short branches: both branches are recorded and the device skips one.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "graph/control_flow/control_flow_session.h"
#include "graph/control_flow/guarded_code.h"

namespace pumice {

// Keeps its recordings for later runs. Not thread-safe.
class ChoiceDriver {
 public:
  ChoiceDriver(const FlowProgram& program, FlowSession& session) : program_(program), session_(session) {}
  // Returns the results; nullopt if the host has to read the condition. `given`: the condition, then the inputs. `shown`: whether the host
  // will read each result.
  std::optional<std::vector<FlowValue>> run(const RoutineStep& step, std::span<const FlowValue> given, const std::vector<bool>& shown);

 private:
  struct ReadyChoice {
    const RoutineStep* step = nullptr;
    std::vector<Shape> shapes;
    std::vector<TensorDesc> results;
    std::unique_ptr<GuardedCode> code;                      // null: the host has to read the condition
    std::map<std::vector<uint64_t>, CommandList> recorded;  // keyed by the memory of inputs and results
  };
  ReadyChoice& find(const RoutineStep& step, std::span<const FlowValue> given);
  std::unique_ptr<GuardedCode> make(const RoutineStep& step, std::span<const FlowValue> given, std::vector<TensorDesc>& results) const;
  CommandList record(const RoutineStep& step, GuardedCode& code, std::span<const FlowValue> given, std::span<const FlowValue> made);

  const FlowProgram& program_;
  FlowSession& session_;
  std::list<ReadyChoice> ready_;  // most recently used first
};

}  // namespace pumice
