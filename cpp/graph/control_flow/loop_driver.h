// Drives loops that run on the device: chooses round lengths, keeps rounds in flight, and decides when to wait.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "graph/control_flow/control_flow_execution.h"
#include "graph/control_flow/device_loop.h"

namespace pumice {

using LoopReports = std::map<const RoutineStep*, LoopReport>;

// Caches its loops between executions. Not thread-safe.
class LoopDriver {
 public:
  LoopDriver(const ControlFlowProgram& program, ControlFlowExecution& session) : program_(program), execution_(session) {}
  // Runs the loop and returns the carried values in new memory, or nullopt if the host has to drive it. `values`: initial values;
  // `read_by_host`: for each carried value, whether the host will read it.
  std::optional<std::vector<RoutineValue>> run(const RoutineStep& step, std::span<const RoutineValue> values,
                                               const std::vector<bool>& read_by_host, LoopReports& reports);

 private:
  using Clock = ControlFlowExecution::Clock;
  // A submitted round. One runs on the device while the host checks the previous one.
  struct InFlightRound {
    uint64_t id;
    size_t iterations;
    Clock::time_point submitted;
  };
  struct CachedLoop {
    const RoutineStep* step = nullptr;
    std::vector<Shape> shapes;
    std::vector<uint64_t> memory;  // buffer ids of the invariants
    std::unique_ptr<DeviceLoop> loop;
  };
  DeviceLoop* find_or_create_loop(const RoutineStep& step, std::span<const RoutineValue> values);
  uint64_t run_counted(const RoutineStep& step, DeviceLoop& device, uint64_t trips);
  uint64_t run_until_done(const RoutineStep& step, DeviceLoop& device, LoopReports& reports);
  void submit_round(CommandList& list, size_t iterations);
  void wait_for_oldest_round(DeviceLoop& device);

  const ControlFlowProgram& program_;
  ControlFlowExecution& execution_;
  std::list<CachedLoop> cache_;  // most recently used first
  std::deque<InFlightRound> rounds_;
  Clock::time_point entered_, ended_;  // start of the current loop; end of its last awaited round
};

}  // namespace pumice
