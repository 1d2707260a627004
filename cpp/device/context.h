// One logical device with its queue, timeline, allocator and features. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <typeindex>
#include <vector>

#include "device/context_options.h"
#include "device/driver/device_info.h"
#include "device/driver/driver_quirks.h"

struct VkCommandBuffer_T;

namespace pumice {

struct DeviceTable;   // Vulkan functions and handles of one device; device/driver/vulkan.h
struct ContextState;  // the state that a Context holds; device/context_state.h

using Interrupted = std::function<void()>;  // called while waiting, without any lock held; may throw

struct MemoryCounts {
  uint64_t buffers = 0;       // live Buffers
  uint64_t buffer_bytes = 0;  // their bytes
  uint64_t images = 0;        // live Images
  uint64_t image_bytes = 0;   // their bytes of device memory
  uint64_t blocks = 0;        // device memory allocations
  uint64_t block_bytes = 0;   // their bytes
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  // Makes a context on the chosen device. Throws DeviceError: no loader, no device, no device of that name (lists those there are), a
  // missing requirement.
  static std::shared_ptr<Context> create(const ContextOptions& options = {});
  ~Context();
  Context(const Context&) = delete;

  // Waits for the work in flight, as finish() does, and frees the device. Idempotent; later use throws StateError. Where `interrupted`
  // throws the context stays open.
  void close(const Interrupted& interrupted = {}, std::optional<double> patience_seconds = {});
  bool closed() const;
  // Whether the context was given up because an execution did not end. Nothing that the device may still use is then ever freed, the
  // process ends without the driver's exit handlers, and whatever needs the device throws DeviceLostError.
  bool abandoned() const;
  // Seconds without any execution finishing after which close(), the destructor and the end of the process abandon the context:
  // PUMICE_ABANDON_SECONDS, 30 by default, and on top the longest execution that was waited for.
  double patience_seconds() const;
  // Waits until `id` has finished. False where it does not and the context was abandoned. Without `interrupted` a Ctrl-C abandons it too.
  bool finish(uint64_t id, const Interrupted& interrupted = {}, std::optional<double> patience_seconds = {});

  const DeviceInfo& info() const;     // features as enabled: masked ones read false; limits as masked
  const std::string& choice() const;  // why this device: "PUMICE_DEVICE=...", "the only device", ...
  bool feature(std::string_view name) const { return info().feature(name); }
  uint64_t limit(std::string_view name) const { return info().limit(name); }
  QuirkSet assumed_quirks() const;  // quirks of the table, and of the options

  // Submits recorded command buffers as one batch; returns its id on the timeline. The caller keeps what they use until it has finished.
  // `check` may refuse by an exception; what it finds open, no other thread's close() frees before the batch has finished.
  uint64_t submit(std::span<VkCommandBuffer_T* const> commands, const std::function<void()>& check = {});
  uint64_t completed();                        // id of the last execution that has finished. StateError in a forked child; DeviceLostError
  bool in_flight(uint64_t id) const noexcept;  // the device may still work for it
  uint64_t submitted() const;
  // Waits until `id` has finished. `interrupted` is called about every 50 ms without any lock held and may throw.
  // Throws TimeoutError, DeviceLostError. The policy follows the device kind: poll then block on a GPU, block on a CPU driver.
  void wait(uint64_t id, std::optional<double> timeout_seconds = {}, const Interrupted& interrupted = {});
  // The first part of wait(): polls for up to `microseconds` (not at all on a CPU driver); true when finished.
  bool poll(uint64_t id, double microseconds);
  void wait_idle(const Interrupted& interrupted = {});

  MemoryCounts memory_counts() const;
  uint64_t pipelines_created() const;

  // One object per type owned by this context, made on first use (caches of higher layers).
  template <typename T>
  std::shared_ptr<T> attachment();

  // The device's functions, for the device layer and dispatch recording. Throws StateError after close() or in a forked child,
  // DeviceLostError after loss.
  DeviceTable& vk();

  ContextState& state() const { return *state_; }  // for the device layer

 private:
  Context();
  std::shared_ptr<void> find_attachment(std::type_index type, const std::function<std::shared_ptr<void>()>& make);
  std::unique_ptr<ContextState> state_;
};

template <typename T>
std::shared_ptr<T> Context::attachment() {
  return std::static_pointer_cast<T>(find_attachment(typeid(T), [] { return std::static_pointer_cast<void>(std::make_shared<T>()); }));
}

// The state of a context that is still usable, for the device layer. Throws StateError (closed, forked) or DeviceLostError.
ContextState& state_of(Context& context);

// Adds a context to those that the end of the process waits for.
void note_live(const std::shared_ptr<Context>& context);
// finish() for all contexts that are alive: what the end of a process waits for. An exception of `interrupted` is passed on once the
// contexts with work in flight are abandoned.
void finish_contexts(const Interrupted& interrupted = {});
// The Interrupted of a wait in a destructor: throws TimeoutError where the user wants to go on (Ctrl-C).
void give_up_at_interrupt();

}  // namespace pumice
