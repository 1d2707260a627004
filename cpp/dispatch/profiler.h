// The device's time of everything that is executed while a profile is on: stamps in recordings made for the purpose.
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
struct Stamps;

// How finely an execution is stamped: as a whole, where the next dispatch is of another node, or after every dispatch.
enum class ProfileLevel : uint8_t { execution, node, dispatch };

struct ProfiledDispatch {
  std::string label, kernel, storage;
  std::array<uint32_t, 3> groups{}, local_size{};
  uint64_t read_bytes = 0, written_bytes = 0;  // of the ranges that are bound, each once
  uint64_t flop = 0;                           // of the node, see LoweredNode
  bool barrier = false, guarded = false;       // whether a barrier is before it; whether the device decides if it runs
};

// Consecutive dispatches between two stamps. From `ready` on nothing earlier was in their way: it is `before` where no barrier precedes.
struct ProfiledSpan {
  uint32_t first = 0, last = 0;           // dispatches
  double before = 0, ready = 0, end = 0;  // nanoseconds of the device's clock, from the context's first stamp of the profile
};

// One execution of a recording.
struct ProfiledRun {
  std::shared_ptr<const std::vector<ProfiledDispatch>> dispatches;
  std::shared_ptr<Context> context;
  uint64_t id = 0;
  int64_t submitted = 0;                    // trace_clock() before the submission
  bool cold = false;                        // a kernel ran for the first time
  bool fine = false;                        // stamped as finely as the profile's level says; else as a whole
  std::shared_ptr<CommandBuffer> commands;  // that were executed; none where their stamps were read
  std::shared_ptr<const Stamps> stamps;
  double begin = 0, end = 0;
  std::vector<ProfiledSpan> spans;  // none where the stamps were lost
};

// A recording whose last execution was stamped.
class ProfiledSource {
 public:
  virtual ~ProfiledSource() = default;
  // Waits for the execution and fills in what it took, from ticks into nanoseconds from `base`.
  virtual void read(uint64_t& base, ProfiledRun& run) = 0;
};

// Collects executions. Thread-safe.
class Profiler {
 public:
  // The profiler stamps the first execution of each recording as finely as `level` says, every `every`th after it too, others as a whole.
  Profiler(ProfileLevel level, uint64_t every);
  ProfileLevel level() const { return level_; }
  uint64_t every() const { return every_; }
  uint64_t serial() const { return serial_; }  // tells profiles apart
  void add(std::shared_ptr<ProfiledSource> source, ProfiledRun run);
  void collect(const ProfiledSource& source);  // reads what was executed of it: its stamps are about to be written anew
  std::vector<ProfiledRun> finish();           // waits for all executions

 private:
  struct Pending {
    std::shared_ptr<ProfiledSource> source;
    ProfiledRun run;
  };
  void read(Pending& pending);

  ProfileLevel level_;
  uint64_t every_, serial_;
  std::mutex mutex_;
  std::vector<Pending> pending_;
  std::vector<ProfiledRun> runs_;
  std::vector<std::pair<const Context*, uint64_t>> bases_;  // the first stamp of each context
};

std::shared_ptr<Profiler> current_profiler();             // null where no profile is on: one relaxed load
bool start_profiler(ProfileLevel level, uint64_t every);  // false where a profile is on already
std::shared_ptr<Profiler> stop_profiler();                // null where none was on

}  // namespace pumice
