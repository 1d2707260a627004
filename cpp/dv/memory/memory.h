// Memory of the dv interface: whole pages that the host maps and commands refer to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/buffer.h"
#include "dv/memory/context.h"

namespace pumice::dv {

// On devices with host-visible memory the mapping is the memory itself. Otherwise it is a copy: sync_start() and to_cpu() update it,
// sync_end() and to_device() publish it. A write sync publishes the whole copy and overwrites concurrent device writes. Thread-safe.
class Memory {
 public:
  // Allocates uninitialized memory. Throws DvError for 0 bytes, OutOfMemoryError.
  static std::shared_ptr<Memory> create(std::shared_ptr<Context> context, uint64_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  // Returns the device's live memory with this handle, or null.
  static std::shared_ptr<Memory> find(pumice::Context& device, uint64_t handle);
  static int64_t total_bytes();  // total size of all memories in the process

  const std::shared_ptr<Context>& context() const { return context_; }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  uint64_t bytes() const { return buffer_->bytes(); }  // size in bytes, a whole number of pages
  uint64_t handle() const { return handle_; }          // never 0, never reused in this process

  // Maps the memory. Returns the same address until unmap(). The contents survive unmap().
  std::byte* map();
  void unmap();  // idempotent; ends the current sync
  bool mapped() const { return mapped_; }
  // Begins host access. Throws DvError (EINVAL) if the memory is not mapped, or if neither read nor write is requested.
  void sync_start(bool read, bool write);
  void sync_end();
  // Synchronize one range immediately. They throw DvError (EINVAL) if the range exceeds the memory, or if the memory is not mapped.
  void to_device(uint64_t offset, uint64_t bytes);
  void to_cpu(uint64_t offset, uint64_t bytes);

  uint64_t device_write_count() const { return publish_count_; }  // incremented whenever new bytes may have become visible to the device
  // Lists call announce_device_write() before submitting work that writes these bytes, and record_device_write() after.
  void announce_device_write(uint64_t offset, uint64_t count);
  void record_device_write() { is_stale_ = true; }
  // Returns a counter that increases with every announced device write to any of these bytes; 0 before the first.
  uint64_t get_device_write_count(uint64_t offset, uint64_t count) const;
  // Returns whether the published bytes at that offset equal `expected`.
  bool equals(uint64_t offset, std::span<const std::byte> expected) const;
  std::vector<std::byte> read(uint64_t offset, uint64_t bytes) const;  // downloads bytes of the device memory

 private:
  struct LiveMemories;
  Memory() = default;
  bool needs_copy() const;
  std::byte* host_bytes() const;
  bool begin_transfer(uint64_t offset, uint64_t bytes) const;
  void finish_sync();

  std::shared_ptr<Context> context_;
  std::shared_ptr<Buffer> buffer_;
  uint64_t handle_ = 0;
  std::shared_ptr<LiveMemories> handles_;                               // outlives the device, which may be closed first
  std::unique_ptr<std::byte, void (*)(void*)> copy_{nullptr, nullptr};  // null if the buffer is host-visible
  std::atomic<bool> mapped_{false}, is_stale_{false};                   // is_stale_: the device has written since the copy was updated
  bool reading_ = false, writing_ = false;
  std::atomic<uint64_t> publish_count_{0};
  mutable std::mutex mutex_;  // guards the mapping and the copy

  // A range written by the device, with the index of its last write.
  struct DeviceWrite {
    uint64_t begin, end, number;
  };
  mutable std::mutex writes_mutex_;  // guards the members below
  std::vector<DeviceWrite> writes_;
  uint64_t last_write_ = 0;
};

// A memory and an offset in it, as named by a command; null if unset.
struct MemoryAddress {
  std::shared_ptr<Memory> memory;
  uint64_t offset = 0;
};

// A range that a command reads or writes.
struct MemoryRange {
  std::shared_ptr<Memory> memory;
  uint64_t offset = 0, bytes = 0;

  MemoryRange(std::shared_ptr<Memory> owner, uint64_t first, uint64_t count) : memory(std::move(owner)), offset(first), bytes(count) {}
  MemoryRange(const MemoryAddress& address, uint64_t count) : MemoryRange(address.memory, address.offset, count) {}
  // `stride`: bytes between row starts; if negative, rows go to lower addresses.
  MemoryRange(const MemoryAddress& address, uint64_t row_bytes, uint64_t rows, int64_t stride);
  bool overlaps(const MemoryRange& other) const {
    return memory == other.memory && offset < other.offset + other.bytes && other.offset < offset + bytes;
  }
};

}  // namespace pumice::dv
