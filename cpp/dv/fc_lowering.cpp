// Lowers fully connected commands to a GEMM.
#include "dv/weight_operands.h"

namespace pumice::dv {

void lower_fc(LoweringState& lowering, const FcCommand& command) {
  Recorder& recorder = lowering.recorder;
  const FcDims dims = make_weight_dims(command);
  const MemoryRange written = get_written_range(command), packed(command.weights, compute_packed_fc_bytes(dims));
  const FcOperands operands = make_fc_operands(recorder, dims, PackedWeights(lowering, packed, packed.overlaps(written)));
  Attributes attributes;
  attributes.set("transB", int64_t{1});
  const TensorDesc x(DType::float16, {1, command.inputs}), y(DType::float16, {1, command.outputs});
  const MemoryRange read(command.input, x.element_bytes());
  const BufferRange target{written.memory->buffer(), written.offset, written.bytes};
  const Operand output{y, make_writable_range(recorder, target)};
  recorder.record_operator(
      "Gemm", attributes,
      {{x, make_readable_range(recorder, command.input, read.bytes, read.overlaps(written))}, operands.weights, operands.bias}, output,
      apply_activation(Expression::name("x"), command.activation, command.slope));
  copy_back_if_scratch(recorder, output.range, target);
}

}  // namespace pumice::dv
