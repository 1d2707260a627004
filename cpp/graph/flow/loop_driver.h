// Drives the loops that the device runs by itself: how many iterations a round has, which is in flight, when to look.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "graph/flow/device_loop.h"
#include "graph/flow/flow_session.h"

namespace pumice {

using LoopReports = std::map<const RoutineStep*, LoopReport>;

// Keeps the loops that it has made for the next time. Not thread-safe.
class LoopDriver {
 public:
  LoopDriver(const FlowProgram& program, FlowSession& session) : program_(program), session_(session) {}
  // The carried values after the loop, in memory of their own; none where the host has to drive the loop. `values` are those that it is
  // entered with; `shown` says for each carried value whether the host will want to see it.
  std::optional<std::vector<FlowValue>> run(const RoutineStep& step, std::span<const FlowValue> values, const std::vector<bool>& shown,
                                            LoopReports& reports);

 private:
  using Clock = FlowSession::Clock;
  // Rounds in flight: one runs while the host looks at what the one before has left.
  struct Round {
    uint64_t id;
    size_t iterations;
    Clock::time_point submitted;
  };
  struct ReadyLoop {
    const RoutineStep* step = nullptr;
    std::vector<Shape> shapes;
    std::vector<uint64_t> memory;  // the invariant values' buffers, by id
    std::unique_ptr<DeviceLoop> loop;
  };
  DeviceLoop* find(const RoutineStep& step, std::span<const FlowValue> values);
  uint64_t repeat(const RoutineStep& step, DeviceLoop& device, uint64_t trips);
  uint64_t iterate(const RoutineStep& step, DeviceLoop& device, LoopReports& reports);
  void submit(CommandList& list, size_t iterations);
  void finish(DeviceLoop& device);

  const FlowProgram& program_;
  FlowSession& session_;
  std::list<ReadyLoop> ready_;  // the last used first
  std::deque<Round> rounds_;
  Clock::time_point entered_, ended_;  // the loop at hand; the last of its rounds that has been waited for
};

}  // namespace pumice
