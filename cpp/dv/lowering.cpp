#include "dv/lowering.h"

#include <algorithm>

#include "shader/preamble/shader_options.h"

namespace pumice::dv {
namespace {

bool is_aligned(const BufferRange& range) {
  return range.offset % kTensorAlignment == 0;
}

// Whether kernels write only bytes of the range. They write whole elements if the device stores float16, else whole words.
bool is_written_exactly(const Recorder& recorder, const BufferRange& range) {
  return range.bytes % 4 == 0 || get_storage_type(recorder.context()->info(), DType::float16) == StorageType::fp16;
}

}  // namespace

bool LoweringState::may_be_written_by_device(const MemoryRange& range) const {
  return std::ranges::any_of(written, [&](const MemoryRange& written_range) { return written_range.overlaps(range); });
}

std::span<const std::byte> LoweringState::read_tracked_weights(const MemoryRange& range) {
  const Memory& memory = *range.memory;
  const uint64_t device_write_count = memory.device_write_count(), device_writes = memory.get_device_write_count(range.offset, range.bytes);
  return weights.emplace_back(range, memory.read(range.offset, range.bytes), device_write_count, device_writes).packed;
}

Expression apply_activation(const Expression& x, Activation activation, float slope) {
  const auto parse_of_x = [&](std::string_view text) { return Expression::parse(text).substitute({{"x", x}}); };
  switch (activation) {
    case Activation::tanh:
      return parse_of_x("tanh(x)");
    case Activation::leaky_relu:
      if (slope == 0) return parse_of_x("max(x, 0)");
      return Expression::parse("x > 0 ? x : a * x").substitute({{"x", x}, {"a", Expression::literal(slope)}});
    case Activation::sigmoid:
      return parse_of_x("sigmoid(x)");
    case Activation::prelu:
      return parse_of_x("x > 0 ? x : slopes * x");
    case Activation::elu:
      return parse_of_x("x < 0 ? expm1(x) : x");
    case Activation::relu6:
      return parse_of_x("min(max(x, 0), 6)");
    default:
      return x;
  }
}

BufferRange make_readable_range(Recorder& recorder, const MemoryAddress& address, uint64_t bytes, bool snapshot) {
  const BufferRange range{address.memory->buffer(), address.offset, bytes};
  if (is_aligned(range) && !snapshot) return range;
  const BufferRange copy = recorder.allocate_scratch(bytes);
  recorder.copy_bytes(range, copy);
  return copy;
}

BufferRange make_writable_range(Recorder& recorder, const BufferRange& target) {
  return is_aligned(target) && is_written_exactly(recorder, target) ? target : recorder.allocate_scratch(target.bytes);
}

void copy_back_if_scratch(Recorder& recorder, const BufferRange& written, const BufferRange& target) {
  if (written.buffer != target.buffer) recorder.copy_bytes(written, target);
}

}  // namespace pumice::dv
