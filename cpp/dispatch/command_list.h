// A host-side list of dispatches and copies; committed once, executed many times with one submit each.
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

// Order is kept; barriers are derived. Not thread-safe while recording (detected); exec and wait are.
class CommandList {
 public:
  explicit CommandList(std::shared_ptr<Context> context);
  // Reads the table at once: it may be changed or dropped afterwards (L2).
  void dispatch(std::shared_ptr<const Dispatchable> dispatchable, const BindingTable& table);
  // Like dispatch(), but a table of a dispatchable with volatile descriptors is read by exec(), anew whenever it has changed.
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
  // The recording; null before commit, and before the first exec of a list with volatile tables.
  const std::shared_ptr<Recording>& recording() const { return recording_; }

 private:
  struct Use {
    std::shared_ptr<const Dispatchable> dispatchable;
    BoundRanges ranges;
    uint64_t generation;                             // the dispatchable's when it was recorded
    std::shared_ptr<const BindingTable> table = {};  // a volatile one
    size_t position = 0;                             // in dispatches_: before which a volatile use comes
    uint64_t version = 0;                            // the table's when it was read
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

}  // namespace pumice
