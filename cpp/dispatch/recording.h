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

// An execution in flight or finished, identified by its timeline value. Errors are sticky.
class Submission {
 public:
  Submission(std::shared_ptr<Recording> recording, uint64_t id) : recording_(std::move(recording)), id_(id) {}
  uint64_t id() const { return id_; }
  bool done() const;
  void wait(std::optional<double> timeout_seconds = {}, const std::function<void()>& interrupted = {}) const;
  // Returns the device time of the execution; nullopt if the list was not committed with timestamps or a later execution has overwritten
  // them.
  std::optional<double> device_seconds() const;
  // Whether a kernel ran for the first time in this execution, so that its time includes compilation by the driver.
  bool is_cold() const;
  const std::shared_ptr<Recording>& recording() const { return recording_; }

 private:
  std::shared_ptr<Recording> recording_;
  uint64_t id_;
};

// Device time of a dispatch. cold: its kernel ran for the first time, so the time may include compilation by the driver.
struct DispatchTime {
  std::string label;
  double seconds = 0;
  bool cold = false;
};

struct RecordingOptions {
  bool timestamps = false;  // timestamps before and after every dispatch, which serialises them; for profiles
  bool total_time = false;  // timestamps before the first and after the last dispatch
};

// Recorded dispatches for one set of bindings, with command buffer, descriptor sets and queries. Executions run in queue order.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual Submission exec() = 0;
  virtual const std::shared_ptr<Context>& context() const = 0;
  virtual size_t dispatch_count() const = 0;
  virtual size_t barrier_count() const = 0;
  virtual size_t descriptor_count() const = 0;
  virtual std::optional<double> total_seconds(uint64_t id) = 0;
  // Returns the times of all dispatches of the last finished execution; empty without timestamps.
  virtual std::vector<DispatchTime> dispatch_times() = 0;
  virtual bool is_cold(uint64_t id) = 0;  // see Submission::is_cold
  virtual bool has_run() = 0;             // whether every kernel has run before, in this or another recording
  // Reads the messages that debugged kernels wrote in finished executions. Throws OutOfBoundsError if execution `id` had an out-of-bounds
  // access.
  virtual void collect_messages(uint64_t /*id*/) {}
  virtual std::vector<std::shared_ptr<MessageLog>> message_logs() const { return {}; }  // logs to which collect_messages() may append
};

// Records dispatches without debug output; make_recording() also accepts debugged ones.
std::shared_ptr<Recording> make_plain_recording(std::shared_ptr<Context> context, std::vector<Dispatch> dispatches,
                                                const RecordingOptions& options);

}  // namespace pumice
