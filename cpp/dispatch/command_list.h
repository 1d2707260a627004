// A host-side list of dispatches and copies; committed once, executed many times with one submit each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dispatch/binding_table.h"

namespace pumice {

class Recording;
class MessageLog;

// One execution in flight or finished: its id on the context's timeline. Failures stick to it.
class Submission {
 public:
  Submission(std::shared_ptr<Recording> recording, uint64_t id) : recording_(std::move(recording)), id_(id) {}
  uint64_t id() const { return id_; }
  bool done() const;
  void wait(std::optional<double> timeout_seconds = {}, const std::function<void()>& interrupted = {}) const;
  // On the device; nullopt where the list was not committed with timestamps, or a later execution has replaced them.
  std::optional<double> device_seconds() const;
  // A kernel ran for the first time in it: its time has in it what the driver compiles at a first dispatch.
  bool is_cold() const;
  const std::shared_ptr<Recording>& recording() const { return recording_; }

 private:
  std::shared_ptr<Recording> recording_;
  uint64_t id_;
};

// One dispatch of an execution. cold: its kernel ran for the first time, so that the time may have the driver's compilation in it.
struct DispatchTime {
  std::string label;
  double seconds = 0;
  bool cold = false;
};

struct RecordingOptions {
  bool timestamps = false;  // one stamp before and after every dispatch (serialises them), for profiles
  bool total_time = false;  // two stamps around the whole
};

// The lowering of a list of dispatches for one set of bindings: command buffer, descriptor sets, queries. Serves one execution
// at a time in the sense that executions run in order on the queue.
class Recording {
 public:
  static std::shared_ptr<Recording> create(std::shared_ptr<Context> context, std::vector<Dispatch> dispatches,
                                           const RecordingOptions& options = {});
  virtual ~Recording() = default;
  virtual Submission exec() = 0;
  virtual const std::shared_ptr<Context>& context() const = 0;
  virtual size_t dispatch_count() const = 0;
  virtual size_t barrier_count() const = 0;
  virtual size_t descriptor_count() const = 0;
  virtual std::optional<double> total_seconds(uint64_t id) = 0;
  // Every dispatch of the last finished execution; empty without timestamps.
  virtual std::vector<DispatchTime> dispatch_times() = 0;
  virtual bool is_cold(uint64_t id) = 0;  // see Submission::is_cold
  virtual bool has_run() = 0;             // every kernel of it, in this recording or another one
  // Reads what the finished executions of debugged kernels said. Throws OutOfBoundsError where execution `id` was out of bounds.
  virtual void collect(uint64_t /*id*/) {}
  virtual std::vector<std::shared_ptr<MessageLog>> message_logs() const { return {}; }  // that collect() may add to
};

// Order is kept; barriers are derived. Not thread-safe while recording (detected); exec and wait are.
class CommandList {
 public:
  explicit CommandList(std::shared_ptr<Context> context);
  // Reads the table at once: it may be changed or dropped afterwards (L2).
  void dispatch(std::shared_ptr<const Dispatchable> dispatchable, const BindingTable& table);
  // The same; but where the dispatchable has volatile descriptors the table is read by exec(), anew whenever it has changed.
  void dispatch(std::shared_ptr<const Dispatchable> dispatchable, std::shared_ptr<const BindingTable> table);
  void dispatch(Dispatch dispatch);
  void copy(const BufferRange& source, const BufferRange& target);
  void commit(const RecordingOptions& options = {});  // StateError when committed twice
  bool committed() const { return committed_; }
  size_t recorded() const { return dispatches_.size(); }  // dispatches so far that no volatile table makes; for a list not committed
  size_t volatile_tables() const;
  Submission exec();  // StateError before commit
  void wait(uint64_t id, std::optional<double> timeout_seconds = {}, const std::function<void()>& interrupted = {}) const;
  const std::shared_ptr<Context>& context() const { return context_; }
  // Null before commit, and before the first exec of a list with volatile tables.
  const std::shared_ptr<Recording>& recording() const { return recording_; }

 private:
  struct Use {
    std::shared_ptr<const Dispatchable> dispatchable;
    BoundRanges ranges;
    uint64_t generation;                             // of the dispatchable when it was recorded
    std::shared_ptr<const BindingTable> table = {};  // a volatile one
    size_t position = 0;                             // in dispatches_: before which a volatile use comes
    uint64_t version = 0;                            // of the table when it was read
  };
  void check_recordable(const Dispatchable& dispatchable, const BindingTable& table) const;
  void check_uncommitted() const;
  void read_volatile_tables();
  void begin_uses();

  std::shared_ptr<Context> context_;
  std::vector<Dispatch> dispatches_;  // kept after commit where a table is volatile
  std::vector<Use> uses_;
  std::shared_ptr<Recording> recording_;
  RecordingOptions options_;
  bool committed_ = false, volatile_ = false;
};

// A copy of bytes as dispatches (copies are kernels: one kind of hazard, usable inside predicated blocks), cut where a range is larger
// than the device binds. Throws BindingError unless offsets and size are multiples of 4 and the sizes are equal.
std::vector<Dispatch> copy_dispatches(const BufferRange& source, const BufferRange& target);

}  // namespace pumice
