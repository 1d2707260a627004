// A loop whose shapes stay as they are: recorded iterations, each behind a predicate that the device computes.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "graph/device_loop.h"

namespace pumice {

// State goes back and forth between two sets of memory: iteration i of a loop reads set i % 2 and writes the other. A round begins with
// set 0, so that all but the last have an even number of iterations. Where a loop is inside, an iteration may take several rounds: each
// holds the same code, of which the device skips what is not next, and state is copied back to set 0.
class RoundsLoop : public DeviceLoop {
 public:
  // Throws GraphError, BindingError and UnsupportedError where a region cannot be bound.
  static std::unique_ptr<RoundsLoop> create(const FlowProgram& program, const RoutineStep& step, std::span<const FlowValue> values,
                                            SlotPool& pool, const RecordingOptions& options);
  std::string_view kind() const override { return "device"; }
  std::vector<BufferRange> entry() const override;
  CommandList& begin() override;
  CommandList& round(size_t iterations) override;
  bool has_repeats() const override { return inner_.empty(); }
  CommandList& repeats(size_t iterations) override;
  size_t least_iterations() const override { return 2; }
  size_t most_iterations() const override { return most_iterations_; }
  BufferRange result(size_t i, uint64_t trips) const override { return states_[inner_.empty() ? trips % 2 : 0][i].range; }
  std::vector<Inner> inner(uint64_t round) const override;

 private:
  struct Item;
  struct Builder;
  RoundsLoop(const FlowProgram& program, const RoutineStep& step, const RecordingOptions& options)
      : program_(program), step_(step), options_(options) {}
  bool build(std::span<const FlowValue> values, SlotPool& pool);
  void find_loops();
  CommandList record(std::vector<Item> items) const;
  Dispatch branch(const Item& item) const;

  const FlowProgram& program_;
  const RoutineStep& step_;
  RecordingOptions options_;
  size_t most_iterations_ = 0;
  std::shared_ptr<Buffer> arena_, words_, zeros_, records_, counts_;
  std::vector<const RoutineStep*> inner_;  // loops inside, in the order in which they are recorded
  std::vector<bool> has_loop_;             // by routine
  std::vector<FlowValue> states_[2], invariants_, scratch_;
  std::map<std::array<uint32_t, 4>, uint32_t> record_of_;    // by word and group counts, in this order
  std::map<std::pair<bool, size_t>, CommandList> recorded_;  // by whether it is guarded, and iterations
  std::unique_ptr<CommandList> begin_;
};

}  // namespace pumice
