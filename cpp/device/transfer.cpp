// The functions through which host bytes go to the device and back.
#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "device/buffer.h"
#include "device/command_buffer.h"

namespace pumice {
namespace {

// Staging memory is at most so large and used again and again, so that a transfer of any size takes no more.
constexpr uint64_t kStagingBytes = uint64_t{64} << 20;

Buffer::Use checked_use(const BufferRange& range, size_t bytes) {
  auto use = range.buffer->use();
  if (bytes > range.bytes || range.offset > range.buffer->bytes() || range.bytes > range.buffer->bytes() - range.offset)
    throw BindingError("R1", "range", "", "at most " + std::to_string(range.buffer->bytes()) + " bytes",
                       std::to_string(bytes) + " bytes at offset " + std::to_string(range.offset));
  return use;
}

Buffer::Use checked_use(const Buffer& buffer, std::span<const BufferPiece> pieces, size_t bytes) {
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

void run(CommandBuffer& commands, const Interrupted& interrupted) {
  commands.end();
  commands.context()->wait(commands.submit(), {}, interrupted);
}

// The next pieces that fill staging memory, the last of them cut.
class StagedPieces {
 public:
  explicit StagedPieces(std::span<const BufferPiece> pieces) : pieces_(pieces) {}
  std::vector<BufferPiece> next(uint64_t room) {
    std::vector<BufferPiece> taken;
    for (; room > 0 && at_ < pieces_.size(); ++at_, done_ = 0) {
      const uint64_t bytes = std::min(room, pieces_[at_].bytes - done_);
      taken.push_back({pieces_[at_].offset + done_, bytes});
      room -= bytes;
      done_ += bytes;
      if (done_ < pieces_[at_].bytes) break;
    }
    return taken;
  }

 private:
  std::span<const BufferPiece> pieces_;
  size_t at_ = 0;
  uint64_t done_ = 0;
};

}  // namespace

void upload(const BufferRange& target, std::span<const std::byte> source, const Interrupted& interrupted) {
  const auto use = checked_use(target, source.size());
  const BufferPiece whole{target.offset, source.size()};
  upload(target.buffer, {&whole, 1}, source, interrupted);
}

void copy_in(std::byte* mapped, std::span<const std::byte> source) {
  if (!source.empty()) std::memcpy(mapped, source.data(), source.size());
}

void copy_out(const std::byte* mapped, std::span<std::byte> target) {
  if (!target.empty()) std::memcpy(target.data(), mapped, target.size());
}

void upload(const std::shared_ptr<Buffer>& target, std::span<const BufferPiece> pieces, std::span<const std::byte> source,
            const Interrupted& interrupted) {
  const auto use = checked_use(*target, pieces, source.size());
  if (source.empty()) return;
  const auto& context = target->context();
  context->wait_idle(interrupted);
  // All work in flight has finished, so the host may write the memory itself.
  if (target->mappable()) {
    std::byte* const mapped = target->host_bytes();
    const std::byte* from = source.data();
    for (const auto& piece : pieces) {
      copy_in(mapped + piece.offset, {from, piece.bytes});
      from += piece.bytes;
    }
    return;
  }
  const auto staging = Buffer::create(context, std::min<uint64_t>(kStagingBytes, source.size()), Heap::upload);
  StagedPieces staged(pieces);
  for (uint64_t done = 0; done < source.size();) {
    const uint64_t bytes = std::min<uint64_t>(staging->bytes(), source.size() - done);
    copy_in(staging->host_bytes(), source.subspan(done, bytes));
    CommandBuffer commands(context, {});
    commands.begin();
    commands.scatter({staging, 0, bytes}, *target, staged.next(bytes));
    run(commands, interrupted);
    done += bytes;
    if (interrupted) interrupted();
  }
}

void download(const BufferRange& source, std::span<std::byte> target, const Interrupted& interrupted) {
  const auto use = checked_use(source, target.size());
  const BufferPiece whole{source.offset, target.size()};
  download(source.buffer, {&whole, 1}, target, interrupted);
}

void download(const std::shared_ptr<Buffer>& source, std::span<const BufferPiece> pieces, std::span<std::byte> target,
              const Interrupted& interrupted) {
  const auto use = checked_use(*source, pieces, target.size());
  if (target.empty()) return;
  const auto& context = source->context();
  context->wait_idle(interrupted);
  if (source->mappable()) {
    const std::byte* const mapped = source->host_bytes();
    std::byte* to = target.data();
    for (const auto& piece : pieces) {
      copy_out(mapped + piece.offset, {to, piece.bytes});
      to += piece.bytes;
    }
    return;
  }
  const auto staging = Buffer::create(context, std::min<uint64_t>(kStagingBytes, target.size()), Heap::readback);
  StagedPieces staged(pieces);
  for (uint64_t done = 0; done < target.size();) {
    const uint64_t bytes = std::min<uint64_t>(staging->bytes(), target.size() - done);
    CommandBuffer commands(context, {});
    commands.begin();
    commands.gather(*source, staged.next(bytes), {staging, 0, bytes});
    run(commands, interrupted);
    copy_out(staging->host_bytes(), target.subspan(done, bytes));
    done += bytes;
    if (interrupted) interrupted();
  }
}

void copy(const BufferRange& source, const std::shared_ptr<Buffer>& target, std::span<const BufferPiece> pieces,
          const Interrupted& interrupted) {
  const auto read = checked_use(source, source.bytes), written = checked_use(*target, pieces, source.bytes);
  if (source.bytes == 0) return;
  const auto& context = target->context();
  context->wait_idle(interrupted);
  CommandBuffer commands(context, {});
  commands.begin();
  commands.scatter(source, *target, pieces);
  run(commands, interrupted);
}

void fill(const BufferRange& target, uint32_t word, const Interrupted& interrupted) {
  const auto use = checked_use(target, target.bytes);
  if (target.bytes == 0) return;
  if (target.offset % 4 || target.bytes % 4) throw Error("fill: a range of whole words expected");
  const auto& context = target.buffer->context();
  context->wait_idle(interrupted);
  CommandBuffer commands(context, {});
  commands.begin();
  commands.fill(target, word);
  run(commands, interrupted);
}

}  // namespace pumice
