// Fully connected commands as a matrix product.
#include "dv/lowering.h"

namespace pumice::dv {

void lower_fc(Lowering& lowering, const FcCommand& command) {
  Recorder& recorder = lowering.recorder;
  const FcDims dims = weight_dims(command);
  std::vector<uint16_t> values(dims.inputs() * dims.outputs()), bias(dims.outputs());
  unpack_fc_weights(dims, command.weights.memory->read(command.weights.offset, packed_fc_bytes(dims)),
                    {.values = values.data(), .bias = bias.data()});
  const int64_t inputs = command.inputs, outputs = command.outputs;
  const auto owned = [&](const std::vector<uint16_t>& data, Shape shape) {
    const HostTensor host = HostTensor::copy_of(TensorDesc(DType::float16, shape), data.data());
    return Operand{TensorDesc(DType::float16, std::move(shape), {}, true), recorder.constant(host)};
  };
  Attributes attributes;
  attributes.set("transB", int64_t{1});
  const TensorDesc x(DType::float16, {1, inputs}), y(DType::float16, {1, outputs});
  const uint64_t x_bytes = x.element_bytes(), y_bytes = y.element_bytes();
  const BufferRange target{command.output.memory->buffer(), command.output.offset, y_bytes};
  const bool overlaps = command.input.memory == command.output.memory && command.input.offset < command.output.offset + y_bytes &&
                        command.output.offset < command.input.offset + x_bytes;
  const Operand made{y, writable(recorder, target)};
  recorder.run("Gemm", attributes,
               {{x, readable(recorder, command.input, x_bytes, overlaps)}, owned(values, {outputs, inputs}), owned(bias, {outputs})}, made,
               activated(Expression::name("x"), command.activation, command.slope));
  finish_write(recorder, made.range, target);
}

}  // namespace pumice::dv
