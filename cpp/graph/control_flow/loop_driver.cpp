#include "graph/control_flow/loop_driver.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.h"
#include "graph/control_flow/predicated_loop.h"
#include "graph/control_flow/scalar_loop.h"

namespace pumice {
namespace {

// Maximum duration of a round in seconds, since a timeout may be detected one round late. A round of at most kShortRound iterations may
// take longer, because even fewer iterations would make the host wait too often.
constexpr double kRoundSeconds = 5e-3, kShortRoundSeconds = 40e-3;
constexpr size_t kShortRound = 64;  // iterations of a short round
constexpr size_t kMaxCachedLoops = 32;

// Creates a loop that runs on the device. Returns null if the host has to drive it, because shapes depend on values or change, or an
// iteration has too many dispatches. `values`: initial values; invariants are read in place.
std::unique_ptr<DeviceLoop> make_device_loop(const ControlFlowProgram& program, const RoutineStep& step,
                                             std::span<const RoutineValue> values, StagingSlotPool& pool, const RecordingOptions& options) {
  try {
    if (auto loop = ScalarLoop::create(program, step, values, options)) return loop;
    return PredicatedLoop::create(program, step, values, pool, options);
  } catch (const GraphError&) {  // the body may never run; if it does, the host reports the error
  } catch (const BindingError&) {
  } catch (const UnsupportedError&) {
  }
  return {};
}

// Returns the trip count of a counting loop if the host knows its start and limit.
std::optional<uint64_t> compute_known_trips(const RoutineStep& step, std::span<const RoutineValue> values) {
  if (!step.counter) return {};
  const auto integer = [](const RoutineValue& value) -> std::optional<int64_t> {
    if (!value.host || value.host->desc.elements() != 1) return {};
    int32_t number = 0;
    std::memcpy(&number, value.host->data, sizeof number);
    return number;
  };
  const auto start = integer(values[step.counter->counter]);
  const auto end = step.counter->limit_value ? integer(values[*step.counter->limit_value]) : std::optional(step.counter->limit);
  return start && end ? step.counter->count_trips(*start, *end) : std::nullopt;
}

// Returns the number of iterations of the next round, at most `requested`. Powers of two limit the number of different recordings.
size_t clamp_round_iterations(const DeviceLoop& device, size_t requested) {
  const size_t shortest = device.min_iterations();
  size_t longest = std::clamp(requested, shortest, device.max_iterations());
  const auto seconds = [&] { return device.iteration_seconds * static_cast<double>(longest); };
  while (longest > shortest && seconds() > (longest > kShortRound ? kRoundSeconds : kShortRoundSeconds)) longest /= 2;
  return longest;
}

}  // namespace

// Returns a cached or new device loop for these values; null if the host has to drive it.
DeviceLoop* LoopDriver::find_or_create_loop(const RoutineStep& step, std::span<const RoutineValue> values) {
  const size_t num_state = step.carried + step.state;
  const auto matches = [&](const CachedLoop& cached) {
    if (cached.step != &step) return false;
    for (size_t i = 0; i < values.size(); ++i)
      if (cached.shapes[i] != values[i].desc.shape || (i >= num_state && cached.memory[i - num_state] != values[i].range.buffer->id()))
        return false;
    return true;
  };
  for (auto candidate = cache_.begin(); candidate != cache_.end(); ++candidate)
    if (matches(*candidate)) {
      cache_.splice(cache_.begin(), cache_, candidate);
      return cache_.front().loop.get();
    }
  CachedLoop& added = cache_.emplace_front();
  added.step = &step;
  for (size_t i = 0; i < values.size(); ++i) {
    added.shapes.push_back(values[i].desc.shape);
    if (i >= num_state) added.memory.push_back(values[i].range.buffer->id());
  }
  added.loop = execution_.with_loop_clock_paused(
      [&] { return make_device_loop(program_, step, values, execution_.pool(), execution_.recordings().options()); });
  if (cache_.size() > kMaxCachedLoops) cache_.pop_back();
  return cache_.front().loop.get();
}

void LoopDriver::submit_round(CommandList& list, size_t iterations) {
  execution_.submit(list);
  rounds_.push_back({execution_.last_submission()->id(), iterations, Clock::now()});
}

// Waits for the oldest round and measures its time: it began after its submission and the end of the previous round.
void LoopDriver::wait_for_oldest_round(DeviceLoop& device) {
  const InFlightRound round = rounds_.front();
  rounds_.pop_front();
  execution_.wait_for(round.id);
  ++execution_.report.host_syncs;
  const auto now = Clock::now();
  const double seconds_each = seconds_between(std::max(ended_, round.submitted), now) / static_cast<double>(round.iterations);
  ended_ = now;
  if (device.iteration_seconds == 0 || seconds_each < device.iteration_seconds) device.iteration_seconds = seconds_each;
}

std::optional<std::vector<RoutineValue>> LoopDriver::run(const RoutineStep& step, std::span<const RoutineValue> values,
                                                         const std::vector<bool>& read_by_host, LoopReports& reports) {
  DeviceLoop* device = find_or_create_loop(step, values);
  if (!device) return {};
  const auto known = compute_known_trips(step, values);
  const bool counted = known && device->has_counted_rounds();
  const uint64_t syncs_before = execution_.report.host_syncs;
  LoopReport& report = reports[&step];
  report.kind = counted ? "counted" : device->kind();
  rounds_.clear();
  ended_ = Clock::now();
  entered_ = execution_.loop_clock();
  if (known == 0u) return std::vector<RoutineValue>(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(step.carried));
  std::vector<std::pair<BufferRange, BufferRange>> entry, exit;
  const auto targets = device->input_ranges();
  for (size_t i = 0; i < targets.size(); ++i) entry.push_back({values[i].range, targets[i]});
  execution_.submit(execution_.recordings().get_copy_recording(entry));
  const uint64_t trips = counted ? run_counted(step, *device, *known) : run_until_done(step, *device, reports);
  device->last_trips = trips;
  report.trips += trips;
  report.host_syncs += execution_.report.host_syncs - syncs_before;
  if (trips == 0) return std::vector<RoutineValue>(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(step.carried));
  std::vector<RoutineValue> results;
  for (size_t i = 0; i < step.carried; ++i) {
    const BufferRange last = device->result(i, trips);
    const RoutineValue& result = results.emplace_back(
        execution_.allocate_value(values[i].desc, read_by_host[i] ? StagingSlotUse::readback : StagingSlotUse::device));
    exit.push_back({last, result.range});
    if (read_by_host[i] && result.slot->needs_copy()) exit.push_back({last, {result.slot->host, 0, last.bytes}});
  }
  execution_.submit(execution_.recordings().get_copy_recording(exit));
  return results;
}

// Runs the body `trips` times without evaluating the condition.
uint64_t LoopDriver::run_counted(const RoutineStep& step, DeviceLoop& device, uint64_t trips) {
  size_t requested = device.last_trips > 0 ? device.max_iterations() : device.min_iterations();
  for (uint64_t done = 0; done < trips; requested = std::min(requested * 2, device.max_iterations())) {
    if (execution_.is_loop_timed_out(entered_)) execution_.throw_loop_timeout(step.node, done);
    execution_.check_timeout(step.node);
    size_t iterations = clamp_round_iterations(device, requested);
    while (iterations > trips - done) iterations /= 2;
    submit_round(execution_.with_loop_clock_paused([&]() -> CommandList& { return device.get_counted_round_command_list(iterations); }),
                 iterations);
    done += iterations;
    if (rounds_.size() > 2) wait_for_oldest_round(device);
  }
  return trips;
}

uint64_t LoopDriver::run_until_done(const RoutineStep& step, DeviceLoop& device, LoopReports& reports) {
  execution_.submit(device.get_begin_command_list());
  uint64_t ended = 0, trips = 0, recorded = 0;  // finished rounds, their iterations, and the iterations of all submitted rounds
  // If the loop has run before, start with a round long enough for its last trip count.
  size_t requested = std::bit_ceil(std::min<uint64_t>(device.last_trips + 1, device.max_iterations()));
  for (;;) {
    // The first round may complete the loop, so the second waits for its result. Later, two rounds are in flight.
    while (rounds_.size() < (ended > 0 ? 2 : 1)) {
      const size_t iterations = clamp_round_iterations(device, requested);
      requested = iterations * 2;
      submit_round(execution_.with_loop_clock_paused([&]() -> CommandList& { return device.get_round_command_list(iterations); }),
                   iterations);
      recorded += iterations;
    }
    wait_for_oldest_round(device);
    // The device counts modulo 2^32; the difference is correct across an overflow.
    trips += static_cast<uint32_t>(device.get_trip_count(ended) - static_cast<uint32_t>(trips));
    const bool continues = device.continues_after(ended++);
    if (execution_.is_loop_timed_out(entered_) && (continues || (*execution_.limits().loop_seconds == 0 && trips > 0)))
      execution_.throw_loop_timeout(step.node, trips);
    if (!continues) {
      if (device.kind() == "device") reports[&step].wasted += recorded - trips;
      for (const DeviceLoop::InnerLoopStatus& inner : device.get_inner_loop_status(ended - 1)) {
        LoopReport& report = reports[inner.step];
        report.node = inner.step->node, report.kind = "device";
        report.entries += inner.entries, report.trips += inner.trips;
      }
      return trips;
    }
    execution_.check_timeout(step.node);
  }
}

}  // namespace pumice
