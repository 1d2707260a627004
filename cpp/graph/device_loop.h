// A WHILE whose shapes stay as they are, on the device: rounds of recorded iterations, each behind a predicate that the device computes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "graph/flow_program.h"
#include "graph/flow_values.h"

namespace pumice {

inline constexpr size_t kMostIterations = 128;  // of one round

// State goes back and forth between two sets of memory: iteration i of a loop reads set i % 2 and writes the other. A round begins with
// set 0, so that all but the last have an even number of iterations. Not thread-safe.
class DeviceLoop {
 public:
  // Null where the host has to decide: shapes depend on values or change, a loop is inside, or an iteration is too many dispatches.
  // `values`: what the loop is entered with; invariant ones are read where they are.
  static std::unique_ptr<DeviceLoop> create(const FlowProgram& program, const RoutineStep& step, std::span<const FlowValue> values,
                                            SlotPool& pool, const RecordingOptions& options);

  // Sets the predicate, before the first round. The state is in set 0 by then.
  CommandList& begin();
  // Conditions and bodies in turn, none of which runs any more once the condition is false; ends with a status.
  CommandList& round(size_t iterations);
  // Bodies alone.
  CommandList& repeats(size_t iterations);
  size_t most_iterations() const { return most_iterations_; }
  // What the round of that number, counted from begin() on, left behind; two rounds later it is overwritten.
  bool goes_on(uint64_t round) const { return status_words_[round % 2 * 2] != 0; }
  uint64_t trips(uint64_t round) const { return status_words_[round % 2 * 2 + 1]; }
  std::span<const FlowValue> state(size_t set) const { return states_[set % 2]; }

  // What executions learn about it, for the next one's rounds.
  double iteration_seconds = 0;  // least seen; 0: none
  uint64_t last_trips = 0;

 private:
  struct Item;
  struct Builder;
  DeviceLoop(const FlowProgram& program, const RoutineStep& step, const RecordingOptions& options)
      : program_(program), step_(step), options_(options) {}
  bool build(std::span<const FlowValue> values, SlotPool& pool);
  CommandList record(std::vector<Item> items) const;
  Dispatch branch(const Item& item) const;

  const FlowProgram& program_;
  const RoutineStep& step_;
  RecordingOptions options_;
  size_t most_iterations_ = 0;
  std::shared_ptr<Buffer> arena_, words_, status_, records_, counts_;
  const uint32_t* status_words_ = nullptr;
  std::vector<FlowValue> states_[2], invariants_, scratch_;
  std::map<std::array<uint32_t, 4>, uint32_t> record_of_;    // by word and group counts, in this order
  std::map<std::pair<bool, size_t>, CommandList> recorded_;  // by whether it is guarded, and iterations
  std::unique_ptr<CommandList> begin_;
};

}  // namespace pumice
