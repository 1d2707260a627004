#include "dv/command_list.h"

#include <algorithm>

#include "dv/commands/parse_command.h"
#include "dv/memory/dv_error.h"

namespace pumice::dv {
namespace {

constexpr size_t kMaxInFlight = 16;  // executions in flight with separate timestamps

// Returns the ranges that the commands write, merged so that they do not touch.
std::vector<MemoryRange> merge_written_ranges(const std::vector<Command>& commands) {
  std::vector<MemoryRange> ranges;
  for (const Command& command : commands) ranges.push_back(get_written_range(command));
  std::ranges::sort(ranges, {}, [](const MemoryRange& range) { return std::pair(range.memory->handle(), range.offset); });
  std::vector<MemoryRange> merged;
  for (MemoryRange& range : ranges) {
    if (merged.empty() || merged.back().memory != range.memory || merged.back().offset + merged.back().bytes < range.offset) {
      merged.push_back(std::move(range));
    } else {
      MemoryRange& last = merged.back();
      last.bytes = std::max(last.offset + last.bytes, range.offset + range.bytes) - last.offset;
    }
  }
  return merged;
}

struct CommandLowering {
  LoweringState& lowering;
  void operator()(const ConvCommand& command) const { lower_conv(lowering, command); }
  void operator()(const FcCommand& command) const { lower_fc(lowering, command); }
  void operator()(const IpuCommand& command) const { lower_ipu(lowering, command); }
  void operator()(const ArgmaxCommand& command) const { lower_argmax(lowering, command); }
};

}  // namespace

CommandList::CommandList(std::shared_ptr<Context> context) : context_(std::move(context)) {}

void CommandList::add(std::span<const std::byte> raw, const MemoryResolver& resolve) {
  if (committed_) throw StateError("this CommandList is committed; make a new one to add more", "L6");
  add_attempted_ = true;
  commands_.push_back(parse_command(raw, resolve, context_->strict()));
}

void CommandList::commit(const InterruptCallback& interrupted) {
  if (committed_) throw StateError("this CommandList is already committed", "L6");
  if (commands_.empty()) throw DvError("commands", "at least one command", "none", add_attempted_ ? EINVAL : ENODATA);
  if (context_->strict()) {
    const int type = get_device_type(commands_[0]);
    for (const Command& command : commands_)
      if (get_device_type(command) != type)
        throw DvError("commands", "commands of one device (hardware limit)",
                      "some of devices " + std::to_string(type) + " and " + std::to_string(get_device_type(command)), kRejected, "D5");
    if ((type == DMP_DV_DEV_IPU || type == DMP_DV_DEV_MAXIMIZER) && commands_.size() > 1)
      throw DvError("commands", "a single command of this device (hardware limit)", std::to_string(commands_.size()), kRejected, "D5");
  }
  written_ = merge_written_ranges(commands_);
  prepared_ = prepare(interrupted);
  committed_ = true;
}

std::shared_ptr<CommandList::PreparedCommands> CommandList::prepare(const InterruptCallback& interrupted) const {
  const auto prepared = std::make_shared<PreparedCommands>(LoweringState{context_, Recorder(context_->device()), written_});
  auto& written = prepared->lowering.written;
  written.insert(written.end(), device_weights_.begin(), device_weights_.end());
  for (const Command& command : commands_) {
    std::visit(CommandLowering{prepared->lowering}, command);
    prepared->lowering.recorder.end_command();
  }
  prepared->lowering.recorder.initialize(interrupted);
  prepared->lists.push_back(prepared->lowering.recorder.make_command_list());
  return prepared;
}

void CommandList::check_committed() const {
  if (!committed_) throw StateError("commit() this CommandList before exec() and wait()", "L6");
}

// Returns whether weights have changed since the list was prepared. Weights that the device has written are unpacked on the device from
// then on, so that executions need not wait for one another.
bool CommandList::have_weights_changed() {
  bool is_changed = false;
  for (TrackedWeights& weights : prepared_->lowering.weights) {
    const MemoryRange& range = weights.range;
    if (range.memory->get_device_write_count(range.offset, range.bytes) != weights.device_writes) {
      device_weights_.push_back(range);
      is_changed = true;
    } else if (const uint64_t device_write_count = range.memory->device_write_count(); device_write_count != weights.device_write_count) {
      is_changed = is_changed || !range.memory->equals(range.offset, weights.packed);
      weights.device_write_count = device_write_count;
    }
  }
  return is_changed;
}

int64_t CommandList::exec(const InterruptCallback& interrupted) {
  check_committed();
  const std::lock_guard lock(mutex_);
  if (have_weights_changed()) prepared_ = prepare(interrupted);
  auto& lists = prepared_->lists;
  auto& submissions = prepared_->submissions;
  // Reuses an idle list, except the one whose device time last_exec_time() may still read; if none is idle, the one submitted first.
  const auto is_busy = [&](const Submission& candidate) { return candidate.id() == last_waited_id_ || !candidate.done(); };
  size_t at = 0;
  while (at < submissions.size() && is_busy(submissions[at])) ++at;
  if (at == kMaxInFlight) at = static_cast<size_t>(std::ranges::min_element(submissions, {}, &Submission::id) - submissions.begin());
  if (at == lists.size()) lists.push_back(prepared_->lowering.recorder.make_command_list());
  for (const MemoryRange& range : written_) range.memory->announce_device_write(range.offset, range.bytes);
  const Submission submission = lists[at]->exec();
  for (const MemoryRange& range : written_) range.memory->record_device_write();
  if (at == submissions.size())
    submissions.push_back(submission);
  else
    submissions[at] = submission;
  last_id_ = submission.id();
  return static_cast<int64_t>(last_id_);
}

void CommandList::wait(int64_t id, std::optional<double> timeout_seconds, const InterruptCallback& interrupted) {
  check_committed();
  auto& device = *context_->device();
  const auto number = static_cast<uint64_t>(id);
  if (id < 1 || number > device.get_last_submitted())
    throw DvError("exec_id", "the id of an execution: from 1 to " + std::to_string(device.get_last_submitted()), std::to_string(id),
                  EINVAL);
  device.wait(number, timeout_seconds, interrupted);
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(prepared_->submissions, number, &Submission::id);
  if (found != prepared_->submissions.end()) last_waited_id_ = number;
}

void CommandList::finish() {
  uint64_t last = 0;
  {
    const std::lock_guard lock(mutex_);
    last = last_id_;
  }
  if (last > 0) context_->device()->finish(last);
}

double CommandList::last_exec_seconds() const {
  const std::lock_guard lock(mutex_);
  if (last_waited_id_ == 0) return 0;
  const auto found = std::ranges::find(prepared_->submissions, last_waited_id_, &Submission::id);
  if (found == prepared_->submissions.end()) return last_seconds_;
  if (const auto seconds = found->device_seconds()) last_seconds_ = *seconds;
  return last_seconds_;
}

int64_t CommandList::last_exec_time() const {
  constexpr double kMicroseconds = 1e6;
  return static_cast<int64_t>(last_exec_seconds() * kMicroseconds + 0.5);
}

size_t CommandList::dispatch_count() const {
  check_committed();
  const std::lock_guard lock(mutex_);
  return prepared_->lists[0]->recording()->dispatch_count();
}

}  // namespace pumice::dv
