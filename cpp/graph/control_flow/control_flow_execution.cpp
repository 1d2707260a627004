#include "graph/control_flow/control_flow_execution.h"

#include <algorithm>

#include "core/error.h"
#include "core/number_format.h"

namespace pumice {
namespace {

constexpr size_t kMaxInFlight = 64;  // maximum number of submissions in flight
constexpr auto kSignalPeriod = std::chrono::milliseconds(50);

double seconds_since(ControlFlowExecution::Clock::time_point begin) {
  return seconds_between(begin, ControlFlowExecution::Clock::now());
}

std::string format_seconds(double seconds) {
  return format_general(seconds) + " s";
}

}  // namespace

double seconds_between(ControlFlowExecution::Clock::time_point begin, ControlFlowExecution::Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

ControlFlowExecution::ControlFlowExecution(std::shared_ptr<Context> context, std::string name, const RecordingOptions& options)
    : context_(std::move(context)),
      name_(std::move(name)),
      is_measured_(options.total_time),
      pool_(context_),
      recordings_(context_, options) {}

void ControlFlowExecution::begin(const RunLimits& limits) {
  limits_ = &limits;
  begin_ = Clock::now();
  next_signal_ = begin_ + kSignalPeriod;
  report = {};
  device_seconds_ = 0;
  in_flight_.clear();
  first_cold_ = last_cold_ = 0;
  pool_.trim();
}

void ControlFlowExecution::submit(CommandList& list) {
  if (in_flight_.size() >= kMaxInFlight) {
    wait_for(in_flight_[kMaxInFlight / 2]);
    in_flight_.erase(in_flight_.begin(), in_flight_.begin() + kMaxInFlight / 2 + 1);
  }
  last_ = list.exec();
  in_flight_.push_back(last_->id());
  if (last_->is_cold()) record_cold_submission(*last_);
  ++report.submissions;
  report.dispatches += list.recording()->dispatch_count();
  if (!is_measured_) return;
  wait();  // wait for each submission, because a list has only one pair of timestamps
  device_seconds_ += last_->device_seconds().value_or(0);
}

void ControlFlowExecution::wait() {
  if (!last_) return;
  wait_for(last_->id());
  in_flight_.clear();
}

void ControlFlowExecution::record_cold_submission(const Submission& submission) {
  last_cold_ = submission.id();
  if (first_cold_ == 0) first_cold_ = last_cold_;
}

void ControlFlowExecution::wait_for(uint64_t id) {
  const auto wait = [&] { context_->wait(id, remaining_seconds(), limits_->interrupted); };
  if (!includes_cold_run(id)) return wait();
  with_loop_clock_paused(wait);
  first_cold_ = last_cold_ > id ? last_cold_ : 0;
}

std::optional<double> ControlFlowExecution::remaining_seconds() const {
  if (!limits_->timeout_seconds) return {};
  return std::max(0.0, *limits_->timeout_seconds - seconds_since(begin_));
}

void ControlFlowExecution::check_timeout(const std::string& next_node) {
  if (const auto now = Clock::now(); limits_->interrupted && now >= next_signal_) {
    limits_->interrupted();
    next_signal_ = now + kSignalPeriod;
  }
  if (limits_->timeout_seconds && seconds_since(begin_) >= *limits_->timeout_seconds)
    throw TimeoutError(
        "execution of '" + name_ + "' took longer than " + format_seconds(*limits_->timeout_seconds) + "; next was '" + next_node + "'",
        true);
}

bool ControlFlowExecution::is_loop_timed_out(Clock::time_point entered) const {
  return limits_->loop_seconds && seconds_between(entered, loop_clock()) >= *limits_->loop_seconds;
}

void ControlFlowExecution::throw_loop_timeout(const std::string& node, uint64_t trips) const {
  throw TimeoutError("loop '" + node + "' of '" + name_ + "' ran longer than " + format_seconds(*limits_->loop_seconds) +
                         "; stopped after " + std::to_string(trips) + " iterations",
                     true);
}

RoutineValue ControlFlowExecution::allocate_value(TensorDesc desc, StagingSlotUse use) {
  const uint64_t bytes = desc.bytes();
  RoutineValue value{std::move(desc), {}, pool_.acquire(bytes, use), {}};
  value.range = {value.slot->device, 0, bytes};
  return value;
}

}  // namespace pumice
