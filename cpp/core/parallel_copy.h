// Multithreaded host memory copies.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace pumice {

// streaming: non-temporal stores, which bypass the caches; for uncached memory that the host never reads.
enum class StoreMode : unsigned char { cached, streaming };

// Memory that a copy traverses from front to back. If the copy is longer than `bytes`, it wraps around (a ring).
template <typename T>
struct CopyWindow {
  T* begin = nullptr;
  size_t bytes = 0;
};

// An asynchronous host copy that overlaps with device transfers. Worker threads and the caller of copy_until() copy blocks in order, up to
// the limit set by allow_copy_until(). Not thread-safe.
class ParallelCopy {
 public:
  // Blocks do not cross multiples of `chunk` bytes; the size of a ring is a multiple of `chunk`. Copying starts with the first
  // allow_copy_until().
  ParallelCopy(CopyWindow<std::byte> target, CopyWindow<const std::byte> source, size_t bytes, size_t chunk,
               StoreMode store = StoreMode::cached);
  ~ParallelCopy();  // waits for blocks being copied and skips the rest
  ParallelCopy(const ParallelCopy&) = delete;

  void allow_copy_until(size_t bytes);  // permits copying the first `bytes` bytes; never decreases
  bool is_copied(size_t bytes) const;   // whether the first `bytes` bytes have been copied
  void copy_until(size_t bytes);        // copies blocks until the first `bytes` bytes are copied; allow_copy_until() must permit them

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// Copies between non-overlapping memory, with several threads if it is large.
void copy_bytes(std::byte* target, std::span<const std::byte> source, StoreMode store = StoreMode::cached);

}  // namespace pumice
