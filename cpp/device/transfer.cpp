// The two functions through which host bytes go to the device and back.
#include <cstring>

#include "core/error.h"
#include "device/buffer.h"
#include "device/command_buffer.h"

namespace pumice {
namespace {

constexpr uint64_t kStagingBytes = uint64_t{64} << 20;

void check_range(const BufferRange& range, size_t bytes) {
  if (range.buffer->closed()) throw StateError("this Buffer is closed");
  if (bytes > range.bytes || range.offset > range.buffer->bytes() || range.bytes > range.buffer->bytes() - range.offset)
    throw BindingError("R1", "range", "", "at most " + std::to_string(range.buffer->bytes()) + " bytes",
                       std::to_string(bytes) + " bytes at offset " + std::to_string(range.offset));
}

void copy_and_wait(const BufferRange& source, const BufferRange& target) {
  CommandBuffer commands(source.buffer->context(), {});
  commands.begin();
  commands.copy(source, target);
  commands.end();
  source.buffer->context()->wait(commands.submit());
}

}  // namespace

void upload(const BufferRange& target, std::span<const std::byte> source) {
  check_range(target, source.size());
  if (source.empty()) return;
  const auto& context = target.buffer->context();
  if (target.buffer->mappable()) {
    context->wait_idle();
    std::memcpy(target.buffer->map() + target.offset, source.data(), source.size());
    return;
  }
  const uint64_t chunk = std::min<uint64_t>(kStagingBytes, source.size());
  const auto staging = Buffer::create(context, chunk, Heap::upload);
  for (uint64_t done = 0; done < source.size(); done += chunk) {
    const uint64_t bytes = std::min<uint64_t>(chunk, source.size() - done);
    std::memcpy(staging->map(), source.data() + done, bytes);
    copy_and_wait({staging, 0, bytes}, {target.buffer, target.offset + done, bytes});
  }
}

void download(const BufferRange& source, std::span<std::byte> target) {
  check_range(source, target.size());
  if (target.empty()) return;
  const auto& context = source.buffer->context();
  context->wait_idle();
  if (source.buffer->mappable()) {
    std::memcpy(target.data(), source.buffer->map() + source.offset, target.size());
    return;
  }
  const uint64_t chunk = std::min<uint64_t>(kStagingBytes, target.size());
  const auto staging = Buffer::create(context, chunk, Heap::readback);
  for (uint64_t done = 0; done < target.size(); done += chunk) {
    const uint64_t bytes = std::min<uint64_t>(chunk, target.size() - done);
    copy_and_wait({source.buffer, source.offset + done, bytes}, {staging, 0, bytes});
    std::memcpy(target.data() + done, staging->map(), bytes);
  }
}

}  // namespace pumice
