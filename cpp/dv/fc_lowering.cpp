// Lowers fully connected commands to a GEMM.
#include "dv/weight_operands.h"

namespace pumice::dv {

void lower_fc(Lowering& lowering, const FcCommand& command) {
  Recorder& recorder = lowering.recorder;
  const FcDims dims = weight_dims(command);
  const MemoryRange written = written_range(command), packed(command.weights, packed_fc_bytes(dims));
  const FcOperands operands = fc_operands(recorder, dims, PackedWeights(lowering, packed, packed.overlaps(written)));
  Attributes attributes;
  attributes.set("transB", int64_t{1});
  const TensorDesc x(DType::float16, {1, command.inputs}), y(DType::float16, {1, command.outputs});
  const MemoryRange read(command.input, x.element_bytes());
  const BufferRange target{written.memory->buffer(), written.offset, written.bytes};
  const Operand output{y, writable_range(recorder, target)};
  recorder.run("Gemm", attributes,
               {{x, readable_range(recorder, command.input, read.bytes, read.overlaps(written))}, operands.weights, operands.bias}, output,
               apply_activation(Expression::name("x"), command.activation, command.slope));
  finish_write(recorder, output.range, target);
}

}  // namespace pumice::dv
