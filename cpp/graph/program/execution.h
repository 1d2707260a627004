// One execution of a program, used as often as wanted: its inputs and outputs, and events that others can wait for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "graph/program/program.h"

namespace pumice {

// The end of an execution that start() has begun. Thread-safe.
class Event {
 public:
  bool done() const;
  std::exception_ptr error() const;  // null while it runs and where it went well
  // Rethrows what the execution threw. Throws TimeoutError where it has not ended in time; `interrupted` is called about every 50 ms and
  // may throw.
  void wait(std::optional<double> timeout_seconds = {}, const std::function<void()>& interrupted = {}) const;

 private:
  friend class Execution;
  void finish(std::exception_ptr error);

  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  bool done_ = false;
  std::exception_ptr error_;
};

struct ExecutionSettings {
  std::optional<double> timeout_seconds;              // from the call on
  std::optional<double> duration_seconds;             // from when all that was waited for had ended
  std::optional<double> loop_seconds = kLoopSeconds;  // as checked_loop_timeout() gives it
};

// The times of an execution in seconds: on the device, in the driver (the device's included), and both from the end of the last event
// waited for.
struct ExecutionTimes {
  double on_device = 0, in_driver = 0, on_device_after_fence = 0, in_driver_after_fence = 0;
};

// Memory of the caller's to which an output goes.
struct OutputBuffer {
  DType dtype;
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  std::shared_ptr<const void> owner;
};

// Thread-safe: what is called while the execution computes throws StateError.
class Execution {
 public:
  enum class State : uint8_t { preparation, computation, completed };

  // `filled`: memory is filled with kFilled before each computation.
  explicit Execution(std::shared_ptr<Program> program, bool measure = false, bool filled = false);
  ~Execution();  // stops and waits
  Execution(const Execution&) = delete;

  const std::shared_ptr<Program>& program() const { return program_; }
  State state() const;
  // Sets an input. Its memory is read when the execution computes. Throws BindingError: K4 (no such input), K5 (another dtype).
  void set_input(const std::string& name, HostTensor value);
  // Sets the caller's memory for an output; nothing: memory of its own. Throws BindingError as set_input() does.
  void set_output(const std::string& name, std::optional<OutputBuffer> buffer);
  // Runs the program and waits. Throws StateError, BindingError (K3: an input without a value), TimeoutError, OutputSizeError, GraphError.
  void compute(const ExecutionSettings& settings, const std::function<void()>& interrupted = {});
  // Computes on a thread of its own, once all events have ended. An event that has failed is rethrown at once, one that fails later makes
  // this execution fail. Throws BindingError (K10) where an output's shape is not known and it has no buffer.
  std::shared_ptr<const Event> start(std::vector<std::shared_ptr<const Event>> wait_for, const ExecutionSettings& settings);
  void stop();  // ends what start() began at the next step, and waits

  // Results of the last computation, if it went well; the shapes also after an OutputSizeError. Throw StateError otherwise.
  const Shape& output_shape(size_t j) const;
  const HostTensor& output(size_t j) const;
  bool has_buffer(size_t j) const;
  RunReport report() const;
  ExecutionTimes times() const;  // StateError where it was made not to measure

 private:
  using Clock = std::chrono::steady_clock;

  void begin();
  void check_idle(const char* what) const;
  void check_fenced() const;
  void run(const std::vector<std::shared_ptr<const Event>>& wait_for, const ExecutionSettings& settings, Clock::time_point called,
           const std::function<void()>& interrupted);
  void take_results(const Lease& lease, const std::function<void()>& interrupted);
  void end(std::exception_ptr error);

  std::shared_ptr<Program> program_;
  bool measure_, filled_;
  std::vector<std::optional<HostTensor>> inputs_;
  std::vector<std::optional<OutputBuffer>> buffers_;

  mutable std::mutex mutex_;  // guards the state
  State state_ = State::preparation;
  bool succeeded_ = false, has_shapes_ = false;
  std::vector<Shape> shapes_;
  std::vector<HostTensor> outputs_;
  RunReport report_;
  ExecutionTimes times_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
};

// Executions of one program, one at a time: a call while another is under way throws StateError. Thread-safe.
class Burst {
 public:
  explicit Burst(std::shared_ptr<Program> program) : program_(std::move(program)) {}
  // Computes one execution. Throws BindingError (C10) for an execution of another program, and what Execution::compute() throws.
  void compute(Execution& execution, const ExecutionSettings& settings, const std::function<void()>& interrupted = {});

 private:
  std::shared_ptr<Program> program_;
  std::mutex busy_;
};

}  // namespace pumice
