// Host memory that the device can access, so that transfers need no staging buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "device/buffer.h"

namespace pumice {

// Allocates a buffer in host memory. While it exists, transfers recognise it by its address. Throws OutOfMemoryError.
std::shared_ptr<Buffer> allocate_host_memory(std::shared_ptr<Context> context, uint64_t bytes);
// Returns the range of a buffer from allocate_host_memory() that contains these bytes, or a null buffer.
BufferRange find_host_buffer(Context& context, std::span<const std::byte> bytes);

}  // namespace pumice
