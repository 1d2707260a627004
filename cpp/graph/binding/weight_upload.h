// Uploads weights to the device.
#pragma once

#include <future>
#include <memory>
#include <string>

#include "graph/binding/weights.h"

namespace pumice {

// Staging and device memory for weights. Large buffers are allocated in the background, staging memory first, because drivers allocate both
// slowly. Programs that are compiled one after the other can share it. Not thread-safe.
class UploadMemory {
 public:
  // Starts to allocate staging memory for about `bytes` bytes of weights.
  UploadMemory(std::shared_ptr<Context> context, uint64_t bytes);
  // Starts to allocate device memory for about this many bytes of weights.
  void preallocate(uint64_t device_bytes);
  const std::shared_ptr<Context>& context() const { return context_; }
  // Returns a staging buffer of at least `min_bytes` bytes, valid until the next call. A new buffer gets `new_bytes` bytes. Throws
  // OutOfMemoryError, or StateError if the context is closed.
  std::shared_ptr<Buffer> get_staging(uint64_t min_bytes, uint64_t new_bytes);
  // Returns device memory for the exclusive use of the caller. Its allocation may still be pending; get() throws as get_staging() does.
  std::shared_future<BufferRange> allocate_persistent(uint64_t bytes);

 private:
  void begin_staging(uint64_t bytes);

  using PendingBuffer = std::shared_future<std::shared_ptr<Buffer>>;

  std::shared_ptr<Context> context_;
  uint64_t device_bytes_ = 0;  // size in bytes of the buffer that pending_persistent_ allocates
  PendingBuffer pending_staging_, pending_persistent_;
  std::shared_ptr<Buffer> staging_;
};

// Uploads all weights of a program with `inputs` graph inputs through staging memory, marks the program as initialised, and releases the
// host constants. Returns the device memory of the weights. Reads the first weights while their device memory is being allocated. Throws
// DeviceError, or Error if a weights file is truncated.
BufferRange upload_weights(UploadMemory& memory, const std::string& name, size_t inputs, Weights& weights,
                           const std::shared_ptr<InitializationState>& state, const CompileProgress& progress);

}  // namespace pumice
