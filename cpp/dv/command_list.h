// Commands that are checked as they are added, prepared once and executed many times.
#pragma once

#include <memory>
#include <mutex>

#include "dv/lowering.h"

namespace pumice::dv {

// Executions of all lists of a device run one after the other; their ids grow. add() and commit() are not thread-safe, exec() and wait()
// are.
class CommandList {
 public:
  explicit CommandList(std::shared_ptr<Context> context);
  const std::shared_ptr<Context>& context() const { return context_; }

  // Adds a command. A Refusal names the run and the field, and then nothing is added. StateError after commit().
  void add(std::span<const std::byte> raw, const Resolve& resolve);
  // Prepares the commands. StateError where it was called before; Refusal of a list without commands (ENODATA).
  void commit(const Interrupted& interrupted = {});
  bool committed() const { return committed_; }
  // Begins an execution and returns its id, at least 1. StateError before commit().
  int64_t exec(const Interrupted& interrupted = {});
  // Waits for an execution. Refusal (EINVAL) of an id that no execution has; StateError before commit(), TimeoutError, DeviceLostError.
  void wait(int64_t id, std::optional<double> timeout_seconds = {}, const Interrupted& interrupted = {});
  // Waits for all executions that were begun, as Context::finish() does.
  void finish();
  // The device time of the execution that was waited for last; 0 before that.
  double last_exec_seconds() const;
  int64_t last_exec_time() const;  // in microseconds, as the vendor's interface has it
  size_t size() const { return commands_.size(); }
  size_t dispatch_count() const;  // dispatches of one execution; StateError before commit()

 private:
  // The result of preparing the commands once. Weights that the device has been seen to write are not in it: executions read them.
  struct Prepared {
    Lowering lowering;
    std::vector<std::unique_ptr<pumice::CommandList>> lists;  // each serves one execution at a time
    std::vector<Submission> submissions;                      // the last submission of each list
  };
  std::shared_ptr<Prepared> prepare(const Interrupted& interrupted) const;
  void check_committed() const;
  bool has_other_weights();

  std::shared_ptr<Context> context_;
  std::vector<Command> commands_;
  bool attempted_ = false, committed_ = false;
  std::vector<MemoryRange> written_;         // by the commands
  mutable std::mutex mutex_;                 // guards what follows
  std::vector<MemoryRange> device_weights_;  // ranges of weights that other lists wrote since they were read
  std::shared_ptr<Prepared> prepared_;
  uint64_t last_ = 0;                // id of the last execution
  uint64_t waited_ = 0;              // id of the execution that was waited for last
  mutable double last_seconds_ = 0;  // the device time of `waited_`, whose list may have been replaced since
};

}  // namespace pumice::dv
