#include "dv/weight_operands.h"

#include <algorithm>

namespace pumice::dv {
namespace {

int64_t signed_size(uint64_t value) {
  return static_cast<int64_t>(value);
}

// Allocates a dense tensor in scratch memory.
Operand scratch_operand(Recorder& recorder, DType dtype, Shape shape) {
  const TensorDesc desc(dtype, std::move(shape));
  return {desc, recorder.scratch(desc.bytes())};
}

// Views a part of `range` as a vector.
Operand vector_in(const BufferRange& range, uint64_t offset, DType dtype, uint64_t count) {
  const TensorDesc desc(dtype, {signed_size(count)});
  return {desc, {range.buffer, range.offset + offset, desc.bytes()}};
}

// Returns values that operators read when the list is prepared.
Operand owned(Recorder& recorder, DType dtype, Shape shape, const std::vector<uint16_t>& halves) {
  const HostTensor stored = HostTensor::copy_of(TensorDesc(DType::float16, shape), halves.data()).converted(dtype);
  return {TensorDesc(dtype, std::move(shape), {}, true), recorder.constant(stored)};
}

Operand gathered(Recorder& recorder, const Operand& source, const Operand& places, Shape shape) {
  const Operand made = scratch_operand(recorder, source.desc.dtype, std::move(shape));
  recorder.run("Gather", {}, {source, places}, made);
  return made;
}

// Gathers elements of `source` by host-side indices.
Operand gathered(Recorder& recorder, const Operand& source, const std::vector<int32_t>& places, const Shape& shape) {
  const TensorDesc desc(DType::int32, shape);
  return gathered(recorder, source, {desc, recorder.constant(HostTensor::copy_of(desc, places.data()))}, shape);
}

// Dequantizes bytes to float16 by the layer's table.
Operand looked_up(Recorder& recorder, const Operand& bytes, const BufferRange& table) {
  const Operand places = scratch_operand(recorder, DType::int32, bytes.desc.shape);
  recorder.map(Expression::parse("i32(in0)"), {bytes}, places);
  return gathered(recorder, vector_in(table, 0, DType::float16, kTableEntries), places, bytes.desc.shape);
}

Operand converted(Recorder& recorder, const Operand& x, DType dtype) {
  if (x.desc.dtype == dtype) return x;
  const Operand made = scratch_operand(recorder, dtype, x.desc.shape);
  recorder.map(Expression::name("in0"), {x}, made);
  return made;
}

// Permutes one run's weights to the operator's layout.
class WeightOrder {
 public:
  WeightOrder(const Run& run, bool transposed)
      : dims_(weight_dims(run.input, run.shape)), transposed_(transposed), swapped_(transposed && !is_depthwise(run.shape.conv)) {}

  const ConvDims& dims() const { return dims_; }
  Shape shape() const {
    return swapped_ ? Shape{dims_.channels, dims_.kernels, dims_.kx, dims_.ky} : Shape{dims_.kernels, dims_.channels, dims_.kx, dims_.ky};
  }

  // Permutes from the order of unpacked weights, (kernel, channel, y, x).
  template <typename T>
  std::vector<T> operator()(const std::vector<T>& unpacked) const {
    const int64_t out = dims_.kernels, in = dims_.channels, kx = dims_.kx, ky = dims_.ky;
    std::vector<T> made(unpacked.size());
    for (int64_t o = 0; o < out; ++o)
      for (int64_t i = 0; i < in; ++i)
        for (int64_t x = 0; x < kx; ++x)
          for (int64_t y = 0; y < ky; ++y) {
            const int64_t kernel = swapped_ ? i * out + o : o * in + i;
            const int64_t column = transposed_ ? kx - 1 - x : x, row = transposed_ ? ky - 1 - y : y;
            made[static_cast<size_t>((kernel * kx + column) * ky + row)] = unpacked[static_cast<size_t>(((o * in + i) * ky + y) * kx + x)];
          }
    return made;
  }

 private:
  ConvDims dims_;
  bool transposed_, swapped_;
};

ConvOperands host_operands(Recorder& recorder, const Run& run, const WeightOrder& order, std::span<const std::byte> packed, DType dtype) {
  const ConvDims& dims = order.dims();
  const auto channels = static_cast<size_t>(dims.kernels);
  std::vector<uint16_t> values(dims.weights()), bias(channels), slopes(dims.prelu ? channels : 0);
  const UnpackedWeights target{.values = values.data(), .bias = bias.data(), .prelu = dims.prelu ? slopes.data() : nullptr};
  if (run.shape.conv_window.dilated())
    unpack_dil_weights(dims, packed, target);
  else
    unpack_conv_weights(dims, packed, target);
  ConvOperands made{owned(recorder, dtype, order.shape(), order(values)), owned(recorder, dtype, {dims.kernels}, bias), {}};
  if (dims.prelu) made.slopes = recorder.constant(HostTensor::copy_of(TensorDesc(DType::float16, {dims.kernels}), slopes.data()));
  return made;
}

ConvOperands device_operands(Recorder& recorder, const Run& run, const WeightOrder& order, const BufferRange& packed, DType dtype) {
  const ConvDims& dims = order.dims();
  const PackedPlaces places = run.shape.conv_window.dilated() ? dil_weight_places(dims) : conv_weight_places(dims);
  const Operand halves = vector_in(packed, 0, DType::float16, packed.bytes / sizeof(uint16_t));
  const Operand weights =
      dims.quantized
          ? looked_up(recorder, gathered(recorder, vector_in(packed, 0, DType::uint8, packed.bytes), order(places.values), order.shape()),
                      packed)
          : gathered(recorder, halves, order(places.values), order.shape());
  ConvOperands made{
      converted(recorder, weights, dtype), converted(recorder, gathered(recorder, halves, places.bias, {dims.kernels}), dtype), {}};
  if (dims.prelu) made.slopes = gathered(recorder, halves, places.prelu, {dims.kernels}).range;
  return made;
}

}  // namespace

PackedWeights::PackedWeights(Lowering& lowering, const MemoryRange& range, bool snapshot) {
  if (lowering.may_be_written(range))
    on_device_ = readable(lowering.recorder, {range.memory, range.offset}, range.bytes, snapshot);
  else
    on_host_ = lowering.read_weights(range);
}

ConvOperands conv_operands(Recorder& recorder, const Run& run, const PackedWeights& packed, DType dtype, bool transposed) {
  const WeightOrder order(run, transposed);
  if (packed.on_device()) return device_operands(recorder, run, order, packed.device(), dtype);
  return host_operands(recorder, run, order, packed.host(), dtype);
}

FcOperands fc_operands(Recorder& recorder, const FcDims& dims, const PackedWeights& packed) {
  const int64_t inputs = signed_size(dims.inputs()), outputs = signed_size(dims.outputs());
  if (!packed.on_device()) {
    std::vector<uint16_t> values(dims.inputs() * dims.outputs()), bias(dims.outputs());
    unpack_fc_weights(dims, packed.host(), {.values = values.data(), .bias = bias.data()});
    return {owned(recorder, DType::float16, {outputs, inputs}, values), owned(recorder, DType::float16, {outputs}, bias)};
  }
  const FcParts parts = fc_parts(dims);
  Operand weights =
      vector_in(packed.device(), parts.weights, dims.quantized ? DType::uint8 : DType::float16, dims.inputs() * dims.outputs());
  weights.desc = TensorDesc(weights.desc.dtype, {outputs, inputs});
  if (dims.quantized) weights = looked_up(recorder, weights, packed.device());
  return {weights, vector_in(packed.device(), parts.bias, DType::float16, dims.outputs())};
}

}  // namespace pumice::dv
