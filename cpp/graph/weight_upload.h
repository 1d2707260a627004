// The host's part of initialisation: constants on their way to the device.
#pragma once

#include <future>
#include <memory>
#include <string>

#include "graph/weights.h"

namespace pumice {

// Memory on the host that constants pass through on their way to the device. Where they are many it is made in the background, from
// now on: drivers take long to pin it. May be shared by programs that are compiled one after the other. Not thread-safe.
class UploadStaging {
 public:
  UploadStaging(std::shared_ptr<Context> context, uint64_t constant_bytes);
  // At least so many bytes, which nothing reads any more; `wanted` where they are yet to be made. Throws OutOfMemoryError, StateError (the
  // context is closed).
  std::shared_ptr<Buffer> take(uint64_t least, uint64_t wanted);
  const std::shared_ptr<Context>& context() const { return context_; }

 private:
  std::shared_ptr<Context> context_;
  std::future<std::shared_ptr<Buffer>> making_;
  std::shared_ptr<Buffer> made_;
};

// Fills the persistent resource of a program whose graph has this many inputs, all constants through `staging`, and drops the
// constants of the sources. Marks the range as initialised; it is waited for when the first constants have been read. Throws DeviceError,
// Error (a file of weights was cut).
void upload_weights(const std::shared_ptr<Context>& context, const std::string& name, size_t inputs, Weights& weights,
                    UploadStaging& staging, std::shared_future<BufferRange> persistent, const std::shared_ptr<InitializationState>& state,
                    const CompileProgress& progress);

}  // namespace pumice
