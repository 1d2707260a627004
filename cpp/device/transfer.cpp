// Transfers between host and device.
#include <algorithm>

#include "core/error.h"
#include "core/host_trace.h"
#include "core/rounding.h"
#include "device/buffer.h"
#include "device/command_buffer.h"
#include "device/host_memory.h"
#include "device/transfer_chunk.h"

namespace pumice {
namespace {

// Maximum number of chunks in the staging ring, which bounds its size for any transfer.
constexpr uint64_t kMaxChunks = 8;

Buffer::UseGuard acquire_range(const BufferRange& range, size_t bytes) {
  auto use = range.buffer->acquire();
  if (bytes > range.bytes || range.offset > range.buffer->bytes() || range.bytes > range.buffer->bytes() - range.offset)
    throw BindingError("R1", "range", "", "at most " + std::to_string(range.buffer->bytes()) + " bytes",
                       std::to_string(bytes) + " bytes at offset " + std::to_string(range.offset));
  return use;
}

Buffer::UseGuard acquire_range(const Buffer& buffer, std::span<const BufferRegion> regions, size_t bytes) {
  auto use = buffer.acquire();
  uint64_t total = 0;
  for (const auto& region : regions) {
    total += region.bytes;
    if (region.offset > buffer.bytes() || region.bytes > buffer.bytes() - region.offset)
      throw BindingError("R1", "range", "", "at most " + std::to_string(buffer.bytes()) + " bytes",
                         std::to_string(region.bytes) + " bytes at offset " + std::to_string(region.offset));
  }
  if (total != bytes) throw BindingError("R2", "range", "", std::to_string(total) + " bytes of host memory", std::to_string(bytes));
  return use;
}

void submit_and_wait(CommandBuffer& commands, const InterruptCallback& interrupted) {
  commands.end();
  commands.context()->wait(commands.submit(), {}, interrupted);
}

// The chunks of a transfer, which share a ring of staging memory.
class StagingRing {
 public:
  StagingRing(const std::shared_ptr<Context>& context, uint64_t bytes, Heap heap)
      : total_(bytes),
        chunk_(choose_chunk_bytes(bytes)),
        staging_(Buffer::create(context, bytes <= chunk_ ? bytes : std::min(num_chunks(), kMaxChunks) * chunk_, heap)) {}

  uint64_t chunk_size() const { return chunk_; }
  size_t num_chunks() const { return ceil_div(total_, chunk_); }
  size_t num_slots() const { return ceil_div(staging_->bytes(), chunk_); }
  // Returns the end offset of the first `count` chunks, from the start of the transfer.
  uint64_t chunk_end(size_t count) const { return std::min(count * chunk_, total_); }
  uint64_t chunk_bytes(size_t chunk) const { return chunk_end(chunk + 1) - chunk_end(chunk); }
  BufferRange chunk_range(size_t chunk) const { return {staging_, chunk % num_slots() * chunk_, chunk_bytes(chunk)}; }
  template <typename T>
  CopyWindow<T> window() const {
    return {staging_->host_bytes(), staging_->bytes()};
  }
  StoreMode store_mode() const { return staging_->store_mode(); }

  // Submits the transfer of the next chunk.
  void submit(CommandBuffer& commands) {
    commands.end();
    ids_.push_back(commands.submit());
  }
  size_t num_submitted() const { return ids_.size(); }
  void wait(size_t chunk, const InterruptCallback& interrupted) const { staging_->context()->wait(ids_[chunk], {}, interrupted); }
  // Returns how many chunks the device has transferred, in order.
  size_t count_finished() {
    while (finished_ < ids_.size() && ids_[finished_] <= staging_->context()->get_last_completed()) ++finished_;
    return finished_;
  }

 private:
  uint64_t total_, chunk_;
  std::shared_ptr<Buffer> staging_;
  std::vector<uint64_t> ids_;  // executions that transfer the chunks
  size_t finished_ = 0;
};

// Iterates over the regions in portions that fit into a chunk; splits the last region of a portion if necessary.
class RegionCursor {
 public:
  explicit RegionCursor(std::span<const BufferRegion> regions) : regions_(regions) {}
  std::vector<BufferRegion> next(uint64_t max_bytes) {
    std::vector<BufferRegion> regions;
    for (; max_bytes > 0 && at_ < regions_.size(); ++at_, done_ = 0) {
      const uint64_t bytes = std::min(max_bytes, regions_[at_].bytes - done_);
      regions.push_back({regions_[at_].offset + done_, bytes});
      max_bytes -= bytes;
      done_ += bytes;
      if (done_ < regions_[at_].bytes) break;
    }
    return regions;
  }

 private:
  std::span<const BufferRegion> regions_;
  size_t at_ = 0;
  uint64_t done_ = 0;
};

// Every command buffer begins with a barrier against earlier submissions, so no wait is needed.
void upload_staged(const std::shared_ptr<Buffer>& target, std::span<const BufferRegion> regions, std::span<const std::byte> source,
                   const InterruptCallback& interrupted) {
  const auto& context = target->context();
  if (const BufferRange host = find_host_buffer(*context, source); host.buffer) return copy(host, target, regions, interrupted);
  StagingRing ring(context, source.size(), Heap::upload);
  RegionCursor cursor(regions);
  ParallelCopy copy(ring.window<std::byte>(), {source.data(), source.size()}, source.size(), ring.chunk_size(), ring.store_mode());
  for (size_t chunk = 0; chunk < ring.num_chunks(); ++chunk) {
    if (chunk >= ring.num_slots()) ring.wait(chunk - ring.num_slots(), interrupted);
    copy.allow_copy_until(ring.chunk_end(ring.count_finished() + ring.num_slots()));
    copy.copy_until(ring.chunk_end(chunk + 1));
    CommandBuffer commands(context, {});
    commands.begin();
    commands.scatter(ring.chunk_range(chunk), *target, cursor.next(ring.chunk_bytes(chunk)));
    ring.submit(commands);
    if (interrupted) interrupted();
  }
  ring.wait(ring.num_chunks() - 1, interrupted);
}

void download_staged(const std::shared_ptr<Buffer>& source, std::span<const BufferRegion> regions, std::span<std::byte> target,
                     const InterruptCallback& interrupted) {
  const auto& context = source->context();
  if (const BufferRange host = find_host_buffer(*context, target); host.buffer) {
    CommandBuffer commands(context, {});
    commands.begin();
    commands.gather(*source, regions, host);
    return submit_and_wait(commands, interrupted);
  }
  StagingRing ring(context, target.size(), Heap::readback);
  RegionCursor cursor(regions);
  ParallelCopy copy({target.data(), target.size()}, ring.window<const std::byte>(), target.size(), ring.chunk_size());
  for (size_t chunk = 0; chunk < ring.num_chunks(); ++chunk) {
    // Submit as many chunks as fit in the ring, including at least this one.
    while (ring.num_submitted() < ring.num_chunks()) {
      const size_t next = ring.num_submitted();
      if (const uint64_t reused_end = next < ring.num_slots() ? 0 : ring.chunk_end(next - ring.num_slots() + 1);
          !copy.is_copied(reused_end)) {
        if (next > chunk) break;
        copy.copy_until(reused_end);
      }
      CommandBuffer commands(context, {});
      commands.begin();
      commands.gather(*source, cursor.next(ring.chunk_bytes(next)), ring.chunk_range(next));
      ring.submit(commands);
    }
    ring.wait(chunk, interrupted);
    copy.allow_copy_until(ring.chunk_end(chunk + 1));
    if (interrupted) interrupted();
  }
  copy.copy_until(target.size());
}

}  // namespace

void upload(const BufferRange& target, std::span<const std::byte> source, const InterruptCallback& interrupted) {
  const auto use = acquire_range(target, source.size());
  const BufferRegion whole{target.offset, source.size()};
  upload(target.buffer, {&whole, 1}, source, interrupted);
}

void copy_to_mapped(std::byte* mapped, std::span<const std::byte> source, StoreMode store) {
  const HostTraceSpan span("copy in", {}, source.size());
  copy_bytes(mapped, source, store);
}

void copy_from_mapped(const std::byte* mapped, std::span<std::byte> target) {
  const HostTraceSpan span("copy out", {}, target.size());
  copy_bytes(target.data(), {mapped, target.size()});
}

void upload(const std::shared_ptr<Buffer>& target, std::span<const BufferRegion> regions, std::span<const std::byte> source,
            const InterruptCallback& interrupted) {
  const auto use = acquire_range(*target, regions, source.size());
  if (source.empty()) return;
  const auto& context = target->context();
  const HostTraceSpan span("upload", {}, source.size());
  if (!target->mappable()) return upload_staged(target, regions, source, interrupted);
  context->wait_idle(interrupted);
  // No work is in flight, so the host may write the memory directly.
  std::byte* const mapped = target->host_bytes();
  const std::byte* from = source.data();
  for (const auto& region : regions) {
    copy_to_mapped(mapped + region.offset, {from, region.bytes}, target->store_mode());
    from += region.bytes;
  }
}

void download(const BufferRange& source, std::span<std::byte> target, const InterruptCallback& interrupted) {
  const auto use = acquire_range(source, target.size());
  const BufferRegion whole{source.offset, target.size()};
  download(source.buffer, {&whole, 1}, target, interrupted);
}

void download(const std::shared_ptr<Buffer>& source, std::span<const BufferRegion> regions, std::span<std::byte> target,
              const InterruptCallback& interrupted) {
  const auto use = acquire_range(*source, regions, target.size());
  if (target.empty()) return;
  const auto& context = source->context();
  context->require_execution("device memory");
  const HostTraceSpan span("download", {}, target.size());
  if (!source->mappable()) return download_staged(source, regions, target, interrupted);
  context->wait_idle(interrupted);
  const std::byte* const mapped = source->host_bytes();
  std::byte* to = target.data();
  for (const auto& region : regions) {
    copy_from_mapped(mapped + region.offset, {to, region.bytes});
    to += region.bytes;
  }
}

void copy(const BufferRange& source, const std::shared_ptr<Buffer>& target, std::span<const BufferRegion> regions,
          const InterruptCallback& interrupted) {
  const auto read = acquire_range(source, source.bytes), written = acquire_range(*target, regions, source.bytes);
  if (source.bytes == 0) return;
  const auto& context = target->context();
  context->wait_idle(interrupted);
  CommandBuffer commands(context, {});
  commands.begin();
  commands.scatter(source, *target, regions);
  submit_and_wait(commands, interrupted);
}

void fill(const BufferRange& target, uint32_t word, const InterruptCallback& interrupted) {
  const auto use = acquire_range(target, target.bytes);
  if (target.bytes == 0) return;
  if (target.offset % 4 || target.bytes % 4) throw Error("fill: expected a range of whole 32-bit words");
  const auto& context = target.buffer->context();
  context->wait_idle(interrupted);
  CommandBuffer commands(context, {});
  commands.begin();
  commands.fill(target, word);
  submit_and_wait(commands, interrupted);
}

}  // namespace pumice
