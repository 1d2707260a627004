// A logical device with its queue, timeline semaphore, allocator and enabled features. Thread-safe.
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

struct DeviceTable;     // Vulkan functions and handles of a device; device/driver/vulkan.h
struct PipelineRecord;  // a compiled pipeline with its statistics; device/pipeline_executables.h
struct ContextState;    // internal state of a Context; see device/context_state.h

using InterruptCallback = std::function<void()>;  // called while waiting, without locks held; may throw

struct MemoryUsage {
  uint64_t buffers = 0;       // number of live Buffers
  uint64_t buffer_bytes = 0;  // total size of the live Buffers
  uint64_t images = 0;        // number of live Images
  uint64_t image_bytes = 0;   // device memory allocated for the live Images
  uint64_t blocks = 0;        // number of device memory allocations
  uint64_t block_bytes = 0;   // total size of the device memory allocations
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  // Creates a context on the chosen device. Throws DeviceError if there is no loader or device, if no device matches (the error lists
  // the available ones), or if the device does not meet the requirements.
  static std::shared_ptr<Context> create(const ContextOptions& options = {});
  ~Context();
  Context(const Context&) = delete;

  // Waits for work in flight like finish() and frees the device. Idempotent; later use throws StateError. If `interrupted` throws, the
  // context stays open.
  void close(const InterruptCallback& interrupted = {}, std::optional<double> patience_seconds = {});
  bool closed() const;
  // Whether the context was given up because an execution did not finish. Resources that the device may still use are then leaked, the
  // process exits without the driver's exit handlers, and operations that need the device throw DeviceLostError.
  bool abandoned() const;
  // Seconds without progress after which close(), the destructor and process exit abandon the context: PUMICE_ABANDON_SECONDS (default 30)
  // plus the longest execution waited for so far.
  double patience_seconds() const;
  // Waits until execution `id` has finished. Returns false if it never finished and the context was abandoned. Without `interrupted`,
  // Ctrl-C also abandons the context.
  bool finish(uint64_t id, const InterruptCallback& interrupted = {}, std::optional<double> patience_seconds = {});

  const DeviceInfo& info() const;            // enabled features and limits, after masking
  const std::string& choice_reason() const;  // why this device was chosen: "PUMICE_DEVICE=...", "the only device", ...
  bool feature(std::string_view name) const { return info().feature(name); }
  uint64_t limit(std::string_view name) const { return info().limit(name); }
  QuirkSet assumed_quirks() const;  // quirks from the quirk table and the options

  // Whether this is a compile-only context: kernels are compiled and work is recorded, but nothing is submitted to the queue. Every
  // execution counts as finished at once, and device memory never holds results. The driver may be one without its hardware.
  bool compile_only() const;
  // Throws UnsupportedError in a compile-only context. `result` is what would be read: "output 'y' of 'model'".
  void require_execution(std::string_view result) const;
  // The pipelines created so far with the driver's statistics; empty unless the context is compile-only.
  std::vector<std::shared_ptr<const PipelineRecord>> list_pipeline_records() const;

  // Submits command buffers as one batch and returns its timeline value. The caller keeps resources alive until the batch has finished.
  // `check` runs first and may throw to cancel. Resources that are open during `check` are not freed by a concurrent close() before then.
  uint64_t submit(std::span<VkCommandBuffer_T* const> commands, const std::function<void()>& check = {});
  uint64_t
  get_last_completed();  // id of the last finished execution. Throws StateError in a forked child, DeviceLostError if the device is lost
  bool in_flight(uint64_t id) const noexcept;  // whether the device may still be executing this submission
  uint64_t get_last_submitted() const;
  // Waits until execution `id` has finished. `interrupted` is called about every 50 ms without locks held and may throw. Throws
  // TimeoutError, DeviceLostError. On a GPU it polls, then blocks; on a CPU driver it blocks.
  void wait(uint64_t id, std::optional<double> timeout_seconds = {}, const InterruptCallback& interrupted = {});
  // Polls execution `id` for up to `microseconds`, as wait() does first; not at all on a CPU driver. Returns whether it has finished.
  bool poll(uint64_t id, double microseconds);
  void wait_idle(const InterruptCallback& interrupted = {});

  MemoryUsage get_memory_usage() const;
  uint64_t pipelines_created() const;

  // Returns the context's only object of type T, created on first use. Higher layers keep their caches there.
  template <typename T>
  std::shared_ptr<T> attachment();

  // Returns the device's functions, for the device layer and dispatch recording. Throws StateError after close() or in a forked child,
  // DeviceLostError after device loss.
  DeviceTable& vk();

  ContextState& state() const { return *state_; }  // used by the device layer only

 private:
  Context();
  std::shared_ptr<void> get_or_create_attachment(std::type_index type, const std::function<std::shared_ptr<void>()>& make);
  std::unique_ptr<ContextState> state_;
};

template <typename T>
std::shared_ptr<T> Context::attachment() {
  return std::static_pointer_cast<T>(
      get_or_create_attachment(typeid(T), [] { return std::static_pointer_cast<void>(std::make_shared<T>()); }));
}

// Returns the state of a context after checking that it is usable; for the device layer. Throws StateError (closed, forked) or
// DeviceLostError.
ContextState& get_usable_state(Context& context);

// Registers a context for finish_live_contexts().
void register_live_context(const std::shared_ptr<Context>& context);
// Calls finish() on all live contexts at process exit. If `interrupted` throws, abandons the contexts with work in flight and rethrows.
void finish_live_contexts(const InterruptCallback& interrupted = {});
// An InterruptCallback for waits in destructors: throws TimeoutError on Ctrl-C.
void throw_if_interrupted();

}  // namespace pumice
