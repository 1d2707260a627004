// IF nodes whose condition the device alone knows, where their branches are short: both are recorded, the device skips one of them.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "graph/flow/flow_session.h"
#include "graph/flow/guarded_code.h"

namespace pumice {

// Keeps what it has recorded for the next time. Not thread-safe.
class ChoiceDriver {
 public:
  ChoiceDriver(const FlowProgram& program, FlowSession& session) : program_(program), session_(session) {}
  // The results; none where the host has to look at the condition. `given` is the condition, then the inputs. `shown` says for each result
  // whether the host will want to see it.
  std::optional<std::vector<FlowValue>> run(const RoutineStep& step, std::span<const FlowValue> given, const std::vector<bool>& shown);

 private:
  struct ReadyChoice {
    const RoutineStep* step = nullptr;
    std::vector<Shape> shapes;
    std::vector<TensorDesc> results;
    std::unique_ptr<GuardedCode> code;                      // null: the host has to look
    std::map<std::vector<uint64_t>, CommandList> recorded;  // by the memory of inputs and results
  };
  ReadyChoice& find(const RoutineStep& step, std::span<const FlowValue> given);
  std::unique_ptr<GuardedCode> make(const RoutineStep& step, std::span<const FlowValue> given, std::vector<TensorDesc>& results) const;
  CommandList record(const RoutineStep& step, GuardedCode& code, std::span<const FlowValue> given, std::span<const FlowValue> made);

  const FlowProgram& program_;
  FlowSession& session_;
  std::list<ReadyChoice> ready_;  // the last used first
};

}  // namespace pumice
