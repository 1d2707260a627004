#include "device/memory_pool.h"

#include <algorithm>
#include <atomic>

#include "core/error.h"

namespace pumice {
namespace {

// A new block is as large as all earlier blocks of its memory type together, within these bounds: small contexts stay small, and large
// ones need few allocations.
constexpr uint64_t kMinBlock = uint64_t{4} << 20;
constexpr uint64_t kMaxBlock = uint64_t{256} << 20;
// Empty blocks larger than this are freed immediately. Blocks of host memory with several allocations are not larger, so that they are
// kept: each transfer allocates staging memory, and pinning pages is slow.
constexpr uint64_t kMaxKeptBlock = uint64_t{64} << 20;

uint64_t next_block_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

// All imported host memory has the same id, because the same bytes may be imported twice.
uint64_t get_imported_memory_id() {
  static const uint64_t id = next_block_id();
  return id;
}

uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// Takes an aligned range from the block's free list; returns false if none is large enough.
bool allocate_range(MemoryBlock& block, uint64_t bytes, uint64_t alignment, uint64_t& offset) {
  for (auto range = block.free.begin(); range != block.free.end(); ++range) {
    const auto [begin, size] = *range;
    const uint64_t aligned = align_up(begin, alignment);
    if (aligned + bytes > begin + size) continue;
    block.free.erase(range);
    if (aligned > begin) block.free[begin] = aligned - begin;
    if (begin + size > aligned + bytes) block.free[aligned + bytes] = begin + size - (aligned + bytes);
    block.used += bytes;
    offset = aligned;
    return true;
  }
  return false;
}

void free_range(MemoryBlock& block, uint64_t offset, uint64_t bytes) {
  block.used -= bytes;
  auto inserted = block.free.emplace(offset, bytes).first;
  if (auto next = std::next(inserted); next != block.free.end() && inserted->first + inserted->second == next->first) {
    inserted->second += next->second;
    block.free.erase(next);
  }
  if (inserted == block.free.begin()) return;
  auto previous = std::prev(inserted);
  if (previous->first + previous->second != inserted->first) return;
  previous->second += inserted->second;
  block.free.erase(inserted);
}

}  // namespace

MemoryPool::~MemoryPool() {
  for (auto& block : blocks_) vk_.vkFreeMemory(vk_.device, block->memory, nullptr);
}

Allocation MemoryPool::allocate(const VkMemoryRequirements& requirements, uint32_t type, const char* purpose) {
  std::unique_lock lock(mutex_);
  uint64_t offset = 0, total = 0;
  for (auto& block : blocks_) {
    if (block->type != type || block->imported || block->shared) continue;
    total += block->bytes;
    if (allocate_range(*block, requirements.size, requirements.alignment, offset)) return {block.get(), offset, requirements.size};
  }
  const bool is_local = vk_.memory.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  const uint64_t target_bytes = std::clamp(total, kMinBlock, is_local ? kMaxBlock : kMaxKeptBlock);
  lock.unlock();  // allocating a large block is slow; other threads can proceed meanwhile
  auto new_block = allocate_block(requirements.size > target_bytes / 2 ? requirements.size : target_bytes, type, purpose);
  MemoryBlock& block = *new_block;
  if (!allocate_range(block, requirements.size, requirements.alignment, offset))
    throw Error("a new memory block is too small for its first range");
  lock.lock();
  blocks_.push_back(std::move(new_block));
  return {&block, offset, requirements.size};
}

std::unique_ptr<MemoryBlock> MemoryPool::allocate_block(uint64_t bytes, uint32_t type, const char* purpose, const void* next) const {
  VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
  info.pNext = next;
  info.allocationSize = bytes;
  info.memoryTypeIndex = type;
  const auto& memory_type = vk_.memory.memoryTypes[type];
  const uint64_t heap_bytes = vk_.memory.memoryHeaps[memory_type.heapIndex].size;
  auto block = std::make_unique<MemoryBlock>();
  const VkResult result =
      bytes > heap_bytes ? VK_ERROR_OUT_OF_DEVICE_MEMORY : vk_.vkAllocateMemory(vk_.device, &info, nullptr, &block->memory);
  if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY)
    throw OutOfMemoryError("out of device memory: " + std::to_string(bytes) + " bytes for " + purpose + " do not fit; the heap has " +
                           std::to_string(heap_bytes) + " bytes and this context holds " + std::to_string(block_bytes()));
  check_vk_result(result, "vkAllocateMemory");
  block->id = next_block_id();
  block->bytes = bytes;
  block->type = type;
  block->free[0] = bytes;
  if (!next && memory_type.propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) {
    void* mapped = nullptr;
    const VkResult map_result = vk_.vkMapMemory(vk_.device, block->memory, 0, VK_WHOLE_SIZE, 0, &mapped);
    if (map_result != VK_SUCCESS) vk_.vkFreeMemory(vk_.device, block->memory, nullptr);
    check_vk_result(map_result, "vkMapMemory");
    block->mapped = static_cast<std::byte*>(mapped);
  }
  return block;
}

uint32_t MemoryPool::find_host_memory_type(std::byte* address, uint32_t allowed) {
  VkMemoryHostPointerPropertiesEXT properties{VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
  const VkResult result =
      vk_.vkGetMemoryHostPointerPropertiesEXT(vk_.device, VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, address, &properties);
  constexpr VkMemoryPropertyFlags kHost = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  for (uint32_t i = 0; result == VK_SUCCESS && i < vk_.memory.memoryTypeCount; ++i)
    if ((properties.memoryTypeBits & allowed) >> i & 1 && (vk_.memory.memoryTypes[i].propertyFlags & kHost) == kHost) return i;
  throw UnsupportedError("host memory without a copy: vkGetMemoryHostPointerPropertiesEXT returned " + get_vk_result_name(result) +
                         ", and no coherent memory type for it");
}

Allocation MemoryPool::import_host(std::byte* address, const VkMemoryRequirements& requirements) {
  VkImportMemoryHostPointerInfoEXT import{VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT};
  import.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  import.pHostPointer = address;
  VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
  info.pNext = &import;
  info.allocationSize = requirements.size;
  info.memoryTypeIndex = find_host_memory_type(address, requirements.memoryTypeBits);
  auto block = std::make_unique<MemoryBlock>();
  const VkResult result = vk_.vkAllocateMemory(vk_.device, &info, nullptr, &block->memory);
  if (result != VK_SUCCESS)
    throw UnsupportedError("host memory without a copy: vkAllocateMemory of " + std::to_string(requirements.size) + " bytes returned " +
                           get_vk_result_name(result));
  block->id = get_imported_memory_id();
  block->bytes = block->used = requirements.size;
  block->type = info.memoryTypeIndex;
  block->mapped = address;
  block->imported = true;
  const std::lock_guard lock(mutex_);
  blocks_.push_back(std::move(block));
  return {blocks_.back().get(), 0, requirements.size};
}

Allocation MemoryPool::allocate_shared(const VkMemoryRequirements& requirements, uint32_t type, VkBuffer buffer) {
  VkMemoryDedicatedAllocateInfo dedicated{VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO};
  dedicated.buffer = buffer;
  VkExportMemoryAllocateInfo exported{VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO};
  exported.pNext = &dedicated;
  exported.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
  auto new_block = allocate_block(requirements.size, type, "a buffer that another interface shares", &exported);
  new_block->shared = true;
  new_block->used = requirements.size;
  const std::lock_guard lock(mutex_);
  blocks_.push_back(std::move(new_block));
  return {blocks_.back().get(), 0, requirements.size};
}

void MemoryPool::release(const Allocation& allocation) {
  const std::lock_guard lock(mutex_);
  if (allocation.block->imported || allocation.block->shared) return free_block(*allocation.block);
  free_range(*allocation.block, allocation.offset, allocation.bytes);
  if (allocation.block->used != 0) return;
  if (allocation.block->bytes > kMaxKeptBlock) return free_block(*allocation.block);
  // Keeps the largest empty block per type, so that create/destroy loops do not allocate device memory each time.
  const auto another = std::ranges::find_if(blocks_, [&](const auto& block) {
    return block.get() != allocation.block && block->used == 0 && block->type == allocation.block->type;
  });
  if (another != blocks_.end()) free_block((*another)->bytes < allocation.block->bytes ? **another : *allocation.block);
}

void MemoryPool::free_block(MemoryBlock& block) {
  vk_.vkFreeMemory(vk_.device, block.memory, nullptr);
  std::erase_if(blocks_, [&](const auto& other) { return other.get() == &block; });
}

uint64_t MemoryPool::block_count() const {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

uint64_t MemoryPool::block_bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& block : blocks_) bytes += block->bytes;
  return bytes;
}

}  // namespace pumice
