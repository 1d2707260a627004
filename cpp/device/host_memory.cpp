#include "device/host_memory.h"

#include <iterator>

#include "device/context_state.h"

namespace pumice {

// Uses host-cached memory, so that the host can read and write it like any array.
std::shared_ptr<Buffer> allocate_host_memory(std::shared_ptr<Context> context, uint64_t bytes) {
  auto& state = get_usable_state(*context);
  auto buffer = Buffer::create(std::move(context), bytes, Heap::readback);
  if (bytes == 0) return buffer;
  const std::lock_guard lock(state.mutex);
  std::erase_if(state.host_memory, [](const auto& entry) { return entry.second.expired(); });
  state.host_memory[buffer->host_bytes()] = buffer;
  return buffer;
}

BufferRange find_host_buffer(Context& context, std::span<const std::byte> bytes) {
  auto& state = context.state();
  std::shared_ptr<Buffer> buffer;  // released after the lock, which its destructor acquires
  const std::lock_guard lock(state.mutex);
  auto entry = state.host_memory.upper_bound(bytes.data());
  if (entry == state.host_memory.begin()) return {};
  entry = std::prev(entry);
  buffer = entry->second.lock();
  if (!buffer) return {};
  const auto offset = static_cast<uint64_t>(bytes.data() - entry->first);
  if (offset > buffer->bytes() || bytes.size() > buffer->bytes() - offset) return {};
  return {std::move(buffer), offset, bytes.size()};
}

}  // namespace pumice
