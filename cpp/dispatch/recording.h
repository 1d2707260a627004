// Dispatches recorded for the device, and their executions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dispatch/kernel/kernel.h"

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
  // The time that the execution took on the device; nullopt where the list was not committed with timestamps, or a later execution has
  // replaced them.
  std::optional<double> device_seconds() const;
  // True if a kernel ran for the first time in this execution: its time then includes what the driver compiles at a first dispatch.
  bool is_cold() const;
  const std::shared_ptr<Recording>& recording() const { return recording_; }

 private:
  std::shared_ptr<Recording> recording_;
  uint64_t id_;
};

// One dispatch of an execution with its times. cold: its kernel ran for the first time, so that the time may include the driver's
// compilation.
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
  virtual ~Recording() = default;
  virtual Submission exec() = 0;
  virtual const std::shared_ptr<Context>& context() const = 0;
  virtual size_t dispatch_count() const = 0;
  virtual size_t barrier_count() const = 0;
  virtual size_t descriptor_count() const = 0;
  virtual std::optional<double> total_seconds(uint64_t id) = 0;
  // The times of every dispatch of the last finished execution; empty without timestamps.
  virtual std::vector<DispatchTime> dispatch_times() = 0;
  virtual bool is_cold(uint64_t id) = 0;  // see Submission::is_cold
  virtual bool has_run() = 0;             // every kernel of it, in this recording or another one
  // Reads what the finished executions of debugged kernels said. Throws OutOfBoundsError where execution `id` was out of bounds.
  virtual void collect(uint64_t /*id*/) {}
  virtual std::vector<std::shared_ptr<MessageLog>> message_logs() const { return {}; }  // logs that collect() may add to
};

// A recording of dispatches of which none is debugged (make_recording() takes those too).
std::shared_ptr<Recording> make_plain_recording(std::shared_ptr<Context> context, std::vector<Dispatch> dispatches,
                                                const RecordingOptions& options);

}  // namespace pumice
