// Device memory in blocks, sub-allocated; for the device layer's .cpp files only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/driver/vulkan.h"

namespace pumice {

// One device allocation, kept mapped where the host can see it, and its free ranges by offset.
struct MemoryBlock {
  VkDeviceMemory memory = VK_NULL_HANDLE;
  uint64_t id = 0;
  uint64_t bytes = 0;
  uint64_t used = 0;
  uint32_t type = 0;
  std::byte* mapped = nullptr;
  bool imported = false;              // host memory of others: gone with its one range
  bool shared = false;                // exported for another interface: gone with its one range
  std::map<uint64_t, uint64_t> free;  // offset -> bytes; neighbours are always merged
};

// A range of one block.
struct Allocation {
  MemoryBlock* block = nullptr;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// First fit in blocks of growing size per memory type; a request over half a block gets a block of its own. Thread-safe.
class MemoryPool {
 public:
  explicit MemoryPool(DeviceTable& vk) : vk_(vk) {}
  ~MemoryPool();
  // Throws OutOfMemoryError saying how many bytes of which memory type, and the heap's size and use.
  Allocation allocate(const VkMemoryRequirements& requirements, uint32_t type, const char* purpose);
  // Host memory as a block of its own, of a type that the host sees coherently. Throws UnsupportedError where the driver refuses it.
  Allocation import_host(std::byte* address, const VkMemoryRequirements& requirements);
  // Memory of one buffer that other interfaces can import by a file descriptor. Throws OutOfMemoryError.
  Allocation allocate_shared(const VkMemoryRequirements& requirements, uint32_t type, VkBuffer buffer);
  void release(const Allocation& allocation);
  uint64_t block_count() const;
  uint64_t block_bytes() const;

 private:
  uint32_t host_type(std::byte* address, uint32_t allowed);
  // Allocates a block. Nobody else knows it yet, so the lock is not needed, and not held: drivers take a while for much memory.
  // `next`: further structures of the allocation; memory with them is not mapped.
  std::unique_ptr<MemoryBlock> make_block(uint64_t bytes, uint32_t type, const char* purpose, const void* next = nullptr) const;
  void drop_block(MemoryBlock& block);

  DeviceTable& vk_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<MemoryBlock>> blocks_;
};

}  // namespace pumice
