// Profiles device time with timestamps in separate, instrumented recordings.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/context.h"

namespace pumice {

class CommandBuffer;
struct TimestampLayout;

// Granularity of timestamps: per execution, per node, or per dispatch.
enum class ProfileLevel : uint8_t { execution, node, dispatch };

struct ProfiledDispatch {
  std::string label, kernel, storage;
  std::array<uint32_t, 3> groups{}, local_size{};
  uint64_t read_bytes = 0, written_bytes = 0;  // size of the bound ranges, each counted once
  uint64_t flop = 0;                           // operations of the node, see LoweredNode
  bool barrier = false, guarded = false;       // barrier: a barrier precedes it; guarded: runs conditionally
};

// Consecutive dispatches between two timestamps. `ready` is the time after the barrier that precedes them; it equals `before`
// if there is none.
struct ProfiledSpan {
  uint32_t first = 0, last = 0;           // indices of the first and the last dispatch
  double before = 0, ready = 0, end = 0;  // nanoseconds of the device clock since the context's first timestamp in the profile
};

// An execution of a recording.
struct ProfiledRun {
  std::shared_ptr<const std::vector<ProfiledDispatch>> dispatches;
  std::shared_ptr<Context> context;
  uint64_t id = 0;
  int64_t submitted = 0;                    // get_trace_time_ns() before the submission
  bool cold = false;                        // a kernel of this run had never run before
  bool fine = false;                        // has timestamps at the profile's level; otherwise only for the whole run
  std::shared_ptr<CommandBuffer> commands;  // the executed commands; null once their timestamps are read
  std::shared_ptr<const TimestampLayout> stamps;
  double begin = 0, end = 0;
  std::vector<ProfiledSpan> spans;  // empty if the timestamps were lost
};

// A recording whose last execution has timestamps.
class TimestampedRecording {
 public:
  virtual ~TimestampedRecording() = default;
  // Waits for the execution and converts its ticks to nanoseconds since `base`.
  virtual void read(uint64_t& base, ProfiledRun& run) = 0;
};

// Collects executions. Thread-safe.
class Profiler {
 public:
  // Profiles the first and every `every`th execution of a recording at `level`, and only the total time of all other executions.
  Profiler(ProfileLevel level, uint64_t every);
  ProfileLevel level() const { return level_; }
  uint64_t every() const { return every_; }
  uint64_t serial() const { return serial_; }  // id of the profile
  void add(std::shared_ptr<TimestampedRecording> source, ProfiledRun run);
  void read_timestamps(const TimestampedRecording& source);  // reads the source's pending runs before their timestamps are overwritten
  std::vector<ProfiledRun> finish();                         // waits for all executions

 private:
  struct PendingRun {
    std::shared_ptr<TimestampedRecording> source;
    ProfiledRun run;
  };
  void read_pending_timestamps(PendingRun& pending);

  ProfileLevel level_;
  uint64_t every_, serial_;
  std::mutex mutex_;
  std::vector<PendingRun> pending_;
  std::vector<ProfiledRun> runs_;
  std::vector<std::pair<const Context*, uint64_t>> bases_;  // first timestamp of each context
};

std::shared_ptr<Profiler> get_current_profiler();         // null if no profile is active; one relaxed load
bool start_profiler(ProfileLevel level, uint64_t every);  // false if a profile is already active
std::shared_ptr<Profiler> stop_profiler();                // null if no profile was active

}  // namespace pumice
