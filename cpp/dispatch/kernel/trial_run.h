// Pipelines, buffers and waits of the driver trials, which run before kernels may be used.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/files/hash.h"
#include "device/buffer.h"
#include "device/pipeline.h"
#include "shader/shader.h"

namespace pumice {

// Begins the key of a trial: a hash of the device with its enabled features, its driver and, for software drivers, the host's processor.
Sha256 hash_driver(const DeviceInfo& info);

// Returns the quirks cached on disk for this key, or else those that `run` finds, which are then cached.
QuirkSet find_cached_quirks(const DeviceInfo& info, Sha256 key, const std::function<QuirkSet()>& run);

// Compiles a trial shader as it is, since the trial determines which workarounds a driver needs. The pipeline is not counted.
std::shared_ptr<const Pipeline> make_trial_pipeline(Context& context, const Shader& shader,
                                                    std::vector<SpecializationConstant> constants = {}, uint32_t subgroup_size = 0);

template <typename T>
std::shared_ptr<Buffer> make_filled_buffer(const std::shared_ptr<Context>& context, const std::vector<T>& elements) {
  const auto buffer = Buffer::create(context, elements.size() * sizeof(T));
  upload({buffer, 0, buffer->bytes()}, std::as_bytes(std::span(elements)));
  return buffer;
}

// Waits for a trial's execution. Throws DeviceError and abandons the context if the driver does not finish it within two seconds. A
// software driver that gets no processor time has longer: only two seconds of its own time count.
void wait_for_trial(Context& context, uint64_t id);

}  // namespace pumice
