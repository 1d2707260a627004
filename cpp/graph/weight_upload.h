// The host's part of initialisation: constants on their way to the device.
#pragma once

#include <future>
#include <memory>
#include <string>

#include "graph/weights.h"

namespace pumice {

// Fills the persistent resource of a program whose graph has this many inputs, all constants through one staging buffer, and drops the
// constants of the sources. Marks the range as initialised; it is waited for when the first constants have been read. Throws DeviceError,
// Error (a file of weights was cut).
void upload_weights(const std::shared_ptr<Context>& context, const std::string& name, size_t inputs, Weights& weights,
                    std::shared_future<BufferRange> persistent, const std::shared_ptr<InitializationState>& state,
                    const CompileProgress& progress);

}  // namespace pumice
