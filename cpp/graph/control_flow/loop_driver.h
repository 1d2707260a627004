// Drives loops on the device: chooses round lengths, keeps rounds in flight, and decides when to wait.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "graph/control_flow/device_loop.h"
#include "graph/control_flow/control_flow_session.h"

namespace pumice {

using LoopReports = std::map<const RoutineStep*, LoopReport>;

// Keeps its loops for later runs. Not thread-safe.
class LoopDriver {
 public:
  LoopDriver(const FlowProgram& program, FlowSession& session) : program_(program), session_(session) {}
  // Returns the carried values after the loop, in new memory; nullopt if the host has to drive the loop. `values`: initial values; `shown`:
  // whether the host will read each carried value.
  std::optional<std::vector<FlowValue>> run(const RoutineStep& step, std::span<const FlowValue> values, const std::vector<bool>& shown,
                                            LoopReports& reports);

 private:
  using Clock = FlowSession::Clock;
  // Rounds in flight: one runs while the host checks the previous one.
  struct Round {
    uint64_t id;
    size_t iterations;
    Clock::time_point submitted;
  };
  struct ReadyLoop {
    const RoutineStep* step = nullptr;
    std::vector<Shape> shapes;
    std::vector<uint64_t> memory;  // buffer ids of the invariant values
    std::unique_ptr<DeviceLoop> loop;
  };
  DeviceLoop* find(const RoutineStep& step, std::span<const FlowValue> values);
  uint64_t repeat(const RoutineStep& step, DeviceLoop& device, uint64_t trips);
  uint64_t iterate(const RoutineStep& step, DeviceLoop& device, LoopReports& reports);
  void submit(CommandList& list, size_t iterations);
  void finish(DeviceLoop& device);

  const FlowProgram& program_;
  FlowSession& session_;
  std::list<ReadyLoop> ready_;  // most recently used first
  std::deque<Round> rounds_;
  Clock::time_point entered_, ended_;  // start of the current loop; end of its last awaited round
};

}  // namespace pumice
