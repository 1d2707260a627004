#include "device/buffer.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>

#include "core/error.h"
#include "device/context_state.h"

namespace pumice {

// Vulkan handle and host mapping of a buffer.
struct Buffer::State {
  VkBuffer buffer = VK_NULL_HANDLE;
  Allocation allocation;
  std::shared_ptr<const void> owner;  // keeps imported host memory or the other API's import alive
  std::optional<Mapping> mapping;     // set only for shared buffers
  std::atomic<bool> closed{true};     // false after construction
  std::atomic<uint32_t> uses{0};      // the buffer itself holds one use until it is closed
  bool mapped = false, sync_read = false, sync_write = false;

  using Allocate = std::function<Allocation(const VkMemoryRequirements&, VkBuffer)>;
  static std::shared_ptr<Buffer> make_unallocated(std::shared_ptr<Context> context, uint64_t bytes, Heap heap);
  static void allocate_and_bind(Buffer& result, VkBuffer handle, const Allocate& allocate);
  static void finish_construction(Buffer& result);
};

namespace {

uint64_t next_buffer_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

VkBufferUsageFlags get_buffer_usage(const DeviceTable& vk) {
  constexpr VkBufferUsageFlags kAlways = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT |
                                         VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
                                         VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT;
  return vk.has_conditional ? kAlways | VK_BUFFER_USAGE_CONDITIONAL_RENDERING_BIT_EXT : kAlways;
}

VkBuffer create_vk_buffer(DeviceTable& vk, uint64_t bytes, Heap heap, const void* next = nullptr) {
  VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
  info.pNext = next;
  info.size = bytes;
  info.usage = get_buffer_usage(vk);
  VkBuffer handle = VK_NULL_HANDLE;
  const VkResult result = vk.vkCreateBuffer(vk.device, &info, nullptr, &handle);
  if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY)
    throw OutOfMemoryError("a buffer of " + std::to_string(bytes) + " bytes in the heap '" + std::string(name(heap)) +
                           "' is larger than the driver supports");
  check_vk_result(result, "vkCreateBuffer");
  return handle;
}

constexpr uint64_t kMaxBufferBytes = uint64_t{1} << 50;  // larger than any device's memory
constexpr uint64_t kSizeAlignment = 16;                  // a vec4 load may read up to 16 bytes, and tensors never share a 32-bit word

}  // namespace

// Creates a buffer without memory.
std::shared_ptr<Buffer> Buffer::State::make_unallocated(std::shared_ptr<Context> context, uint64_t bytes, Heap heap) {
  std::shared_ptr<Buffer> result(new Buffer);
  result->context_ = std::move(context);
  result->bytes_ = bytes;
  result->heap_ = heap;
  result->id_ = next_buffer_id();
  result->state_ = std::make_unique<State>();
  return result;
}

// Sets the handle and binds memory from `allocate` to it. On failure, frees the handle and the memory.
void Buffer::State::allocate_and_bind(Buffer& result, VkBuffer handle, const Allocate& allocate) {
  auto& owner = get_usable_state(*result.context_);
  auto& vk = *owner.vk;
  State& state = *result.state_;
  state.buffer = handle;
  try {
    VkMemoryRequirements requirements;
    vk.vkGetBufferMemoryRequirements(vk.device, handle, &requirements);
    state.allocation = allocate(requirements, handle);
    owner.check_device_result(vk.vkBindBufferMemory(vk.device, handle, state.allocation.block->memory, state.allocation.offset),
                              "vkBindBufferMemory");
  } catch (...) {
    vk.vkDestroyBuffer(vk.device, handle, nullptr);
    if (state.allocation.block) owner.memory->release(state.allocation);
    throw;
  }
}

// Completes construction and adds the buffer to the context's counts.
void Buffer::State::finish_construction(Buffer& result) {
  auto& owner = get_usable_state(*result.context_);
  result.state_->uses = 1;
  result.state_->closed = false;
  ++owner.live_buffers;
  owner.live_buffer_bytes += result.bytes_;
}

std::shared_ptr<Buffer> Buffer::create(std::shared_ptr<Context> context, uint64_t bytes, Heap heap) {
  auto& owner = get_usable_state(*context);
  auto result = State::make_unallocated(std::move(context), bytes, heap);
  if (bytes > 0) {
    const auto& limits = result->context_->info().limits;  // Vulkan 1.2 devices do not report maxBufferSize
    const auto max_size = limits.find("maxBufferSize");
    const uint64_t max_bytes = std::min(max_size == limits.end() ? kMaxBufferBytes : max_size->second, kMaxBufferBytes);
    if (bytes > max_bytes)
      throw OutOfMemoryError("a buffer of " + std::to_string(bytes) + " bytes in the heap '" + std::string(pumice::name(heap)) +
                             "': this device supports buffers of at most " + std::to_string(max_bytes) + " bytes");
    const VkBuffer handle = create_vk_buffer(*owner.vk, (bytes + kSizeAlignment - 1) / kSizeAlignment * kSizeAlignment, heap);
    State::allocate_and_bind(*result, handle, [&](const VkMemoryRequirements& requirements, VkBuffer) {
      const std::string purpose = "a buffer of the heap '" + std::string(pumice::name(heap)) + "'";
      return owner.memory->allocate(requirements, owner.choose_memory_type(heap, requirements.memoryTypeBits), purpose.c_str());
    });
  }
  State::finish_construction(*result);
  return result;
}

namespace {

// Returns the page size for importing host memory. Throws UnsupportedError if the device cannot import this range.
uint64_t check_import_range(const DeviceInfo& info, const std::byte* address, uint64_t bytes) {
  if (!info.extensions.contains(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME))
    throw UnsupportedError("host memory without a copy: '" + info.name + "' has no " + VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
  const uint64_t page = info.limit("minImportedHostPointerAlignment");
  if (const uint64_t past = reinterpret_cast<uintptr_t>(address) % page; past || bytes == 0 || bytes % kSizeAlignment)
    throw UnsupportedError("host memory without a copy: expected it to begin at a multiple of " + std::to_string(page) +
                           " bytes and to be a multiple of " + std::to_string(kSizeAlignment) + " bytes long; given " +
                           std::to_string(bytes) + " bytes, " + std::to_string(past) + " past such a multiple");
  return page;
}

}  // namespace

std::shared_ptr<Buffer> Buffer::import_host(std::shared_ptr<Context> context, std::byte* address, uint64_t bytes,
                                            std::shared_ptr<const void> memory_owner) {
  auto& owner = get_usable_state(*context);
  const uint64_t page = check_import_range(owner.info, address, bytes), pages = (bytes + page - 1) / page * page;
  auto result = State::make_unallocated(std::move(context), bytes, Heap::default_);
  result->state_->owner = std::move(memory_owner);
  VkExternalMemoryBufferCreateInfo external{VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO};
  external.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  const VkBuffer handle = create_vk_buffer(*owner.vk, pages, Heap::default_, &external);
  State::allocate_and_bind(*result, handle, [&](const VkMemoryRequirements& requirements, VkBuffer) {
    if (requirements.size > pages)
      throw UnsupportedError("host memory without a copy: this driver's buffer of " + std::to_string(pages) + " bytes needs " +
                             std::to_string(requirements.size));
    return owner.memory->import_host(address, requirements);
  });
  State::finish_construction(*result);
  return result;
}

namespace {

constexpr VkExternalMemoryHandleTypeFlagBits kShared = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;

void check_exportable(const ContextState& owner) {
  const std::string error_prefix = "memory shared with another interface: '" + owner.info.name + "' ";
  if (!owner.info.extensions.contains(VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME))
    throw UnsupportedError(error_prefix + "has no " + VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
  VkPhysicalDeviceExternalBufferInfo info{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO};
  info.usage = get_buffer_usage(*owner.vk);
  info.handleType = kShared;
  VkExternalBufferProperties properties{VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES};
  vkGetPhysicalDeviceExternalBufferProperties(owner.vk->physical, &info, &properties);
  if (!(properties.externalMemoryProperties.externalMemoryFeatures & VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT))
    throw UnsupportedError(error_prefix + "cannot export buffer memory as a file descriptor");
}

}  // namespace

std::shared_ptr<Buffer> Buffer::create_shared(std::shared_ptr<Context> context, uint64_t bytes) {
  auto& owner = get_usable_state(*context);
  check_exportable(owner);
  auto result = State::make_unallocated(std::move(context), bytes, Heap::default_);
  VkExternalMemoryBufferCreateInfo external{VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO};
  external.handleTypes = kShared;
  const uint64_t whole = (std::max(bytes, kSizeAlignment) + kSizeAlignment - 1) / kSizeAlignment * kSizeAlignment;
  State::allocate_and_bind(*result, create_vk_buffer(*owner.vk, whole, Heap::default_, &external),
                           [&](const VkMemoryRequirements& requirements, VkBuffer handle) {
                             return owner.memory->allocate_shared(
                                 requirements, owner.choose_memory_type(Heap::default_, requirements.memoryTypeBits), handle);
                           });
  State::finish_construction(*result);
  return result;
}

int Buffer::export_memory() const {
  if (!state_->allocation.block || !state_->allocation.block->shared)
    throw StateError("this Buffer was not created for mapping by another interface");
  const auto used = acquire();
  auto& owner = get_usable_state(*context_);
  VkMemoryGetFdInfoKHR info{VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR};
  info.memory = state_->allocation.block->memory;
  info.handleType = kShared;
  int descriptor = -1;
  owner.check_device_result(owner.vk->vkGetMemoryFdKHR(owner.vk->device, &info, &descriptor), "vkGetMemoryFdKHR");
  return descriptor;
}

uint64_t Buffer::allocated_bytes() const {
  return state_->allocation.bytes;
}

void Buffer::set_mapping(const Mapping& mapping, std::shared_ptr<const void> owner) {
  if (state_->mapping) throw StateError("another interface has already mapped this Buffer");
  auto& context = get_usable_state(*context_);
  state_->mapping = mapping;
  state_->owner = std::move(owner);
  const std::lock_guard lock(context.mutex);
  std::erase_if(context.shared_memory, [](const auto& entry) { return entry.second.expired(); });
  context.shared_memory[mapping.address] = weak_from_this();
}

const std::optional<Buffer::Mapping>& Buffer::mapping() const {
  return state_->mapping;
}

BufferRange find_shared_buffer(Context& context, uint64_t address) {
  auto& state = context.state();
  std::shared_ptr<Buffer> buffer;  // released after the lock, which its destructor acquires
  const std::lock_guard lock(state.mutex);
  auto entry = state.shared_memory.upper_bound(address);
  if (entry == state.shared_memory.begin()) return {};
  entry = std::prev(entry);
  buffer = entry->second.lock();
  const uint64_t offset = address - entry->first;
  if (!buffer || buffer->closed() || offset >= std::max<uint64_t>(buffer->bytes(), 1)) return {};
  return {buffer, offset, buffer->bytes() - offset};
}

Buffer::~Buffer() {
  close();
}

void Buffer::close() {
  if (!state_ || state_->closed) return;
  if (views_ > 0) throw StateError(std::to_string(views_) + " views of this Buffer's mapped bytes are alive; drop them before close()");
  if (state_->closed.exchange(true)) return;
  auto& owner = context_->state();
  --owner.live_buffers;
  owner.live_buffer_bytes -= bytes_;
  end_use();
}

Buffer::UseGuard Buffer::acquire() const {
  uint32_t uses = state_->uses;
  while (!closed() && uses > 0)
    if (state_->uses.compare_exchange_weak(uses, uses + 1)) return UseGuard(this);
  throw StateError("this Buffer is closed", "L1");
}

void Buffer::end_use() const {
  auto& owner = context_->state();
  if (--state_->uses > 0 || owner.is_forked_child() || !state_->buffer) return;
  owner.retire({.buffer = state_->buffer, .allocation = state_->allocation, .owner = std::move(state_->owner)});
}

bool Buffer::closed() const {
  return state_->closed;
}

bool Buffer::mappable() const {
  if (bytes_ == 0) return true;
  const MemoryBlock& block = *state_->allocation.block;
  return block.mapped && (heap_ != Heap::default_ || block.imported || !context_->state().has_separate_memory);
}

StoreMode Buffer::store_mode() const {
  if (bytes_ == 0) return StoreMode::cached;
  if (heap_ == Heap::upload && context_->state().has_separate_memory) return StoreMode::streaming;
  const auto& type = context_->state().vk->memory.memoryTypes[state_->allocation.block->type];
  return type.propertyFlags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT ? StoreMode::cached : StoreMode::streaming;
}

std::byte* Buffer::map() {
  if (closed()) throw StateError("this Buffer is closed", "L1");
  if (!mappable())
    throw StateError("a buffer of the heap '" + std::string(pumice::name(heap_)) +
                     "' cannot be mapped on this device; use an 'upload' or 'readback' buffer and a copy");
  get_usable_state(*context_);
  state_->mapped = true;
  return host_bytes();
}

std::byte* Buffer::host_bytes() const {
  return bytes_ == 0 ? nullptr : state_->allocation.block->mapped + state_->allocation.offset;
}

void Buffer::unmap() {
  sync_end();
  state_->mapped = false;
}

bool Buffer::mapped() const {
  return state_->mapped;
}

// All host-visible heaps are coherent here, so a sync only records which access the host has announced.
void Buffer::sync_start(bool read, bool write, const InterruptCallback& interrupted) {
  if (!state_->mapped) throw StateError("sync_start needs a mapped buffer: call map() first");
  if (!read && !write) throw StateError("sync_start needs read, write or both");
  if (read) context_->wait_idle(interrupted);
  state_->sync_read = read;
  state_->sync_write = write;
}

void Buffer::sync_end() {
  state_->sync_read = state_->sync_write = false;
}

uint64_t Buffer::memory() const {
  return state_->allocation.block ? state_->allocation.block->id : 0;
}
uint64_t Buffer::memory_offset() const {
  const auto* block = state_->allocation.block;
  return block && block->imported ? reinterpret_cast<uintptr_t>(block->mapped) : state_->allocation.offset;
}
VkBuffer_T* Buffer::handle() const {
  return state_->buffer;
}

std::string to_string(const BufferRange& range) {
  if (!range.buffer) return "no buffer";
  return std::to_string(range.bytes) + " bytes at offset " + std::to_string(range.offset) + " of buffer " +
         std::to_string(range.buffer->id());
}

}  // namespace pumice
