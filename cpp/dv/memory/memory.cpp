#include "dv/memory/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "core/rounding.h"
#include "dv/memory/dv_error.h"

namespace pumice::dv {
namespace {

constexpr uint64_t kPage = 4096;
constexpr size_t kMaxTrackedWrites = 64;  // maximum number of ranges tracked per memory

std::atomic<int64_t> total_memory_bytes{0};

uint64_t next_handle() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

}  // namespace

// The live Memory objects of one device, by handle.
struct Memory::LiveMemories {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<Memory>> memories;
};

std::shared_ptr<Memory> Memory::create(std::shared_ptr<Context> context, uint64_t bytes) {
  if (bytes == 0) throw DvError("size", "at least one byte", "0", EINVAL);
  const std::shared_ptr<Memory> new_memory(new Memory);
  new_memory->buffer_ = Buffer::create(context->device(), bytes > UINT64_MAX - kPage ? bytes : round_up(bytes, kPage));
  new_memory->handle_ = next_handle();
  new_memory->context_ = std::move(context);
  total_memory_bytes += static_cast<int64_t>(new_memory->bytes());
  new_memory->handles_ = new_memory->context_->device()->attachment<LiveMemories>();
  const std::lock_guard lock(new_memory->handles_->mutex);
  new_memory->handles_->memories.emplace(new_memory->handle_, new_memory);
  return new_memory;
}

Memory::~Memory() {
  if (!handles_) return;  // construction failed
  total_memory_bytes -= static_cast<int64_t>(bytes());
  const std::lock_guard lock(handles_->mutex);
  handles_->memories.erase(handle_);
}

std::shared_ptr<Memory> Memory::find(pumice::Context& device, uint64_t handle) {
  const auto handles = device.attachment<LiveMemories>();
  const std::lock_guard lock(handles->mutex);
  const auto found = handles->memories.find(handle);
  return found == handles->memories.end() ? nullptr : found->second.lock();
}

int64_t Memory::total_bytes() {
  return total_memory_bytes;
}

bool Memory::needs_copy() const {
  return context_->separate() || !buffer_->mappable();
}

std::byte* Memory::host_bytes() const {
  return needs_copy() ? copy_.get() : buffer_->host_bytes();
}

std::byte* Memory::map() {
  const std::lock_guard lock(mutex_);
  if (mapped_) return host_bytes();
  const auto use = buffer_->acquire();
  if (needs_copy() && !copy_) {
    copy_ = {static_cast<std::byte*>(std::aligned_alloc(kPage, bytes())), std::free};
    if (!copy_) throw OutOfMemoryError("no host memory for the copy of a memory of " + std::to_string(bytes()) + " bytes");
  }
  if (copy_ && is_stale_.exchange(false)) download({buffer_, 0, bytes()}, {copy_.get(), bytes()});
  mapped_ = true;
  return host_bytes();
}

void Memory::unmap() {
  const std::lock_guard lock(mutex_);
  if (!mapped_) return;
  finish_sync();
  mapped_ = false;
  ++publish_count_;
}

void Memory::sync_start(bool read, bool write) {
  const std::lock_guard lock(mutex_);
  if (!mapped_) throw DvError("mem", "a mapped memory: map() first", "one that is not mapped", EINVAL);
  if (!read && !write) throw DvError("rd, wr", "reading, writing or both", "neither", EINVAL);
  if (read <= reading_ && write <= writing_) return;
  finish_sync();
  if (copy_ && is_stale_.exchange(false)) download({buffer_, 0, bytes()}, {copy_.get(), bytes()});
  reading_ = read, writing_ = write;
}

void Memory::sync_end() {
  const std::lock_guard lock(mutex_);
  finish_sync();
}

void Memory::finish_sync() {
  if (writing_) {
    if (copy_) upload({buffer_, 0, bytes()}, {copy_.get(), bytes()});
    ++publish_count_;
  }
  reading_ = writing_ = false;
}

// Checks a range to transfer. Returns false if it is empty.
bool Memory::begin_transfer(uint64_t offset, uint64_t count) const {
  if (offset > bytes() || count > bytes() - offset)
    throw DvError("offs, size", "a range of at most " + std::to_string(bytes()) + " bytes",
                  std::to_string(count) + " bytes at " + std::to_string(offset), EINVAL);
  if (count == 0) return false;
  if (!mapped_) throw DvError("mem", "a mapped memory: map() first", "one that is not mapped", EINVAL);
  return true;
}

void Memory::to_device(uint64_t offset, uint64_t count) {
  const std::lock_guard lock(mutex_);
  if (!begin_transfer(offset, count)) return;
  if (copy_) upload({buffer_, offset, count}, {copy_.get() + offset, count});
  ++publish_count_;
}

void Memory::to_cpu(uint64_t offset, uint64_t count) {
  const std::lock_guard lock(mutex_);
  if (!begin_transfer(offset, count)) return;
  if (copy_) download({buffer_, offset, count}, {copy_.get() + offset, count});
}

void Memory::announce_device_write(uint64_t offset, uint64_t count) {
  if (count == 0) return;
  const std::lock_guard lock(writes_mutex_);
  const DeviceWrite write{offset, offset + count, ++last_write_};
  for (DeviceWrite& existing : writes_)
    if (existing.begin == write.begin && existing.end == write.end) return void(existing = write);
  writes_.push_back(write);
  if (writes_.size() <= kMaxTrackedWrites) return;
  // Merging all ranges is conservative: it can only cause an unnecessary check of weights.
  DeviceWrite all = write;
  for (const DeviceWrite& existing : writes_) all.begin = std::min(all.begin, existing.begin), all.end = std::max(all.end, existing.end);
  writes_ = {all};
}

uint64_t Memory::get_device_write_count(uint64_t offset, uint64_t count) const {
  const std::lock_guard lock(writes_mutex_);
  uint64_t last = 0;
  for (const DeviceWrite& write : writes_)
    if (write.begin < offset + count && offset < write.end) last = std::max(last, write.number);
  return last;
}

MemoryRange::MemoryRange(const MemoryAddress& address, uint64_t row_bytes, uint64_t rows, int64_t stride) : memory(address.memory) {
  const int64_t last = static_cast<int64_t>(rows - 1) * stride;
  offset = address.offset - static_cast<uint64_t>(std::max<int64_t>(-last, 0));
  bytes = static_cast<uint64_t>(std::abs(last)) + row_bytes;
}

bool Memory::equals(uint64_t offset, std::span<const std::byte> expected) const {
  const std::lock_guard lock(mutex_);
  return std::memcmp(host_bytes() + offset, expected.data(), expected.size()) == 0;
}

std::vector<std::byte> Memory::read(uint64_t offset, uint64_t count) const {
  std::vector<std::byte> result(count);
  download({buffer_, offset, count}, result);
  return result;
}

}  // namespace pumice::dv
