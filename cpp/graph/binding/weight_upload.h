// The host's part of initialisation: constants on their way to the device.
#pragma once

#include <future>
#include <memory>
#include <string>

#include "graph/binding/weights.h"

namespace pumice {

// The memory that constants pass through on the host, and that they go to on the device. For many bytes it is allocated in the background,
// staging memory first, since drivers take long for both. May be given to programs that are compiled one after the other. Not thread-safe.
class UploadMemory {
 public:
  // Begins to allocate memory for about so many bytes of constants, as far as is known yet.
  UploadMemory(std::shared_ptr<Context> context, uint64_t bytes);
  // Tells that a program will store about so many bytes of constants.
  void expect(uint64_t device_bytes);
  const std::shared_ptr<Context>& context() const { return context_; }
  // A staging buffer of at least `least` bytes, the caller's until the next one asks; `wanted` bytes where it is yet to be made. Throws
  // OutOfMemoryError, StateError (the context is closed).
  std::shared_ptr<Buffer> staging(uint64_t least, uint64_t wanted);
  // So many bytes of device memory for the caller alone, perhaps not yet allocated; its get() throws what staging() throws.
  std::shared_future<BufferRange> persistent(uint64_t bytes);

 private:
  void begin_staging(uint64_t bytes);

  using Making = std::shared_future<std::shared_ptr<Buffer>>;

  std::shared_ptr<Context> context_;
  uint64_t device_bytes_ = 0;  // the size of making_persistent_
  Making making_staging_, making_persistent_;
  std::shared_ptr<Buffer> staging_;
};

// Fills the persistent resource of a program whose graph has this many inputs, all constants through the staging memory, and drops the
// constants of the sources; gives what it has filled. Marks the range as initialised; it is waited for when the first constants have been
// read. Throws DeviceError, Error (a file of weights was cut).
BufferRange upload_weights(UploadMemory& memory, const std::string& name, size_t inputs, Weights& weights,
                           const std::shared_ptr<InitializationState>& state, const CompileProgress& progress);

}  // namespace pumice
