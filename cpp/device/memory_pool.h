// Device memory sub-allocator, for .cpp files of the device layer only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/driver/vulkan.h"

namespace pumice {

// A device allocation, persistently mapped if host-visible, with its free ranges.
struct MemoryBlock {
  VkDeviceMemory memory = VK_NULL_HANDLE;
  uint64_t id = 0;
  uint64_t bytes = 0;
  uint64_t used = 0;
  uint32_t type = 0;
  std::byte* mapped = nullptr;
  bool imported = false;              // imported host memory; freed with its only allocation
  bool shared = false;                // exported to another API; freed with its only allocation
  std::map<uint64_t, uint64_t> free;  // offset -> bytes; adjacent ranges are merged
};

// A sub-allocation: a byte range of a memory block.
struct Allocation {
  MemoryBlock* block = nullptr;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Allocates first-fit from blocks of growing size, separately per memory type. A request larger than half a block gets a dedicated block.
// Thread-safe.
class MemoryPool {
 public:
  explicit MemoryPool(DeviceTable& vk) : vk_(vk) {}
  ~MemoryPool();
  // Throws OutOfMemoryError naming the requested bytes, the memory type, and the heap's size and usage.
  Allocation allocate(const VkMemoryRequirements& requirements, uint32_t type, const char* purpose);
  // Imports host memory as a dedicated block of a host-coherent type. Throws UnsupportedError if the driver rejects it.
  Allocation import_host(std::byte* address, const VkMemoryRequirements& requirements);
  // Allocates dedicated memory for a buffer that other APIs can import by file descriptor. Throws OutOfMemoryError.
  Allocation allocate_shared(const VkMemoryRequirements& requirements, uint32_t type, VkBuffer buffer);
  void release(const Allocation& allocation);
  uint64_t block_count() const;
  uint64_t block_bytes() const;

 private:
  uint32_t find_host_memory_type(std::byte* address, uint32_t allowed);
  // Allocates a block. Runs without the lock, because drivers are slow to allocate large blocks; nothing else refers to the block yet.
  // `next`: pNext chain of the allocation; such memory is not mapped.
  std::unique_ptr<MemoryBlock> allocate_block(uint64_t bytes, uint32_t type, const char* purpose, const void* next = nullptr) const;
  void free_block(MemoryBlock& block);

  DeviceTable& vk_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<MemoryBlock>> blocks_;
};

}  // namespace pumice
