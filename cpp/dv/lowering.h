// Lowers dv commands to operators and kernels of the engine.
#pragma once

#include <vector>

#include "dv/activations.h"
#include "dv/command_recorder.h"
#include "dv/commands/command.h"

namespace pumice::dv {

// Packed weights unpacked on the host, with the counters that detect later changes.
struct TrackedWeights {
  MemoryRange range;
  std::vector<std::byte> packed;
  uint64_t device_write_count, device_writes;  // counters of the memory before the weights were read
};

// State of the lowering of one command list.
struct LoweringState {
  std::shared_ptr<const Context> context;
  Recorder recorder;
  std::vector<MemoryRange> written;          // ranges that commands of this or another list write on the device
  std::vector<TrackedWeights> weights = {};  // weights that may change before a later execution

  // Returns whether the device may write to the range before or while this list is executed.
  bool may_be_written_by_device(const MemoryRange& range) const;
  // Reads packed weights and records the read, so that later executions check for changes.
  std::span<const std::byte> read_tracked_weights(const MemoryRange& range);
};

void lower_conv(LoweringState& lowering, const ConvCommand& command);
void lower_fc(LoweringState& lowering, const FcCommand& command);
void lower_ipu(LoweringState& lowering, const IpuCommand& command);
void lower_argmax(LoweringState& lowering, const ArgmaxCommand& command);

// Returns the unrounded activation of `x`. `slope`: slope of leaky ReLU; the expression refers to PReLU's slopes as kSlopes.
Expression apply_activation(const Expression& x, Activation activation, float slope);
inline constexpr std::string_view kSlopes = "slopes";  // name of the PReLU slopes in the expression

// Returns a float16 range that operators can read: the memory itself, or a scratch copy if its address is misaligned.
BufferRange make_readable_range(Recorder& recorder, const MemoryAddress& address, uint64_t bytes, bool snapshot = false);
// Returns a range that operators can write: the target itself, or scratch memory that copy_back_if_scratch() copies to the target.
BufferRange make_writable_range(Recorder& recorder, const BufferRange& target);
void copy_back_if_scratch(Recorder& recorder, const BufferRange& written, const BufferRange& target);

}  // namespace pumice::dv
