// A reusable execution of a program (after NNAPI): its inputs and outputs, and an event that others can wait for.
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

// Completion of an execution that start() began. Thread-safe.
class Event {
 public:
  bool done() const;
  std::exception_ptr error() const;  // null while the execution runs and after success
  // Waits for the execution and rethrows its error. Throws TimeoutError after `timeout_seconds`. `interrupted` is called about every 50 ms
  // and may throw.
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
  std::optional<double> timeout_seconds;                     // time limit from the call of compute() or start()
  std::optional<double> duration_seconds;                    // time limit from the end of the last awaited event
  std::optional<double> loop_seconds = kDefaultLoopSeconds;  // time limit of each loop, from validate_loop_timeout()
};

// Times of an execution in seconds: on the device, and in the driver (including the device); `after_fence` times begin at the end of the
// last awaited event.
struct ExecutionTimes {
  double on_device = 0, in_driver = 0, on_device_after_fence = 0, in_driver_after_fence = 0;
};

// Memory of the caller for an output.
struct OutputBuffer {
  DType dtype;
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  std::shared_ptr<const void> owner;
};

// Thread-safe. Calls during a computation throw StateError.
class Execution {
 public:
  enum class State : uint8_t { preparation, computation, completed };

  // `measure`: measure times. `fill_memory_first`: fill all memory with kFillPattern before each computation.
  explicit Execution(std::shared_ptr<Program> program, bool measure = false, bool fill_memory_first = false);
  ~Execution();  // stops the execution and waits for it
  Execution(const Execution&) = delete;

  const std::shared_ptr<Program>& program() const { return program_; }
  State state() const;
  // Sets an input; its memory is read during the computation. Throws BindingError if there is no such input (K4) or its dtype is wrong
  // (K5).
  void set_input(const std::string& name, HostTensor value);
  // Sets the memory for an output; nullopt: the engine allocates it. Throws BindingError as set_input() does.
  void set_output(const std::string& name, std::optional<OutputBuffer> buffer);
  // Runs the program and waits for it. Throws StateError if it is already computing, BindingError if an input is missing (K3),
  // TimeoutError, OutputSizeError if an output buffer is too small, GraphError if a shape rule is violated.
  void compute(const ExecutionSettings& settings, const std::function<void()>& interrupted = {});
  // Starts the computation on a thread, once all events have ended, and returns its event. Rethrows the error of an event that has already
  // failed; if an event fails later, this execution fails. Throws BindingError (K10) if an output has neither a known shape nor a buffer.
  std::shared_ptr<const Event> start(std::vector<std::shared_ptr<const Event>> wait_for, const ExecutionSettings& settings);
  void stop();  // stops the computation that start() began at its next step, and waits for it

  // Results of the last computation, if it succeeded; the shapes are also available after an OutputSizeError. Throw StateError otherwise.
  const Shape& output_shape(size_t j) const;
  const HostTensor& output(size_t j) const;
  bool has_buffer(size_t j) const;
  RunReport report() const;
  ExecutionTimes times() const;  // throws StateError if created without `measure`

 private:
  using Clock = std::chrono::steady_clock;

  void begin_computation();
  void check_idle(const char* caller) const;
  void check_static_outputs() const;
  void run(const std::vector<std::shared_ptr<const Event>>& wait_for, const ExecutionSettings& settings, Clock::time_point call_time,
           const std::function<void()>& interrupted);
  void read_results(const ExecutionLease& lease, const std::function<void()>& interrupted);
  void end_computation(std::exception_ptr error);

  std::shared_ptr<Program> program_;
  bool measure_, fill_memory_first_;
  std::vector<std::optional<HostTensor>> inputs_;
  std::vector<std::optional<OutputBuffer>> buffers_;

  mutable std::mutex mutex_;  // guards the members below
  State state_ = State::preparation;
  bool succeeded_ = false, has_shapes_ = false;
  std::vector<Shape> shapes_;
  std::vector<HostTensor> outputs_;
  RunReport report_;
  ExecutionTimes times_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
};

// Runs executions of one program, one at a time (after NNAPI); a concurrent call throws StateError. Thread-safe.
class Burst {
 public:
  explicit Burst(std::shared_ptr<Program> program) : program_(std::move(program)) {}
  // Computes one execution. Throws BindingError (C10) if it belongs to another program, and the errors of Execution::compute().
  void compute(Execution& execution, const ExecutionSettings& settings, const std::function<void()>& interrupted = {});

 private:
  std::shared_ptr<Program> program_;
  std::mutex busy_;
};

}  // namespace pumice
