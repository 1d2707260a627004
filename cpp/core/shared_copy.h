// Copies of many bytes on the host, which several threads make together.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace pumice {

// How a copy writes: past the processor's caches into memory that the host never reads and does not cache, else as usual.
enum class Store : unsigned char { cached, streaming };

// Memory that a copy goes through front to back; `bytes` from `begin` on, over and over where the copy is longer (a ring).
template <typename T>
struct CopyWindow {
  T* begin = nullptr;
  size_t bytes = 0;
};

// One copy in progress. The threads of the process that are kept for this, and whoever waits in copy_until(), copy blocks in their order,
// as far as allow() lets them, so that what is before and behind the copy (the device's transfers) goes on meanwhile. One thread at a time
// may use an object.
class SharedCopy {
 public:
  // Blocks end where `chunk` bytes do; a ring is a whole number of chunks. Nothing is copied before allow().
  SharedCopy(CopyWindow<std::byte> target, CopyWindow<const std::byte> source, size_t bytes, size_t chunk, Store store = Store::cached);
  ~SharedCopy();  // waits for the blocks that are being copied, and leaves the others
  SharedCopy(const SharedCopy&) = delete;

  void allow(size_t bytes);            // the first so many bytes may be copied; never fewer than before
  bool is_copied(size_t bytes) const;  // whether the first so many bytes have been copied
  void copy_until(size_t bytes);       // takes part until they have been; they have to be allowed

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// Copies bytes to memory apart from theirs: by several threads where they are many.
void copy_bytes(std::byte* target, std::span<const std::byte> source, Store store = Store::cached);

}  // namespace pumice
