#include "core/parallel_copy.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "core/signal_blocker.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace pumice {
namespace {

constexpr size_t kMaxThreads = 8;                      // maximum number of threads, including the caller; 8 saturate the memory bandwidth
constexpr size_t kMinParallelBytes = size_t{1} << 20;  // smaller copies finish before the other threads wake up
constexpr size_t kSmallBlock = size_t{256} << 10;      // 50 us on one thread
constexpr size_t kLargeBlock = size_t{2} << 20;        // one huge page, so that a single thread first-touches it
constexpr size_t kLargeCopyBytes = size_t{16} << 20;   // copies of this size or more use large blocks: each thread still gets at least one

// Non-temporal stores fill whole write-combining lines and avoid reading the destination.
void copy_streaming(std::byte* target, const std::byte* source, size_t bytes) {
#ifdef __SSE2__
  constexpr size_t kLine = 64, kVector = 16;
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(target) % kLine) % kLine);
  std::memcpy(target, source, head);
  target += head, source += head, bytes -= head;
  for (; bytes >= kLine; target += kLine, source += kLine, bytes -= kLine) {
    __m128i vectors[kLine / kVector];
    for (size_t i = 0; i < kLine / kVector; ++i) vectors[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source) + i);
    for (size_t i = 0; i < kLine / kVector; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(target) + i, vectors[i]);
  }
  std::memcpy(target, source, bytes);
  _mm_sfence();  // non-temporal stores are not ordered before the store that notifies the device
#else
  std::memcpy(target, source, bytes);
#endif
}

void copy_block(std::byte* target, const std::byte* source, size_t bytes, StoreMode store) {
  if (store == StoreMode::streaming)
    copy_streaming(target, source, bytes);
  else
    std::memcpy(target, source, bytes);
}

size_t round_up_to_next_multiple(size_t value, size_t grain) {
  return (value / grain + 1) * grain;
}

// Worker threads for copies. They are detached and idle between copies, so process exit does not wait for them. A forked child creates a
// new pool.
class CopyThreadPool {
 public:
  static CopyThreadPool& get_process_instance() {
    static std::atomic<CopyThreadPool*> instance{nullptr};
    CopyThreadPool* current = instance.load(std::memory_order_acquire);
    if (current && current->process_ == getpid()) return *current;
    auto* const fresh = new CopyThreadPool;
    if (instance.compare_exchange_strong(current, fresh)) {
      fresh->start_threads();
      return *fresh;
    }
    delete fresh;
    return *current;
  }

  std::mutex mutex;                          // guards the members below and the states of all copies
  std::condition_variable allowed;           // notified when allow_copy_until() makes blocks available
  std::vector<ParallelCopy::State*> copies;  // copies in progress

 private:
  void start_threads() {
    const size_t count = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMaxThreads) - 1;
    try {
      const SignalBlocker blocked;
      for (size_t i = 0; i < count; ++i)
        std::thread([this] {
          set_thread_name("pumice copy");
          run_worker();
        }).detach();
    } catch (const std::system_error&) {  // run with fewer threads, since the caller always copies
    }
  }
  [[noreturn]] void run_worker();

  const pid_t process_ = getpid();
};

}  // namespace

struct ParallelCopy::State {
  CopyWindow<std::byte> target;
  CopyWindow<const std::byte> source;
  size_t bytes, chunk, block;
  StoreMode store;
  CopyThreadPool& threads;
  std::condition_variable copied{};    // notified when a block has been copied
  size_t allowed = 0, next = 0;        // bytes that may be copied; bytes that threads have claimed
  std::vector<size_t> block_begins{};  // start offsets of blocks being copied

  bool has_next_block() const { return next < allowed; }
  bool is_copied(size_t end) const {
    return next >= end && std::ranges::all_of(block_begins, [&](size_t begin) { return begin >= end; });
  }

  // Returns the end of the block at `begin`: the next chunk boundary, the allowed limit or a block boundary of the non-ring memory,
  // whichever comes first.
  size_t find_block_end(size_t begin) const {
    const bool is_ring = target.bytes < bytes;
    const auto address = is_ring ? reinterpret_cast<uintptr_t>(source.begin) : reinterpret_cast<uintptr_t>(target.begin);
    return std::min({allowed, round_up_to_next_multiple(begin, chunk), round_up_to_next_multiple(address + begin, block) - address});
  }

  // Copies the next block without holding the lock.
  void copy_next_block(std::unique_lock<std::mutex>& lock) {
    const size_t begin = next, end = find_block_end(begin);
    next = end;
    block_begins.push_back(begin);
    lock.unlock();
    copy_block(target.begin + begin % target.bytes, source.begin + begin % source.bytes, end - begin, store);
    lock.lock();
    block_begins.erase(std::ranges::find(block_begins, begin));
    copied.notify_one();
  }
};

void CopyThreadPool::run_worker() {
  std::unique_lock lock(mutex);
  for (;;) {
    const auto copy_with_block = std::ranges::find_if(copies, [](const ParallelCopy::State* copy) { return copy->has_next_block(); });
    if (copy_with_block == copies.end())
      allowed.wait(lock);
    else
      (*copy_with_block)->copy_next_block(lock);
  }
}

ParallelCopy::ParallelCopy(CopyWindow<std::byte> target, CopyWindow<const std::byte> source, size_t bytes, size_t chunk, StoreMode store)
    : state_(new State{target, source, bytes, chunk, bytes < kLargeCopyBytes ? kSmallBlock : kLargeBlock, store,
                       CopyThreadPool::get_process_instance()}) {
  state_->block_begins.reserve(kMaxThreads);  // so that push_back() in copy_next_block() cannot throw
  const std::lock_guard lock(state_->threads.mutex);
  state_->threads.copies.push_back(state_.get());
}

ParallelCopy::~ParallelCopy() {
  std::unique_lock lock(state_->threads.mutex);
  std::erase(state_->threads.copies, state_.get());
  state_->copied.wait(lock, [this] { return state_->block_begins.empty(); });
}

void ParallelCopy::allow_copy_until(size_t bytes) {
  State& state = *state_;
  {
    const std::lock_guard lock(state.threads.mutex);
    if (bytes <= state.allowed) return;
    state.allowed = std::min(bytes, state.bytes);
  }
  state.threads.allowed.notify_all();
}

bool ParallelCopy::is_copied(size_t bytes) const {
  const std::lock_guard lock(state_->threads.mutex);
  return state_->is_copied(bytes);
}

void ParallelCopy::copy_until(size_t bytes) {
  std::unique_lock lock(state_->threads.mutex);
  while (!state_->is_copied(bytes))
    if (state_->has_next_block())
      state_->copy_next_block(lock);
    else
      state_->copied.wait(lock);
}

void copy_bytes(std::byte* target, std::span<const std::byte> source, StoreMode store) {
  if (source.empty()) return;
  if (source.size() < kMinParallelBytes) return copy_block(target, source.data(), source.size(), store);
  ParallelCopy copy({target, source.size()}, {source.data(), source.size()}, source.size(), source.size(), store);
  copy.allow_copy_until(source.size());
  copy.copy_until(source.size());
}

}  // namespace pumice
