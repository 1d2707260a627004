// Device buffers, and transfers between host and device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/parallel_copy.h"
#include "device/context.h"
#include "device/heap.h"

struct VkBuffer_T;

namespace pumice {

class Buffer : public std::enable_shared_from_this<Buffer> {
 public:
  // Allocates a buffer with undefined content. Zero bytes is legal and allocates nothing. Throws OutOfMemoryError.
  static std::shared_ptr<Buffer> create(std::shared_ptr<Context> context, uint64_t bytes, Heap heap = Heap::default_);
  // Imports host memory as a buffer without a copy: `bytes` bytes at `address`, which must be a multiple of
  // limit("minImportedHostPointerAlignment"). The host must be able to write to all of its pages. `owner` keeps the memory alive until the
  // work in flight at close() has finished. Throws UnsupportedError naming the missing extension or the required alignment.
  static std::shared_ptr<Buffer> import_host(std::shared_ptr<Context> context, std::byte* address, uint64_t bytes,
                                             std::shared_ptr<const void> owner);
  // Allocates dedicated device memory that another API on the same GPU (e.g. CUDA) can import by file descriptor. Throws UnsupportedError
  // if the extension or the driver's support for exporting is missing, or OutOfMemoryError.
  static std::shared_ptr<Buffer> create_shared(std::shared_ptr<Context> context, uint64_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;

  // Closes the buffer. Idempotent; memory is freed once the work in flight has finished. Throws StateError while a view of the mapped bytes
  // is alive.
  void close();
  // Keeps the memory and the handle valid: a concurrent close() on another thread takes effect when the last UseGuard is destroyed.
  struct UseDeleter {
    void operator()(const Buffer* buffer) const { buffer->end_use(); }
  };
  using UseGuard = std::unique_ptr<const Buffer, UseDeleter>;
  UseGuard acquire() const;  // throws StateError if the buffer is closed
  bool closed() const;
  const std::shared_ptr<Context>& context() const { return context_; }
  uint64_t bytes() const { return bytes_; }
  Heap heap() const { return heap_; }
  uint64_t id() const { return id_; }  // never reused in this process

  bool mappable() const;                                    // true for upload and readback; for default only with unified memory
  StoreMode store_mode() const;                             // fastest store mode for host writes to a mappable buffer
  std::byte* map();                                         // maps the whole buffer; repeated calls return the same pointer
  std::byte* host_bytes() const;                            // like map(), without marking the buffer as mapped
  void unmap();                                             // idempotent; ends the current sync
  void adjust_view_count(int change) { views_ += change; }  // adjusts the number of live views of the mapped bytes
  int view_count() const { return views_; }
  bool mapped() const;
  void sync_start(bool read, bool write, const InterruptCallback& interrupted = {});  // begins host access; throws StateError if not mapped
  void sync_end();

  // A shared buffer as seen by the other API: its address and that API's device index.
  struct Mapping {
    uint64_t address = 0;
    int device = 0;
  };
  int export_memory() const;         // returns a new file descriptor, owned by the caller; throws StateError if the buffer is not shared
  uint64_t allocated_bytes() const;  // allocation size of a shared buffer, which the importer must pass
  // Records the other API's mapping, once. `owner` keeps the import alive until the work in flight at close() has finished.
  void set_mapping(const Mapping& mapping, std::shared_ptr<const void> owner);
  const std::optional<Mapping>& mapping() const;

  // Id of the underlying memory, for hazard tracking: buffers that alias return the same id, and their ranges overlap.
  uint64_t memory() const;
  uint64_t memory_offset() const;
  VkBuffer_T* handle() const;

 private:
  Buffer() = default;
  void end_use() const;
  std::shared_ptr<Context> context_;
  uint64_t bytes_ = 0, id_ = 0;
  Heap heap_ = Heap::default_;
  std::atomic<int> views_{0};
  struct State;
  std::unique_ptr<State> state_;
};

// A range of a buffer. A non-null buffer with bytes == 0 means "no bytes", a null buffer "no binding".
struct BufferRange {
  std::shared_ptr<Buffer> buffer;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Returns the range of a shared buffer of the context that contains this address of the other API, or a null buffer.
BufferRange find_shared_buffer(Context& context, uint64_t address);

std::string to_string(const BufferRange& range);  // "256 bytes at offset 64 of buffer 7", as the caller specified it

// A region of a buffer to transfer, in bytes.
struct BufferRegion {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Copy host bytes to and from mapped device memory, with several threads if large. No work in flight may use `mapped`. `store`: the
// buffer's store_mode(). Use upload() and download() unless the buffer is known to be idle.
void copy_to_mapped(std::byte* mapped, std::span<const std::byte> source, StoreMode store = StoreMode::cached);
void copy_from_mapped(const std::byte* mapped, std::span<std::byte> target);

// Uploads consecutive host bytes to regions of a buffer. Blocks until the source may be reused. Runs after work already submitted.
// `interrupted` is called while waiting, like in Context::wait, and may throw; bytes copied so far remain.
void upload(const BufferRange& target, std::span<const std::byte> source, const InterruptCallback& interrupted = {});
void upload(const std::shared_ptr<Buffer>& target, std::span<const BufferRegion> regions, std::span<const std::byte> source,
            const InterruptCallback& interrupted = {});
// Downloads regions of a buffer to consecutive host bytes; waits for work already submitted.
void download(const BufferRange& source, std::span<std::byte> target, const InterruptCallback& interrupted = {});
void download(const std::shared_ptr<Buffer>& source, std::span<const BufferRegion> regions, std::span<std::byte> target,
              const InterruptCallback& interrupted = {});
// Copies consecutive bytes of a range to regions of another buffer of the context, on the device.
void copy(const BufferRange& source, const std::shared_ptr<Buffer>& target, std::span<const BufferRegion> regions,
          const InterruptCallback& interrupted = {});
// Fills a range with a repeated 32-bit word on the device. The range must be a multiple of 4 bytes.
void fill(const BufferRange& target, uint32_t word, const InterruptCallback& interrupted = {});

}  // namespace pumice
