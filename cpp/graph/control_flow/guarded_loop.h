// A loop with constant shapes: recorded iterations, each guarded by a predicate that the device computes.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "graph/control_flow/device_loop.h"
#include "graph/control_flow/guarded_code.h"

namespace pumice {

// State is double-buffered: iteration i reads set i % 2 and writes the other. A round begins with set 0, so every round but the last has an
// even number of iterations. With inner loops, an iteration may take several rounds: each holds the same code, the device skips all parts
// but the next one, and state is copied back to set 0.
class RoundsLoop : public DeviceLoop {
 public:
  // Creates the loop; null if the host has to drive it. Throws GraphError, BindingError or UnsupportedError if a region cannot be bound.
  static std::unique_ptr<RoundsLoop> create(const FlowProgram& program, const RoutineStep& step, std::span<const FlowValue> values,
                                            HostSlotPool& pool, const RecordingOptions& options);
  std::string_view kind() const override { return "device"; }
  std::vector<BufferRange> entry() const override;
  CommandList& begin() override;
  CommandList& round(size_t iterations) override;
  bool has_repeats() const override { return !in_parts(); }
  CommandList& repeats(size_t iterations) override;
  size_t least_iterations() const override { return 2; }
  size_t most_iterations() const override { return most_iterations_; }
  BufferRange result(size_t i, uint64_t trips) const override { return states_[in_parts() ? 0 : trips % 2][i].range; }
  std::vector<Inner> inner(uint64_t round) const override;

 private:
  RoundsLoop(const FlowProgram& program, const RoutineStep& step, const FlowSurvey& survey, std::span<const FlowValue> values,
             HostSlotPool& pool, const RecordingOptions& options);
  bool in_parts() const { return !code_.inner().empty(); }
  uint32_t add_iteration(CodeBuilder& builder, size_t set, bool guarded) const;

  const RoutineStep& step_;
  GuardedCode code_;
  size_t most_iterations_;
  std::shared_ptr<Buffer> zeros_;  // same size as the words
  std::vector<FlowValue> states_[2], invariants_;
  std::map<std::pair<bool, size_t>, CommandList> recorded_;  // keyed by whether the list is guarded, and its number of iterations
  std::unique_ptr<CommandList> begin_;
};

}  // namespace pumice
