// Pooled host memory for large results.
#pragma once

#include <cstddef>
#include <memory>

namespace pumice {

inline constexpr size_t kMinPooledResultBytes = size_t{4} << 20;  // for smaller results, the standard allocator is as fast

// Returns uninitialised memory of at least this many bytes, or null if allocation fails. Page faults on fresh memory cost more than copying
// into it, so up to 256 MiB of freed blocks are reused. Thread-safe.
std::shared_ptr<std::byte> allocate_result_memory(size_t bytes);

}  // namespace pumice
