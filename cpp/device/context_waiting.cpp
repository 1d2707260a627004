// Waits for executions, and abandons a context whose executions do not finish.
#include <algorithm>
#include <chrono>

#include "core/active_calls.h"
#include "core/error.h"
#include "core/host_trace.h"
#include "core/interrupts.h"
#include "core/log.h"
#include "core/number_format.h"
#include "device/context.h"
#include "device/context_state.h"
#include "device/driver/instance.h"
#include "device/post_wait_hook.h"

namespace pumice {
namespace {

using Clock = std::chrono::steady_clock;

// Waits poll first: a host round trip takes 12 us on an H200 with polling and 30 us with blocking.
constexpr auto kPollBeforeBlocking = std::chrono::microseconds(200);
// Blocking waits check for interrupts (Ctrl-C) between slices.
constexpr auto kBlockingSlice = std::chrono::milliseconds(50);

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Contexts to finish at process exit.
struct LiveContexts {
  std::mutex mutex;
  std::vector<std::weak_ptr<Context>> all;
};

LiveContexts& get_live_contexts() {
  static auto* const live = new LiveContexts;
  return *live;
}

}  // namespace

void register_live_context(const std::shared_ptr<Context>& context) {
  static const bool is_registered = [] {  // registered after the driver's exit handlers, so it runs first
    register_exit_handler([] {
      finish_live_contexts();
      // A daemon thread is still calling the driver, whose exit handlers would free what it uses.
      if (has_active_calls()) skip_driver_exit_handlers();
    });
    return true;
  }();
  (void)is_registered;
  auto& live = get_live_contexts();
  const std::lock_guard lock(live.mutex);
  std::erase_if(live.all, [](const auto& weak) { return weak.expired(); });
  live.all.push_back(context);
}

bool Context::abandoned() const {
  return state_->abandoned;
}

double Context::patience_seconds() const {
  return state_->abandon_seconds + state_->longest_seconds;
}

bool Context::in_flight(uint64_t id) const noexcept {
  const ContextState& state = *state_;
  if (id <= state.finished.load(std::memory_order_acquire) || state.must_leak_objects() || state.lost) return false;
  uint64_t value = 0;
  return state.vk->vkGetSemaphoreCounterValue(state.vk->device, state.timeline, &value) == VK_SUCCESS && value < id;
}

bool Context::finish(uint64_t id, const InterruptCallback& interrupted, std::optional<double> patience) {
  ContextState& state = *state_;
  if (state.compile_only()) return true;
  auto& vk = *state.vk;
  uint64_t last_finished = state.finished.load();
  for (auto begin = Clock::now();;) {
    if (state.abandoned) return false;
    if (state.lost || state.is_forked_child()) return true;
    uint64_t value = 0;
    if (vk.vkGetSemaphoreCounterValue(vk.device, state.timeline, &value) != VK_SUCCESS || value >= id) return true;
    if (value > last_finished) last_finished = value, begin = Clock::now();
    const double limit = patience.value_or(patience_seconds()), waited = seconds_since(begin);
    const std::string stuck_message = "execution " + std::to_string(last_finished + 1) + " has not finished";
    if (waited >= limit) {
      state.abandon_device(stuck_message + " for " + format_general(waited) + " s (PUMICE_ABANDON_SECONDS)");
      return false;
    }
    VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
    const uint64_t next = last_finished + 1;
    info.semaphoreCount = 1;
    info.pSemaphores = &state.timeline;
    info.pValues = &next;
    const double slice = std::min(limit - waited, std::chrono::duration<double>(kBlockingSlice).count());
    if (vk.vkWaitSemaphores(vk.device, &info, static_cast<uint64_t>(slice * 1e9)) != VK_TIMEOUT) continue;
    if (interrupted) {
      interrupted();
    } else if (is_interrupted()) {
      state.abandon_device(stuck_message + " and the user interrupted the wait for it");
      return false;
    }
  }
}

void finish_live_contexts(const InterruptCallback& interrupted) {
  std::vector<std::shared_ptr<Context>> contexts;
  {
    auto& live = get_live_contexts();
    const std::lock_guard lock(live.mutex);
    for (const auto& weak : live.all)
      if (auto context = weak.lock()) contexts.push_back(std::move(context));
  }
  try {
    for (const auto& context : contexts) context->finish(context->get_last_submitted(), interrupted);
  } catch (...) {
    for (const auto& context : contexts)
      if (context->in_flight(context->get_last_submitted()))
        context->state().abandon_device("the user interrupted the wait for its executions");
    throw;
  }
}

void throw_if_interrupted() {
  if (is_interrupted()) throw TimeoutError("the user interrupted the wait for an execution", true);
}

uint64_t Context::get_last_completed() {
  ContextState& state = *state_;
  if (state.is_forked_child() || state.abandoned) get_usable_state(*this);  // throws, because completion can no longer be determined
  if (state.closed) return get_last_submitted();
  if (state.compile_only()) return state.finished.load(std::memory_order_acquire);
  uint64_t value = 0;
  state.check_device_result(state.vk->vkGetSemaphoreCounterValue(state.vk->device, state.timeline, &value), "vkGetSemaphoreCounterValue");
  if (value == ~uint64_t{0}) {  // a lost device may return this
    state.check_device_result(VK_ERROR_DEVICE_LOST, "vkGetSemaphoreCounterValue");
  }
  uint64_t current = state.finished.load();
  while (current < value && !state.finished.compare_exchange_weak(current, value)) {
  }
  return value;
}

bool Context::poll(uint64_t id, double microseconds) {
  if (state_->finished.load(std::memory_order_acquire) >= id || get_last_completed() >= id) return true;
  if (info().kind == DeviceKind::software) return false;  // polling would take CPU time from the driver
  const auto deadline = Clock::now() + std::chrono::duration<double, std::micro>(microseconds);
  do {
    if (get_last_completed() >= id) return true;
  } while (Clock::now() < deadline);
  return false;
}

void Context::wait(uint64_t id, std::optional<double> timeout_seconds, const InterruptCallback& interrupted) {
  ContextState& state = get_usable_state(*this);
  if (id > get_last_submitted())
    throw StateError("execution " + std::to_string(id) + " has not been submitted; the last one is " + std::to_string(get_last_submitted()),
                     "L7");
  const HostTraceSpan span("wait");
  const auto begin = Clock::now();
  const double limit = timeout_seconds.value_or(1e18);
  if (poll(id, std::min(limit * 1e6, std::chrono::duration<double, std::micro>(kPollBeforeBlocking).count())))
    return run_post_wait_hook(*this, id);
  VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  info.semaphoreCount = 1;
  info.pSemaphores = &state.timeline;
  info.pValues = &id;
  for (;;) {
    const double left = limit - std::chrono::duration<double>(Clock::now() - begin).count();
    const double slice = std::clamp(left, 0.0, std::chrono::duration<double>(kBlockingSlice).count());
    const VkResult result = state.vk->vkWaitSemaphores(state.vk->device, &info, static_cast<uint64_t>(slice * 1e9));
    if (result == VK_SUCCESS) break;
    if (result != VK_TIMEOUT) state.check_device_result(result, "vkWaitSemaphores");
    if (state.abandoned) get_usable_state(*this);
    if (left <= 0)
      throw TimeoutError("execution " + std::to_string(id) + " has not finished after " + std::to_string(limit) + " s; it is still running",
                         true);
    if (interrupted) interrupted();
  }
  state.record_duration(id);
  get_last_completed();
  run_post_wait_hook(*this, id);
}

void set_post_wait_hook(Context& context, PostWaitHook* hook) {
  context.state().post_wait_hook.store(hook, std::memory_order_release);
}

void run_post_wait_hook(Context& context, uint64_t id) {
  if (PostWaitHook* const hook = context.state().post_wait_hook.load(std::memory_order_acquire)) hook->check(context, id);
}

void Context::wait_idle(const InterruptCallback& interrupted) {
  wait(get_last_submitted(), {}, interrupted);
}

}  // namespace pumice
