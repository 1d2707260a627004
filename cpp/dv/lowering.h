// What the commands become on the engine.
#pragma once

#include <vector>

#include "dv/activations.h"
#include "dv/commands/command.h"
#include "dv/recorder.h"

namespace pumice::dv {

// Packed weights as they were when they were unpacked.
struct ReadWeights {
  MemoryRange range;
  std::vector<std::byte> packed;
  uint64_t published, device_writes;  // as the memory counted them before the weights were read
};

// One list at work.
struct Lowering {
  std::shared_ptr<const Context> context;
  Recorder recorder;
  std::vector<MemoryRange> written;       // by the device: by this list's commands, or by others'
  std::vector<ReadWeights> weights = {};  // that may be others at a later execution

  // Whether the device may write there before or while this list is executed.
  bool may_be_written(const MemoryRange& range) const;
  // The packed bytes, which later executions look at again.
  std::span<const std::byte> read_weights(const MemoryRange& range);
};

void lower_conv(Lowering& lowering, const ConvCommand& command);
void lower_fc(Lowering& lowering, const FcCommand& command);
void lower_ipu(Lowering& lowering, const IpuCommand& command);
void lower_maximizer(Lowering& lowering, const MaximizerCommand& command);

// `x` activated, before it is rounded; the slopes of PReLU are `slope`.
Expression activated(const Expression& x, Activation activation, float slope);
inline constexpr std::string_view kSlopes = "slopes";  // the name of PReLU's in it

// Elements of float16 in a memory that operators can read: there, or moved to scratch memory where they begin.
BufferRange readable(Recorder& recorder, const MemoryPlace& place, uint64_t bytes, bool snapshot = false);
// Where operators write `bytes` that are to be in a memory: there, or in scratch memory, from which finish_write() moves them.
BufferRange writable(Recorder& recorder, const BufferRange& target);
void finish_write(Recorder& recorder, const BufferRange& written, const BufferRange& target);

}  // namespace pumice::dv
