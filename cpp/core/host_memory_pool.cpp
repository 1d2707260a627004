#include "core/host_memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "core/rounding.h"

namespace pumice {
namespace {

constexpr size_t kMaxFreeBytes = size_t{256} << 20;
constexpr size_t kHugePage = size_t{2} << 20;

struct FreeBlock {
  std::byte* begin;
  size_t bytes;
};

// Free blocks, oldest first.
struct FreeBlockList {
  std::mutex mutex;
  std::vector<FreeBlock> blocks;
  size_t bytes = 0;
};

// Never destroyed: arrays may be freed until the process ends.
FreeBlockList& get_free_blocks() {
  static auto* const instance = new FreeBlockList;
  return *instance;
}

// Never blocks: in a forked child, the mutex may be held forever by a thread of the parent.
std::unique_lock<std::mutex> try_lock_free_blocks() {
  return {get_free_blocks().mutex, std::try_to_lock};
}

void release_block(FreeBlock block) {
  std::vector<FreeBlock> freed;
  if (const auto lock = try_lock_free_blocks(); lock && block.bytes <= kMaxFreeBytes) {
    FreeBlockList& all = get_free_blocks();
    all.blocks.push_back(block);
    all.bytes += block.bytes;
    while (all.bytes > kMaxFreeBytes) {
      freed.push_back(all.blocks.front());
      all.bytes -= all.blocks.front().bytes;
      all.blocks.erase(all.blocks.begin());
    }
  } else {
    freed.push_back(block);
  }
  for (const FreeBlock& freed_block : freed) std::free(freed_block.begin);
}

// Removes and returns the smallest free block that fits, if at most a quarter of it would be unused. Otherwise returns an empty block.
FreeBlock take_free_block(size_t bytes) {
  const auto lock = try_lock_free_blocks();
  if (!lock) return {};
  FreeBlockList& all = get_free_blocks();
  auto best = all.blocks.end();
  for (auto candidate = all.blocks.begin(); candidate != all.blocks.end(); ++candidate)
    if (candidate->bytes >= bytes && candidate->bytes - bytes <= candidate->bytes / 4 &&
        (best == all.blocks.end() || candidate->bytes < best->bytes))
      best = candidate;
  if (best == all.blocks.end()) return {};
  const FreeBlock block = *best;
  all.bytes -= block.bytes;
  all.blocks.erase(best);
  return block;
}

}  // namespace

std::shared_ptr<std::byte> allocate_result_memory(size_t bytes) {
  FreeBlock block = take_free_block(bytes);
  if (!block.begin) {
    block.bytes = round_up(std::max<size_t>(bytes, 1), kHugePage);
    block.begin = static_cast<std::byte*>(std::aligned_alloc(kHugePage, block.bytes));
    if (!block.begin) return {};
    madvise(block.begin, block.bytes, MADV_HUGEPAGE);  // only a hint: without huge pages there are more page faults
  }
  return {block.begin, [block](std::byte*) { release_block(block); }};
}

}  // namespace pumice
