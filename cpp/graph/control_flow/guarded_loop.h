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
class GuardedLoop : public DeviceLoop {
 public:
  // Creates the loop; null if the host has to drive it. Throws GraphError, BindingError or UnsupportedError if a region cannot be bound.
  static std::unique_ptr<GuardedLoop> create(const ControlFlowProgram& program, const RoutineStep& step,
                                             std::span<const RoutineValue> values, HostSlotPool& pool, const RecordingOptions& options);
  std::string_view kind() const override { return "device"; }
  std::vector<BufferRange> entry() const override;
  CommandList& begin() override;
  CommandList& round(size_t iterations) override;
  bool has_counted_rounds() const override { return !has_inner_loops(); }
  CommandList& counted_round(size_t iterations) override;
  size_t min_iterations() const override { return 2; }
  size_t max_iterations() const override { return max_iterations_; }
  BufferRange result(size_t i, uint64_t trips) const override { return states_[has_inner_loops() ? 0 : trips % 2][i].range; }
  std::vector<Inner> inner(uint64_t round) const override;

 private:
  GuardedLoop(const ControlFlowProgram& program, const RoutineStep& step, const RoutineAnalysis& analysis,
              std::span<const RoutineValue> values, HostSlotPool& pool, const RecordingOptions& options);
  bool has_inner_loops() const { return !code_.inner().empty(); }
  uint32_t add_iteration(GuardedCodeBuilder& builder, size_t set, bool guarded) const;

  const RoutineStep& step_;
  GuardedCode code_;
  size_t max_iterations_;
  std::shared_ptr<Buffer> zeros_;  // same size as the words
  std::vector<RoutineValue> states_[2], invariants_;
  std::map<std::pair<bool, size_t>, CommandList> recorded_;  // keyed by whether the list is guarded, and its number of iterations
  std::unique_ptr<CommandList> begin_;
};

}  // namespace pumice
