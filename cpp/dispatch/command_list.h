// A host-side list of dispatches and copies: committed once, executed many times with one submission each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dispatch/binding_table.h"
#include "dispatch/recording.h"

namespace pumice {

// Dispatches run in order; barriers are inserted automatically. Recording is not thread-safe (concurrent use is detected); exec and wait
// are.
class CommandList {
 public:
  explicit CommandList(std::shared_ptr<Context> context);
  // Reads the table immediately: it may be changed or destroyed afterwards (L2).
  void dispatch(std::shared_ptr<const Dispatchable> dispatchable, const BindingTable& table);
  // Like dispatch(), but if the dispatchable has volatile descriptors, exec() reads the table, and reads it again after every change.
  void dispatch(std::shared_ptr<const Dispatchable> dispatchable, std::shared_ptr<const BindingTable> table);
  void dispatch(Dispatch dispatch);
  void copy(const BufferRange& source, const BufferRange& target);
  void commit(const RecordingOptions& options = {});  // throws StateError if already committed
  bool committed() const { return committed_; }
  size_t recorded_count() const { return dispatches_.size(); }  // dispatches recorded so far, without volatile tables; before commit only
  size_t count_volatile_tables() const;
  Submission exec();  // throws StateError before commit
  void wait(uint64_t id, std::optional<double> timeout_seconds = {}, const std::function<void()>& interrupted = {}) const;
  const std::shared_ptr<Context>& context() const { return context_; }
  // Returns the recording; null before commit, and before the first exec of a list with volatile tables.
  const std::shared_ptr<Recording>& recording() const { return recording_; }

 private:
  struct RecordedDispatchable {
    std::shared_ptr<const Dispatchable> dispatchable;
    BoundRanges ranges;
    uint64_t generation;                             // generation of the dispatchable when recorded
    std::shared_ptr<const BindingTable> table = {};  // set only if the dispatchable has volatile descriptors
    size_t position = 0;                             // for volatile tables: index in dispatches_ at which the dispatches are inserted
    uint64_t version = 0;                            // version of the table when it was last read
  };
  void check_recordable(const Dispatchable& dispatchable, const BindingTable& table) const;
  void check_uncommitted() const;
  void read_volatile_tables();
  void begin_executions();

  std::shared_ptr<Context> context_;
  std::vector<Dispatch> dispatches_;  // kept after commit if there are volatile tables
  std::vector<RecordedDispatchable> uses_;
  std::shared_ptr<Recording> recording_;
  RecordingOptions options_;
  bool committed_ = false, volatile_ = false;
};

}  // namespace pumice
