// Host memory that the device reaches by itself, so that transfers from and to it take no staging memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "device/buffer.h"

namespace pumice {

// Makes a buffer of host memory that transfers recognise by its address while the buffer is there. Throws OutOfMemoryError.
std::shared_ptr<Buffer> make_host_memory(std::shared_ptr<Context> context, uint64_t bytes);
// The range of such a buffer of the context that these bytes are; no buffer where they are others.
BufferRange host_memory_of(Context& context, std::span<const std::byte> bytes);

}  // namespace pumice
