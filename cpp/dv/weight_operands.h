// Packed weights as operands of operators: unpacked by the host when a list is prepared, or, where the device may write them, by the
// device at every execution.
#pragma once

#include "dv/lowering.h"

namespace pumice::dv {

// The packed weights of one command or run, on the device where it may write them, else on the host.
class PackedWeights {
 public:
  // `snapshot`: the command writes there before it reads them.
  PackedWeights(Lowering& lowering, const MemoryRange& range, bool snapshot);
  bool on_device() const { return on_device_.has_value(); }
  const BufferRange& device() const { return *on_device_; }      // aligned for operators
  std::span<const std::byte> host() const { return *on_host_; }  // alive as long as the lowering

 private:
  std::optional<BufferRange> on_device_;
  std::optional<std::span<const std::byte>> on_host_;
};

struct ConvOperands {
  Operand weights;     // [out, in, x, y]; of a transposed convolution [in, out, x, y], turned by 180 degrees
  Operand bias;        // one for each output channel
  BufferRange slopes;  // float16 of PReLU, of each output channel
};

// The operands have `dtype`, which the operator computes in.
ConvOperands conv_operands(Recorder& recorder, const Run& run, const PackedWeights& packed, DType dtype, bool transposed);

struct FcOperands {
  Operand weights, bias;  // float16: [outputs, inputs], [outputs]
};

FcOperands fc_operands(Recorder& recorder, const FcDims& dims, const PackedWeights& packed);

}  // namespace pumice::dv
