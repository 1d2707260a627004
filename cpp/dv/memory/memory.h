// Memory of the dv interface: whole pages that the host maps and commands name.
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

// Where the device's memory is the host's too the mapping is that memory itself; elsewhere it is a copy, which sync_start() and to_cpu()
// bring up to date and sync_end() and to_device() publish: the whole of it, so that what the device writes during a sync for writing is
// lost. Thread-safe.
class Memory {
 public:
  // Allocates memory; its content is undefined. Refusal of 0 bytes; OutOfMemoryError.
  static std::shared_ptr<Memory> create(std::shared_ptr<Context> context, uint64_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  // The live memory of a device that has this handle, or null.
  static std::shared_ptr<Memory> find(pumice::Context& device, uint64_t handle);
  static int64_t total_bytes();  // bytes of all memories in the process

  const std::shared_ptr<Context>& context() const { return context_; }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  uint64_t bytes() const { return buffer_->bytes(); }  // whole pages
  uint64_t handle() const { return handle_; }          // never 0, never reused in this process

  // Maps the memory: the same address until unmap(), however often it is asked for. The content outlives unmap().
  std::byte* map();
  void unmap();  // idempotent; ends a sync
  bool mapped() const { return mapped_; }
  // Begins access by the host. Refusals (EINVAL): not mapped, neither read nor write.
  void sync_start(bool read, bool write);
  void sync_end();
  // Brings one range up to date at once, to the host or to the device. Refusals (EINVAL): past the end, not mapped.
  void to_device(uint64_t offset, uint64_t bytes);
  void to_cpu(uint64_t offset, uint64_t bytes);

  uint64_t published() const { return published_; }  // grows with all that may show the device new bytes
  // Lists call announce_device_write() before they submit work that writes these bytes, and note_device_write() once it is submitted.
  void announce_device_write(uint64_t offset, uint64_t count);
  void note_device_write() { is_stale_ = true; }
  // Grows with every write of the device that was announced for any of these bytes; 0 before the first.
  uint64_t device_writes(uint64_t offset, uint64_t count) const;
  // Whether the bytes at that place, which were published, equal these.
  bool holds(uint64_t offset, std::span<const std::byte> expected) const;
  std::vector<std::byte> read(uint64_t offset, uint64_t bytes) const;  // as the device sees them

 private:
  struct Handles;
  Memory() = default;
  bool is_copied() const;
  std::byte* host_bytes() const;
  bool begin_transfer(uint64_t offset, uint64_t bytes) const;
  void end_sync();

  std::shared_ptr<Context> context_;
  std::shared_ptr<Buffer> buffer_;
  uint64_t handle_ = 0;
  std::shared_ptr<Handles> handles_;                                    // kept, as the device may be closed before
  std::unique_ptr<std::byte, void (*)(void*)> copy_{nullptr, nullptr};  // null where the host sees the buffer
  std::atomic<bool> mapped_{false}, is_stale_{false};                   // the copy lacks what the device wrote
  bool reading_ = false, writing_ = false;
  std::atomic<uint64_t> published_{0};
  mutable std::mutex mutex_;  // guards the mapping and the copy

  // Bytes that the device wrote, with the number of the last write.
  struct DeviceWrite {
    uint64_t begin, end, number;
  };
  mutable std::mutex writes_mutex_;  // guards what follows
  std::vector<DeviceWrite> writes_;
  uint64_t last_write_ = 0;
};

// A place in a memory that a command names; no memory: none.
struct MemoryPlace {
  std::shared_ptr<Memory> memory;
  uint64_t offset = 0;
};

// Bytes that a command reads or writes.
struct MemoryRange {
  std::shared_ptr<Memory> memory;
  uint64_t offset = 0, bytes = 0;

  MemoryRange(std::shared_ptr<Memory> of, uint64_t first, uint64_t count) : memory(std::move(of)), offset(first), bytes(count) {}
  MemoryRange(const MemoryPlace& place, uint64_t count) : MemoryRange(place.memory, place.offset, count) {}
  // Rows, `stride` bytes from the beginning of one to that of the next: a negative one leads to lower addresses.
  MemoryRange(const MemoryPlace& place, uint64_t row_bytes, uint64_t rows, int64_t stride);
  bool overlaps(const MemoryRange& other) const {
    return memory == other.memory && offset < other.offset + other.bytes && other.offset < offset + bytes;
  }
};

}  // namespace pumice::dv
