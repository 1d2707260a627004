// A loop with constant shapes: its iterations are recorded, each predicated by a predicate that the device computes.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "graph/control_flow/device_loop.h"
#include "graph/control_flow/predicated_code.h"

namespace pumice {

// State is double-buffered: iteration i reads set i % 2 and writes the other set. A round begins with set 0, so every round but the last
// has an even number of iterations. With inner loops, an iteration may span several rounds: each round runs only the next segment, and
// state is copied back to set 0.
class PredicatedLoop : public DeviceLoop {
 public:
  // Returns null if the host has to drive the loop. Throws GraphError, BindingError or UnsupportedError if a region cannot be bound.
  static std::unique_ptr<PredicatedLoop> create(const ControlFlowProgram& program, const RoutineStep& step,
                                                std::span<const RoutineValue> values, StagingSlotPool& pool,
                                                const RecordingOptions& options);
  std::string_view kind() const override { return "device"; }
  std::vector<BufferRange> input_ranges() const override;
  CommandList& get_begin_command_list() override;
  CommandList& get_round_command_list(size_t iterations) override;
  bool has_counted_rounds() const override { return !has_inner_loops(); }
  CommandList& get_counted_round_command_list(size_t iterations) override;
  size_t min_iterations() const override { return 2; }
  size_t max_iterations() const override { return max_iterations_; }
  BufferRange result(size_t i, uint64_t trips) const override { return states_[has_inner_loops() ? 0 : trips % 2][i].range; }
  std::vector<InnerLoopStatus> get_inner_loop_status(uint64_t round) const override;

 private:
  PredicatedLoop(const ControlFlowProgram& program, const RoutineStep& step, const RoutineAnalysis& analysis,
                 std::span<const RoutineValue> values, StagingSlotPool& pool, const RecordingOptions& options);
  bool has_inner_loops() const { return !code_.inner_loops().empty(); }
  uint32_t add_iteration(PredicatedCodeBuilder& builder, size_t set, bool predicated) const;

  const RoutineStep& step_;
  PredicatedCode code_;
  size_t max_iterations_;
  std::shared_ptr<Buffer> zeros_;  // as large as the predicate words
  std::vector<RoutineValue> states_[2], invariants_;
  std::map<std::pair<bool, size_t>, CommandList> recorded_;  // keyed by whether the list is predicated, and its number of iterations
  std::unique_ptr<CommandList> begin_;
};

}  // namespace pumice
