// Packed weights as operator inputs. The host unpacks them when a list is prepared; if the device may write them, the device unpacks them
// at every execution.
#pragma once

#include "dv/lowering.h"

namespace pumice::dv {

// The packed weights of one command or run: on the device if it may write them, else on the host.
class PackedWeights {
 public:
  // `snapshot`: copies the weights first, because the command may overwrite them before it reads them.
  PackedWeights(LoweringState& lowering, const MemoryRange& range, bool snapshot);
  bool on_device() const { return on_device_.has_value(); }
  const BufferRange& device() const { return *on_device_; }      // its offset has the alignment that operators require
  std::span<const std::byte> host() const { return *on_host_; }  // valid as long as the LoweringState

 private:
  std::optional<BufferRange> on_device_;
  std::optional<std::span<const std::byte>> on_host_;
};

struct ConvOperands {
  Operand weights;     // [out, in, x, y]; for a transposed convolution [in, out, x, y], rotated by 180 degrees
  Operand bias;        // one value per output channel
  BufferRange slopes;  // float16 PReLU slopes per output channel
};

// Returns operands with the dtype in which the operator computes.
ConvOperands make_conv_operands(Recorder& recorder, const ConvRun& run, const PackedWeights& packed, DType dtype, bool transposed);

struct FcOperands {
  Operand weights, bias;  // float16 tensors of shape [outputs, inputs] and [outputs]
};

FcOperands make_fc_operands(Recorder& recorder, const FcDims& dims, const PackedWeights& packed);

}  // namespace pumice::dv
