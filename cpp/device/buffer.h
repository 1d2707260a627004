// A byte range of device memory, and the two functions that move host bytes to and from the device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/shared_copy.h"
#include "device/context.h"
#include "device/heap.h"

struct VkBuffer_T;

namespace pumice {

class Buffer : public std::enable_shared_from_this<Buffer> {
 public:
  // Allocates a buffer; its content is undefined. Zero bytes is legal: no memory is taken. Throws OutOfMemoryError.
  static std::shared_ptr<Buffer> create(std::shared_ptr<Context> context, uint64_t bytes, Heap heap = Heap::default_);
  // Makes a buffer of host memory itself, without a copy: `bytes` from `address` on, which begins a page of
  // limit("minImportedHostPointerAlignment"). The host may write all of the pages. `owner` keeps it until the work in flight at close() has
  // finished. Throws UnsupportedError naming what is missing (the extension, the alignment).
  static std::shared_ptr<Buffer> import_host(std::shared_ptr<Context> context, std::byte* address, uint64_t bytes,
                                             std::shared_ptr<const void> owner);
  // Makes a buffer of device memory that another interface of the same GPU can import by a file descriptor, in an allocation of its own.
  // Throws UnsupportedError naming what is missing (the extension, the driver's export), OutOfMemoryError.
  static std::shared_ptr<Buffer> create_shared(std::shared_ptr<Context> context, uint64_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;

  // Closes the buffer. Idempotent; the memory is freed when the work in flight has finished. Throws StateError while a view of the mapped
  // bytes is alive.
  void close();
  // Host code that works with the memory or the handle holds a Use: a close() by another thread meanwhile frees them at its end.
  struct EndUse {
    void operator()(const Buffer* buffer) const { buffer->end_use(); }
  };
  using Use = std::unique_ptr<const Buffer, EndUse>;
  Use use() const;  // StateError where the buffer is closed
  bool closed() const;
  const std::shared_ptr<Context>& context() const { return context_; }
  uint64_t bytes() const { return bytes_; }
  Heap heap() const { return heap_; }
  uint64_t id() const { return id_; }  // never reused in this process

  bool mappable() const;                             // upload and readback always; default where the device's memory is unified
  Store store() const;                               // how the host writes the memory fast; of a buffer that is mappable
  std::byte* map();                                  // whole buffer; a repeated call gives the same pointer
  std::byte* host_bytes() const;                     // the pointer of map(), without marking the buffer as mapped
  void unmap();                                      // idempotent; ends a sync
  void count_view(int change) { views_ += change; }  // views of the mapped bytes that others have
  int views() const { return views_; }
  bool mapped() const;
  void sync_start(bool read, bool write, const Interrupted& interrupted = {});  // marks host access; StateError where not mapped
  void sync_end();

  // A shared buffer's memory as the other interface sees it: its address there and that interface's number of the device.
  struct Mapping {
    uint64_t address = 0;
    int device = 0;
  };
  int export_memory() const;         // a new file descriptor, which the caller owns. StateError where the buffer is not shared
  uint64_t allocated_bytes() const;  // bytes of the allocation of a shared buffer, which an import has to state
  // Notes where the other interface has the memory, once. `owner` keeps that import until the work in flight at close() has finished.
  void set_mapping(const Mapping& mapping, std::shared_ptr<const void> owner);
  const std::optional<Mapping>& mapping() const;

  // Identity of the memory below, for hazards: buffers that share memory have the same memory() and overlapping ranges.
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

// A part of a buffer; bytes == 0 with a buffer means "no bytes", a null buffer "no binding".
struct BufferRange {
  std::shared_ptr<Buffer> buffer;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// The range of a shared buffer of the context that the other interface knows by this address; no buffer where it is in none.
BufferRange shared_memory_at(Context& context, uint64_t address);

std::string to_string(const BufferRange& range);  // "256 bytes at offset 64 of buffer 7", as its user gave them

// A part of one buffer that a transfer visits, in bytes.
struct BufferPiece {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Copy bytes of the host into memory that the device uses, and out of it, by several threads where they are many. Nothing else does, but
// for the transfers below: `mapped` is such memory, and all work on it has finished. `store`: of the buffer that it belongs to.
void copy_in(std::byte* mapped, std::span<const std::byte> source, Store store = Store::cached);
void copy_out(const std::byte* mapped, std::span<std::byte> target);

// Host bytes -> device, to the pieces one after the other. Blocks until the source may be reused; ordered after work already submitted.
// `interrupted` is called while waiting, as by Context::wait, and may throw: what was copied by then stays.
void upload(const BufferRange& target, std::span<const std::byte> source, const Interrupted& interrupted = {});
void upload(const std::shared_ptr<Buffer>& target, std::span<const BufferPiece> pieces, std::span<const std::byte> source,
            const Interrupted& interrupted = {});
// Device -> host bytes, of the pieces one after the other; waits for the work already submitted.
void download(const BufferRange& source, std::span<std::byte> target, const Interrupted& interrupted = {});
void download(const std::shared_ptr<Buffer>& source, std::span<const BufferPiece> pieces, std::span<std::byte> target,
              const Interrupted& interrupted = {});
// The bytes of a range to the pieces of another buffer of the context, one after the other, on the device.
void copy(const BufferRange& source, const std::shared_ptr<Buffer>& target, std::span<const BufferPiece> pieces,
          const Interrupted& interrupted = {});
// Repeats a word on the device, over a range of whole words.
void fill(const BufferRange& target, uint32_t word, const Interrupted& interrupted = {});

}  // namespace pumice
