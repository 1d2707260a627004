// Host side of initialisation: uploads constants to the device.
#pragma once

#include <future>
#include <memory>
#include <string>

#include "graph/binding/weights.h"

namespace pumice {

// Staging and device memory for constants. Large allocations run in the background, staging memory first, since drivers allocate both
// slowly. Can be shared by programs that are compiled one after the other. Not thread-safe.
class UploadMemory {
 public:
  // Starts to allocate memory for about `bytes` bytes of constants, an early estimate.
  UploadMemory(std::shared_ptr<Context> context, uint64_t bytes);
  // Announces that a program will store about this many bytes of constants.
  void expect(uint64_t device_bytes);
  const std::shared_ptr<Context>& context() const { return context_; }
  // Returns a staging buffer of at least `min_bytes` bytes, valid until the next call. If a new one has to be allocated, it has `new_bytes`
  // bytes. Throws OutOfMemoryError, StateError if the context is closed.
  std::shared_ptr<Buffer> staging(uint64_t min_bytes, uint64_t new_bytes);
  // Returns device memory for the caller alone. It may still be being allocated; get() throws as staging() does.
  std::shared_future<BufferRange> persistent(uint64_t bytes);

 private:
  void begin_staging(uint64_t bytes);

  using PendingBuffer = std::shared_future<std::shared_ptr<Buffer>>;

  std::shared_ptr<Context> context_;
  uint64_t device_bytes_ = 0;  // size of the memory that pending_persistent_ allocates
  PendingBuffer pending_staging_, pending_persistent_;
  std::shared_ptr<Buffer> staging_;
};

// Fills the persistent resource of a program whose graph has `inputs` inputs, copying all constants through staging memory, marks it as
// initialised, and releases the sources' constants. Returns the filled range. Waits for its allocation only after reading the first
// constants. Throws DeviceError, or Error if a weights file is truncated.
BufferRange upload_weights(UploadMemory& memory, const std::string& name, size_t inputs, Weights& weights,
                           const std::shared_ptr<InitializationState>& state, const CompileProgress& progress);

}  // namespace pumice
