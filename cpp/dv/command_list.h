// Lists of commands that are checked when added, prepared once and executed many times.
#pragma once

#include <memory>
#include <mutex>

#include "dv/lowering.h"

namespace pumice::dv {

// Executions of all lists of a device are serialized; their ids increase. add() and commit() are not thread-safe, exec() and wait() are.
class CommandList {
 public:
  explicit CommandList(std::shared_ptr<Context> context);
  const std::shared_ptr<Context>& context() const { return context_; }

  // Adds a command. If it is invalid, throws DvError naming the run and the field, and leaves the list unchanged; throws StateError after
  // commit().
  void add(std::span<const std::byte> raw, const MemoryResolver& resolve);
  // Prepares the commands. Throws StateError if called twice; DvError (ENODATA) if the list is empty.
  void commit(const InterruptCallback& interrupted = {});
  bool committed() const { return committed_; }
  // Starts an execution and returns its id, at least 1. Throws StateError before commit().
  int64_t exec(const InterruptCallback& interrupted = {});
  // Waits for an execution. Throws DvError (EINVAL) for an unknown id, StateError before commit(), TimeoutError, DeviceLostError.
  void wait(int64_t id, std::optional<double> timeout_seconds = {}, const InterruptCallback& interrupted = {});
  // Waits for all started executions, like Context::finish().
  void finish();
  // Returns the device time of the execution last waited for; 0 before that.
  double last_exec_seconds() const;
  int64_t last_exec_time() const;  // microseconds, as in the vendor's interface
  size_t size() const { return commands_.size(); }
  size_t dispatch_count() const;  // dispatches per execution; throws StateError before commit()

 private:
  // The result of commit(). Weights known to be written by the device are not included: each execution reads them.
  struct PreparedCommands {
    LoweringState lowering;
    std::vector<std::unique_ptr<pumice::CommandList>> lists;  // each list runs one execution at a time
    std::vector<Submission> submissions;                      // last submission of each list
  };
  std::shared_ptr<PreparedCommands> prepare(const InterruptCallback& interrupted) const;
  void check_committed() const;
  bool have_weights_changed();

  std::shared_ptr<Context> context_;
  std::vector<Command> commands_;
  bool add_attempted_ = false, committed_ = false;
  std::vector<MemoryRange> written_;  // ranges written by the commands
  mutable std::mutex mutex_;          // guards all members below
  std::vector<MemoryRange>
      device_weights_;  // weights that the device wrote after this list read them; later executions unpack them on the device
  std::shared_ptr<PreparedCommands> prepared_;
  uint64_t last_id_ = 0;             // id of the last execution
  uint64_t last_waited_id_ = 0;      // id of the execution last waited for
  mutable double last_seconds_ = 0;  // device time of `last_waited_id_`, whose list may have been replaced since
};

}  // namespace pumice::dv
