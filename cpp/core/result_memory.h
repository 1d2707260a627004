// Memory for large results on the host, kept for the next ones when it is dropped.
#pragma once

#include <cstddef>
#include <memory>

namespace pumice {

inline constexpr size_t kLeastResultMemory = size_t{4} << 20;  // fewer bytes come from the allocator as quickly

// Memory of undefined content for at least so many bytes; null where the system has none. The system takes longer to find new pages than a
// copy into them takes: what is dropped is kept, up to 256 MiB in all, and given out again. Thread-safe.
std::shared_ptr<std::byte> result_memory(size_t bytes);

}  // namespace pumice
