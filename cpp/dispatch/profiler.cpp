#include "dispatch/profiler.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/error.h"

namespace pumice {
namespace {

constexpr size_t kMaxPending = 64;  // maximum number of unread executions whose recordings are kept alive

struct Current {
  std::atomic<bool> is_on{false};
  std::mutex mutex;
  std::shared_ptr<Profiler> profiler;
};

Current& current() {
  static auto* const instance = new Current;
  return *instance;
}

}  // namespace

Profiler::Profiler(ProfileLevel level, uint64_t every) : level_(level), every_(every) {
  static std::atomic<uint64_t> count{0};
  serial_ = ++count;
}

void Profiler::read(Pending& pending) {
  const Context* context = pending.run.context.get();
  auto base = std::ranges::find(bases_, context, &std::pair<const Context*, uint64_t>::first);
  if (base == bases_.end()) base = bases_.insert(bases_.end(), {context, 0});
  try {
    pending.source->read(base->second, pending.run);
  } catch (const Error&) {  // the context was closed meanwhile or its device is lost: keep the execution without timestamps
  }
  runs_.push_back(std::move(pending.run));
}

void Profiler::add(std::shared_ptr<ProfiledSource> source, ProfiledRun run) {
  const std::lock_guard lock(mutex_);
  pending_.push_back({std::move(source), std::move(run)});
  if (pending_.size() < kMaxPending) return;
  auto next = pending_.begin();
  for (; next != pending_.end() && next->run.id <= next->run.context->completed(); ++next) read(*next);
  pending_.erase(pending_.begin(), next);
}

void Profiler::collect(const ProfiledSource& source) {
  const std::lock_guard lock(mutex_);
  for (Pending& pending : pending_)
    if (pending.source.get() == &source) read(pending);
  std::erase_if(pending_, [&](const Pending& pending) { return pending.source.get() == &source; });
}

std::vector<ProfiledRun> Profiler::finish() {
  const std::lock_guard lock(mutex_);
  for (Pending& pending : pending_) read(pending);
  pending_.clear();
  std::ranges::stable_sort(runs_, {}, &ProfiledRun::submitted);
  return std::exchange(runs_, {});
}

std::shared_ptr<Profiler> current_profiler() {
  if (!current().is_on.load(std::memory_order_relaxed)) return {};
  const std::lock_guard lock(current().mutex);
  return current().profiler;
}

bool start_profiler(ProfileLevel level, uint64_t every) {
  const std::lock_guard lock(current().mutex);
  if (current().profiler) return false;
  current().profiler = std::make_shared<Profiler>(level, every);
  current().is_on = true;
  return true;
}

std::shared_ptr<Profiler> stop_profiler() {
  const std::lock_guard lock(current().mutex);
  current().is_on = false;
  return std::exchange(current().profiler, {});
}

}  // namespace pumice
