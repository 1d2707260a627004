#include "dispatch/profiler.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/error.h"

namespace pumice {
namespace {

constexpr size_t kMaxPending = 64;  // maximum number of unread executions whose recordings are kept alive

struct ActiveProfile {
  std::atomic<bool> is_on{false};
  std::mutex mutex;
  std::shared_ptr<Profiler> profiler;
};

ActiveProfile& get_active_profile() {
  static auto* const instance = new ActiveProfile;
  return *instance;
}

}  // namespace

Profiler::Profiler(ProfileLevel level, uint64_t every) : level_(level), every_(every) {
  static std::atomic<uint64_t> count{0};
  serial_ = ++count;
}

void Profiler::read_pending_timestamps(PendingRun& pending) {
  const Context* context = pending.run.context.get();
  auto base = std::ranges::find(bases_, context, &std::pair<const Context*, uint64_t>::first);
  if (base == bases_.end()) base = bases_.insert(bases_.end(), {context, 0});
  try {
    pending.source->read(base->second, pending.run);
  } catch (const Error&) {  // the context was closed meanwhile or its device is lost: keep the execution without timestamps
  }
  runs_.push_back(std::move(pending.run));
}

void Profiler::add(std::shared_ptr<TimestampedRecording> source, ProfiledRun run) {
  const std::lock_guard lock(mutex_);
  pending_.push_back({std::move(source), std::move(run)});
  if (pending_.size() < kMaxPending) return;
  auto next = pending_.begin();
  for (; next != pending_.end() && next->run.id <= next->run.context->get_last_completed(); ++next) read_pending_timestamps(*next);
  pending_.erase(pending_.begin(), next);
}

void Profiler::read_timestamps(const TimestampedRecording& source) {
  const std::lock_guard lock(mutex_);
  for (PendingRun& pending : pending_)
    if (pending.source.get() == &source) read_pending_timestamps(pending);
  std::erase_if(pending_, [&](const PendingRun& pending) { return pending.source.get() == &source; });
}

std::vector<ProfiledRun> Profiler::finish() {
  const std::lock_guard lock(mutex_);
  for (PendingRun& pending : pending_) read_pending_timestamps(pending);
  pending_.clear();
  std::ranges::stable_sort(runs_, {}, &ProfiledRun::submitted);
  return std::exchange(runs_, {});
}

std::shared_ptr<Profiler> get_current_profiler() {
  if (!get_active_profile().is_on.load(std::memory_order_relaxed)) return {};
  const std::lock_guard lock(get_active_profile().mutex);
  return get_active_profile().profiler;
}

bool start_profiler(ProfileLevel level, uint64_t every) {
  const std::lock_guard lock(get_active_profile().mutex);
  if (get_active_profile().profiler) return false;
  get_active_profile().profiler = std::make_shared<Profiler>(level, every);
  get_active_profile().is_on = true;
  return true;
}

std::shared_ptr<Profiler> stop_profiler() {
  const std::lock_guard lock(get_active_profile().mutex);
  get_active_profile().is_on = false;
  return std::exchange(get_active_profile().profiler, {});
}

}  // namespace pumice
