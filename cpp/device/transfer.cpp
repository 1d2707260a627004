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

Buffer::Use acquire_range(const BufferRange& range, size_t bytes) {
  auto use = range.buffer->use();
  if (bytes > range.bytes || range.offset > range.buffer->bytes() || range.bytes > range.buffer->bytes() - range.offset)
    throw BindingError("R1", "range", "", "at most " + std::to_string(range.buffer->bytes()) + " bytes",
                       std::to_string(bytes) + " bytes at offset " + std::to_string(range.offset));
  return use;
}

Buffer::Use acquire_range(const Buffer& buffer, std::span<const BufferPiece> pieces, size_t bytes) {
  auto use = buffer.use();
  uint64_t total = 0;
  for (const auto& piece : pieces) {
    total += piece.bytes;
    if (piece.offset > buffer.bytes() || piece.bytes > buffer.bytes() - piece.offset)
      throw BindingError("R1", "range", "", "at most " + std::to_string(buffer.bytes()) + " bytes",
                         std::to_string(piece.bytes) + " bytes at offset " + std::to_string(piece.offset));
  }
  if (total != bytes) throw BindingError("R2", "range", "", std::to_string(total) + " bytes of host memory", std::to_string(bytes));
  return use;
}

void submit_and_wait(CommandBuffer& commands, const Interrupted& interrupted) {
  commands.end();
  commands.context()->wait(commands.submit(), {}, interrupted);
}

// The chunks of a transfer, which share a ring of staging memory.
class StagingRing {
 public:
  StagingRing(const std::shared_ptr<Context>& context, uint64_t bytes, Heap heap)
      : total_(bytes),
        chunk_(transfer_chunk(bytes)),
        staging_(Buffer::create(context, bytes <= chunk_ ? bytes : std::min(chunks(), kMaxChunks) * chunk_, heap)) {}

  uint64_t chunk() const { return chunk_; }
  size_t chunks() const { return ceil_div(total_, chunk_); }
  size_t slots() const { return ceil_div(staging_->bytes(), chunk_); }
  // End offset, in the transfer, of its first `count` chunks.
  uint64_t chunk_end(size_t count) const { return std::min(count * chunk_, total_); }
  uint64_t bytes_of(size_t chunk) const { return chunk_end(chunk + 1) - chunk_end(chunk); }
  BufferRange range_of(size_t chunk) const { return {staging_, chunk % slots() * chunk_, bytes_of(chunk)}; }
  template <typename T>
  CopyWindow<T> window() const {
    return {staging_->host_bytes(), staging_->bytes()};
  }
  Store store() const { return staging_->store(); }

  // Submits the transfer of the next chunk.
  void submit(CommandBuffer& commands) {
    commands.end();
    ids_.push_back(commands.submit());
  }
  size_t submitted() const { return ids_.size(); }
  void wait(size_t chunk, const Interrupted& interrupted) const { staging_->context()->wait(ids_[chunk], {}, interrupted); }
  // Returns the number of leading chunks that the device has moved.
  size_t finished() {
    while (finished_ < ids_.size() && ids_[finished_] <= staging_->context()->completed()) ++finished_;
    return finished_;
  }

 private:
  uint64_t total_, chunk_;
  std::shared_ptr<Buffer> staging_;
  std::vector<uint64_t> ids_;  // executions that move the chunks
  size_t finished_ = 0;
};

// Iterates over the pieces in portions that fit into staging memory, splitting the last piece.
class PieceCursor {
 public:
  explicit PieceCursor(std::span<const BufferPiece> pieces) : pieces_(pieces) {}
  std::vector<BufferPiece> next(uint64_t max_bytes) {
    std::vector<BufferPiece> pieces;
    for (; max_bytes > 0 && at_ < pieces_.size(); ++at_, done_ = 0) {
      const uint64_t bytes = std::min(max_bytes, pieces_[at_].bytes - done_);
      pieces.push_back({pieces_[at_].offset + done_, bytes});
      max_bytes -= bytes;
      done_ += bytes;
      if (done_ < pieces_[at_].bytes) break;
    }
    return pieces;
  }

 private:
  std::span<const BufferPiece> pieces_;
  size_t at_ = 0;
  uint64_t done_ = 0;
};

// Every command buffer begins with a barrier against earlier submissions, so no wait is needed.
void upload_staged(const std::shared_ptr<Buffer>& target, std::span<const BufferPiece> pieces, std::span<const std::byte> source,
                   const Interrupted& interrupted) {
  const auto& context = target->context();
  if (const BufferRange host = find_host_memory(*context, source); host.buffer) return copy(host, target, pieces, interrupted);
  StagingRing ring(context, source.size(), Heap::upload);
  PieceCursor cursor(pieces);
  ParallelCopy copy(ring.window<std::byte>(), {source.data(), source.size()}, source.size(), ring.chunk(), ring.store());
  for (size_t chunk = 0; chunk < ring.chunks(); ++chunk) {
    if (chunk >= ring.slots()) ring.wait(chunk - ring.slots(), interrupted);
    copy.allow(ring.chunk_end(ring.finished() + ring.slots()));
    copy.copy_until(ring.chunk_end(chunk + 1));
    CommandBuffer commands(context, {});
    commands.begin();
    commands.scatter(ring.range_of(chunk), *target, cursor.next(ring.bytes_of(chunk)));
    ring.submit(commands);
    if (interrupted) interrupted();
  }
  ring.wait(ring.chunks() - 1, interrupted);
}

void download_staged(const std::shared_ptr<Buffer>& source, std::span<const BufferPiece> pieces, std::span<std::byte> target,
                     const Interrupted& interrupted) {
  const auto& context = source->context();
  if (const BufferRange host = find_host_memory(*context, target); host.buffer) {
    CommandBuffer commands(context, {});
    commands.begin();
    commands.gather(*source, pieces, host);
    return submit_and_wait(commands, interrupted);
  }
  StagingRing ring(context, target.size(), Heap::readback);
  PieceCursor cursor(pieces);
  ParallelCopy copy({target.data(), target.size()}, ring.window<const std::byte>(), target.size(), ring.chunk());
  for (size_t chunk = 0; chunk < ring.chunks(); ++chunk) {
    // Submit as many chunks as fit in the ring, including at least this one.
    while (ring.submitted() < ring.chunks()) {
      const size_t next = ring.submitted();
      if (const uint64_t reused_end = next < ring.slots() ? 0 : ring.chunk_end(next - ring.slots() + 1); !copy.is_copied(reused_end)) {
        if (next > chunk) break;
        copy.copy_until(reused_end);
      }
      CommandBuffer commands(context, {});
      commands.begin();
      commands.gather(*source, cursor.next(ring.bytes_of(next)), ring.range_of(next));
      ring.submit(commands);
    }
    ring.wait(chunk, interrupted);
    copy.allow(ring.chunk_end(chunk + 1));
    if (interrupted) interrupted();
  }
  copy.copy_until(target.size());
}

}  // namespace

void upload(const BufferRange& target, std::span<const std::byte> source, const Interrupted& interrupted) {
  const auto use = acquire_range(target, source.size());
  const BufferPiece whole{target.offset, source.size()};
  upload(target.buffer, {&whole, 1}, source, interrupted);
}

void copy_in(std::byte* mapped, std::span<const std::byte> source, Store store) {
  const HostSpan span("copy in", {}, source.size());
  copy_bytes(mapped, source, store);
}

void copy_out(const std::byte* mapped, std::span<std::byte> target) {
  const HostSpan span("copy out", {}, target.size());
  copy_bytes(target.data(), {mapped, target.size()});
}

void upload(const std::shared_ptr<Buffer>& target, std::span<const BufferPiece> pieces, std::span<const std::byte> source,
            const Interrupted& interrupted) {
  const auto use = acquire_range(*target, pieces, source.size());
  if (source.empty()) return;
  const auto& context = target->context();
  const HostSpan span("upload", {}, source.size());
  if (!target->mappable()) return upload_staged(target, pieces, source, interrupted);
  context->wait_idle(interrupted);
  // No work is in flight, so the host may write the memory directly.
  std::byte* const mapped = target->host_bytes();
  const std::byte* from = source.data();
  for (const auto& piece : pieces) {
    copy_in(mapped + piece.offset, {from, piece.bytes}, target->store());
    from += piece.bytes;
  }
}

void download(const BufferRange& source, std::span<std::byte> target, const Interrupted& interrupted) {
  const auto use = acquire_range(source, target.size());
  const BufferPiece whole{source.offset, target.size()};
  download(source.buffer, {&whole, 1}, target, interrupted);
}

void download(const std::shared_ptr<Buffer>& source, std::span<const BufferPiece> pieces, std::span<std::byte> target,
              const Interrupted& interrupted) {
  const auto use = acquire_range(*source, pieces, target.size());
  if (target.empty()) return;
  const auto& context = source->context();
  const HostSpan span("download", {}, target.size());
  if (!source->mappable()) return download_staged(source, pieces, target, interrupted);
  context->wait_idle(interrupted);
  const std::byte* const mapped = source->host_bytes();
  std::byte* to = target.data();
  for (const auto& piece : pieces) {
    copy_out(mapped + piece.offset, {to, piece.bytes});
    to += piece.bytes;
  }
}

void copy(const BufferRange& source, const std::shared_ptr<Buffer>& target, std::span<const BufferPiece> pieces,
          const Interrupted& interrupted) {
  const auto read = acquire_range(source, source.bytes), written = acquire_range(*target, pieces, source.bytes);
  if (source.bytes == 0) return;
  const auto& context = target->context();
  context->wait_idle(interrupted);
  CommandBuffer commands(context, {});
  commands.begin();
  commands.scatter(source, *target, pieces);
  submit_and_wait(commands, interrupted);
}

void fill(const BufferRange& target, uint32_t word, const Interrupted& interrupted) {
  const auto use = acquire_range(target, target.bytes);
  if (target.bytes == 0) return;
  if (target.offset % 4 || target.bytes % 4) throw Error("fill: a range of whole words expected");
  const auto& context = target.buffer->context();
  context->wait_idle(interrupted);
  CommandBuffer commands(context, {});
  commands.begin();
  commands.fill(target, word);
  submit_and_wait(commands, interrupted);
}

}  // namespace pumice
