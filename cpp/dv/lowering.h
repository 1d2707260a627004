// Lowers the dv commands to operators and kernels of the engine.
#pragma once

#include <vector>

#include "dv/activations.h"
#include "dv/commands/command.h"
#include "dv/recorder.h"

namespace pumice::dv {

// Packed weights that the host has read and unpacked, with what tells whether they have changed since.
struct ReadWeights {
  MemoryRange range;
  std::vector<std::byte> packed;
  uint64_t published, device_writes;  // as the memory counted them before the weights were read
};

// One list while its commands are lowered.
struct Lowering {
  std::shared_ptr<const Context> context;
  Recorder recorder;
  std::vector<MemoryRange> written;       // by the device: by this list's commands, or by others'
  std::vector<ReadWeights> weights = {};  // weights that may have changed at a later execution

  // Whether the device may write there before or while this list is executed.
  bool may_be_written(const MemoryRange& range) const;
  // Reads packed weights and notes them, so that later executions look whether they have changed.
  std::span<const std::byte> read_weights(const MemoryRange& range);
};

void lower_conv(Lowering& lowering, const ConvCommand& command);
void lower_fc(Lowering& lowering, const FcCommand& command);
void lower_ipu(Lowering& lowering, const IpuCommand& command);
void lower_maximizer(Lowering& lowering, const MaximizerCommand& command);

// The activation of `x`, not yet rounded. Slopes of leaky ReLU are `slope`; those of PReLU are named kSlopes in the expression.
Expression activated(const Expression& x, Activation activation, float slope);
inline constexpr std::string_view kSlopes = "slopes";  // the name of PReLU's in it

// A range of float16 elements of a memory that operators can read: the memory itself, or scratch memory if the elements begin at an address
// that operators do not take.
BufferRange readable(Recorder& recorder, const MemoryPlace& place, uint64_t bytes, bool snapshot = false);
// A range to which operators write what belongs in `target`: the target itself, or scratch memory, from which finish_write() moves it.
BufferRange writable(Recorder& recorder, const BufferRange& target);
void finish_write(Recorder& recorder, const BufferRange& written, const BufferRange& target);

}  // namespace pumice::dv
