#include "device/spare_context.h"

#include <mutex>
#include <utility>

#include "core/error.h"
#include "device/context_state.h"

namespace pumice {
namespace {

void close_quietly(const std::shared_ptr<Context>& spare) noexcept {
  try {
    if (spare) spare->close();
  } catch (...) {  // lost device: its objects are freed anyway
  }
}

// Owns a context's spare context; attached to that context.
struct SpareContextSlot {
  std::mutex mutex;
  std::shared_ptr<Context> idle;

  ~SpareContextSlot() { close_quietly(idle); }
  // Replaces the spare and returns the previous one.
  std::shared_ptr<Context> exchange(std::shared_ptr<Context> other) {
    const std::lock_guard lock(mutex);
    return std::exchange(idle, std::move(other));
  }
};

bool is_usable(Context& context) noexcept {
  const ContextState& state = context.state();
  return !state.closed && !state.lost && !state.must_leak_objects();
}

}  // namespace

std::shared_ptr<Context> take_spare_context(Context& context) {
  std::shared_ptr<Context> spare = context.attachment<SpareContextSlot>()->exchange(nullptr);
  return spare && is_usable(*spare) ? spare : nullptr;
}

void store_spare_context(Context& context, std::shared_ptr<Context> spare) {
  if (spare.get() == &context) throw StateError("a context cannot be its own spare");
  if (!is_usable(context) || !is_usable(*spare)) return close_quietly(spare);
  try {
    spare = context.attachment<SpareContextSlot>()->exchange(std::move(spare));
  } catch (const Error&) {  // another thread closed the context meanwhile, or its device is lost
  }
  close_quietly(spare);
}

}  // namespace pumice
