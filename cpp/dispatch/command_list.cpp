#include "dispatch/command_list.h"

#include <algorithm>

#include "core/error.h"
#include "dispatch/copy.h"
#include "dispatch/debug_recording.h"

namespace pumice {

CommandList::CommandList(std::shared_ptr<Context> context) : context_(std::move(context)) {}

void CommandList::check_uncommitted() const {
  if (committed_) throw StateError("this CommandList is committed; make a new one to record more", "L6");
}

void CommandList::check_recordable(const Dispatchable& dispatchable, const BindingTable& table) const {
  if (dispatchable.context() != context_)
    throw BindingError("C10", "dispatchable", dispatchable.name(), "a dispatchable of this list's context", "one of another context");
  if (table.dispatchable().get() != &dispatchable)
    throw BindingError("C10", "table", dispatchable.name(), "a table made for '" + dispatchable.name() + "'",
                       "one made for '" + table.dispatchable()->name() + "'");
}

void CommandList::dispatch(std::shared_ptr<const Dispatchable> dispatchable, const BindingTable& table) {
  check_uncommitted();
  check_recordable(*dispatchable, table);
  BoundRanges ranges = table.get_ranges_of_complete_table();
  auto lowered = dispatchable->lower(ranges);
  std::move(lowered.begin(), lowered.end(), std::back_inserter(dispatches_));
  const uint64_t generation = dispatchable->generation();
  uses_.push_back({std::move(dispatchable), std::move(ranges), generation});
}

void CommandList::dispatch(std::shared_ptr<const Dispatchable> dispatchable, std::shared_ptr<const BindingTable> table) {
  if (!dispatchable->has_volatile_descriptors()) return dispatch(std::move(dispatchable), *table);
  check_uncommitted();
  check_recordable(*dispatchable, *table);
  volatile_ = true;
  const uint64_t generation = dispatchable->generation();
  uses_.push_back({std::move(dispatchable), {}, generation, std::move(table), dispatches_.size()});
}

void CommandList::dispatch(Dispatch dispatch) {
  check_uncommitted();
  dispatches_.push_back(std::move(dispatch));
}

size_t CommandList::count_volatile_tables() const {
  return static_cast<size_t>(std::ranges::count_if(uses_, [](const RecordedDispatchable& use) { return use.table != nullptr; }));
}

void CommandList::copy(const BufferRange& source, const BufferRange& target) {
  for (auto& chunk : make_copy_dispatches(source, target)) dispatch(std::move(chunk));
}

void CommandList::commit(const RecordingOptions& options) {
  if (committed_) throw StateError("this CommandList is already committed", "L6");
  options_ = options;
  if (!volatile_) recording_ = make_recording(context_, std::move(dispatches_), options);
  committed_ = true;
}

// Records the list again if a volatile table has changed since it was last read. If a table is rejected, the list is unchanged.
void CommandList::read_volatile_tables() {
  const auto is_read = [](const RecordedDispatchable& use) { return !use.table || use.table->version() == use.version; };
  if (recording_ && std::ranges::all_of(uses_, is_read)) return;
  std::vector<RecordedDispatchable> uses = uses_;
  std::vector<Dispatch> dispatches;
  size_t next = 0;
  const auto take_until = [&](size_t end) {
    for (; next < end; ++next) dispatches.push_back(dispatches_[next]);
  };
  for (RecordedDispatchable& use : uses) {
    if (!use.table) continue;
    check_recordable(*use.dispatchable, *use.table);
    use.version = use.table->version();
    use.ranges = use.table->get_ranges_of_complete_table();
    take_until(use.position);
    std::ranges::move(use.dispatchable->lower(use.ranges), std::back_inserter(dispatches));
  }
  take_until(dispatches_.size());
  recording_ = make_recording(context_, std::move(dispatches), options_);
  uses_ = std::move(uses);
}

// Begins the execution of all dispatchables. If one rejects it, cancels the executions already begun.
void CommandList::begin_executions() {
  size_t num_begun = 0;
  try {
    for (; num_begun < uses_.size(); ++num_begun) {
      const RecordedDispatchable& use = uses_[num_begun];
      if (use.dispatchable->generation() != use.generation)
        throw BindingError("I7", "dispatchable", use.dispatchable->name(), "a list recorded after the initializer's reset", "an older one");
      use.dispatchable->begin_execution(use.ranges);
    }
  } catch (...) {
    while (num_begun > 0) uses_[--num_begun].dispatchable->cancel_execution();
    throw;
  }
}

Submission CommandList::exec() {
  if (!committed_) throw StateError("commit() this CommandList before exec()", "L6");
  if (volatile_) read_volatile_tables();
  begin_executions();
  try {
    const Submission submission = recording_->exec();
    for (const RecordedDispatchable& use : uses_) use.dispatchable->on_submitted(submission.id());
    return submission;
  } catch (...) {
    for (const RecordedDispatchable& use : uses_) use.dispatchable->cancel_execution();
    throw;
  }
}

void CommandList::wait(uint64_t id, std::optional<double> timeout_seconds, const std::function<void()>& interrupted) const {
  context_->wait(id, timeout_seconds, interrupted);
  if (recording_) recording_->collect_messages(id);
}

}  // namespace pumice
