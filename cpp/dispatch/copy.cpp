#include "dispatch/copy.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/rounding.h"
#include "dispatch/kernel/grid_folding.h"

namespace pumice {
namespace {

constexpr uint64_t kWordsPerInvocation = 4;

void check_copy(const BufferRange& source, const BufferRange& target) {
  const auto refuse = [](const char* slot, std::string expected, std::string actual) {
    throw BindingError("R1", slot, "", std::move(expected), std::move(actual));
  };
  if (source.bytes != target.bytes)
    refuse("target", std::to_string(source.bytes) + " bytes, the size of the source", std::to_string(target.bytes) + " bytes");
  for (const auto* range : {&source, &target}) {
    const char* slot = range == &source ? "source" : "target";
    if (!range->buffer) refuse(slot, "a buffer", "none");
    if (range->offset % 4 || range->bytes % 4)
      refuse(slot, "an offset and a size that are multiples of 4 bytes",
             std::to_string(range->offset) + ", " + std::to_string(range->bytes));
    if (range->offset > range->buffer->bytes() || range->bytes > (range->buffer->bytes() + 3) / 4 * 4 - range->offset)
      refuse(slot, "a range inside the buffer's " + std::to_string(range->buffer->bytes()) + " bytes", to_string(*range));
  }
  if (source.bytes > 0 && source.buffer->memory() == target.buffer->memory()) {
    const uint64_t from = source.buffer->memory_offset() + source.offset, to = target.buffer->memory_offset() + target.offset;
    if (from < to + target.bytes && to < from + source.bytes)
      refuse("target", "memory that does not overlap the source's, " + to_string(source), to_string(target));
  }
}

// Sets a push constant of an internal kernel by its reflected name.
void set_push_constant(Dispatch& dispatch, std::string_view name, uint32_t value) {
  const auto* member = dispatch.kernel->interface().find_push_constant(name);
  std::memcpy(dispatch.push.data() + member->offset, &value, sizeof value);
}

}  // namespace

std::vector<Dispatch> make_copy_dispatches(const BufferRange& source, const BufferRange& target) {
  check_copy(source, target);
  if (source.bytes == 0) return {};
  const auto& context = source.buffer->context();
  const auto kernel = context->attachment<KernelLibrary>()->get_variant(context, "copy_words.comp", StorageType::fp32);
  const uint64_t alignment = context->limit("minStorageBufferOffsetAlignment");
  const uint64_t largest = (context->limit("maxStorageBufferRange") - alignment) / 4 * 4;
  std::vector<Dispatch> chunks;
  for (uint64_t done = 0; done < source.bytes; done += largest) {
    const uint64_t bytes = std::min(largest, source.bytes - done);
    Dispatch chunk;
    chunk.label = "copy";
    const uint64_t per_group = kernel->local_size()[0] * kWordsPerInvocation;
    KernelLaunch launch = make_launch(kernel, {ceil_div(bytes / 4, per_group), 1, 1});
    chunk.kernel = std::move(launch.kernel);
    chunk.groups = launch.groups;
    chunk.push.resize(kernel->interface().push_bytes);
    set_push_constant(chunk, "words", static_cast<uint32_t>(bytes / 4));
    const auto add = [&](const BufferRange& range, std::string_view offset_name) {
      const uint64_t offset = range.offset + done, slack = offset % alignment;
      chunk.buffers.push_back({range.buffer, offset - slack, bytes + slack});
      set_push_constant(chunk, offset_name, static_cast<uint32_t>(slack / 4));
    };
    add(source, "x_offset");
    add(target, "y_offset");
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

}  // namespace pumice
