#include "dv/weight_operands.h"

#include <algorithm>

namespace pumice::dv {
namespace {

int64_t to_signed(uint64_t value) {
  return static_cast<int64_t>(value);
}

// Allocates a packed tensor in scratch memory.
Operand allocate_scratch_operand(Recorder& recorder, DType dtype, Shape shape) {
  const TensorDesc desc(dtype, std::move(shape));
  return {desc, recorder.allocate_scratch(desc.bytes())};
}

// Views a part of `range` as a vector.
Operand make_vector_view(const BufferRange& range, uint64_t offset, DType dtype, uint64_t count) {
  const TensorDesc desc(dtype, {to_signed(count)});
  return {desc, {range.buffer, range.offset + offset, desc.bytes()}};
}

// Returns a constant tensor, which operators read when the list is prepared.
Operand make_constant_operand(Recorder& recorder, DType dtype, Shape shape, const std::vector<uint16_t>& fp16_values) {
  const HostTensor stored = HostTensor::copy_of(TensorDesc(DType::float16, shape), fp16_values.data()).converted(dtype);
  return {TensorDesc(dtype, std::move(shape), {}, true), recorder.upload_constant(stored)};
}

Operand gather(Recorder& recorder, const Operand& source, const Operand& indices, Shape shape) {
  const Operand result = allocate_scratch_operand(recorder, source.desc.dtype, std::move(shape));
  recorder.record_operator("Gather", {}, {source, indices}, result);
  return result;
}

// Gathers elements of `source` by host-side indices.
Operand gather(Recorder& recorder, const Operand& source, const std::vector<int32_t>& indices, const Shape& shape) {
  const TensorDesc desc(DType::int32, shape);
  return gather(recorder, source, {desc, recorder.upload_constant(HostTensor::copy_of(desc, indices.data()))}, shape);
}

// Dequantizes bytes to float16 with the layer's lookup table.
Operand dequantize(Recorder& recorder, const Operand& bytes, const BufferRange& table) {
  const Operand indices = allocate_scratch_operand(recorder, DType::int32, bytes.desc.shape);
  recorder.record_expression(Expression::parse("i32(in0)"), {bytes}, indices);
  return gather(recorder, make_vector_view(table, 0, DType::float16, kTableEntries), indices, bytes.desc.shape);
}

Operand convert(Recorder& recorder, const Operand& x, DType dtype) {
  if (x.desc.dtype == dtype) return x;
  const Operand result = allocate_scratch_operand(recorder, dtype, x.desc.shape);
  recorder.record_expression(Expression::name("in0"), {x}, result);
  return result;
}

// Permutes one run's weights to the operator's layout.
class WeightPermutation {
 public:
  WeightPermutation(const ConvRun& run, bool transposed)
      : dims_(make_weight_dims(run.input, run.shape)), transposed_(transposed), swapped_(transposed && !is_depthwise(run.shape.conv)) {}

  const ConvDims& dims() const { return dims_; }
  Shape shape() const {
    return swapped_ ? Shape{dims_.channels, dims_.kernels, dims_.kx, dims_.ky} : Shape{dims_.kernels, dims_.channels, dims_.kx, dims_.ky};
  }

  // Permutes from the order of unpacked weights, (kernel, channel, y, x).
  template <typename T>
  std::vector<T> operator()(const std::vector<T>& unpacked) const {
    const int64_t out = dims_.kernels, in = dims_.channels, kx = dims_.kx, ky = dims_.ky;
    std::vector<T> result(unpacked.size());
    for (int64_t o = 0; o < out; ++o)
      for (int64_t i = 0; i < in; ++i)
        for (int64_t x = 0; x < kx; ++x)
          for (int64_t y = 0; y < ky; ++y) {
            const int64_t kernel = swapped_ ? i * out + o : o * in + i;
            const int64_t column = transposed_ ? kx - 1 - x : x, row = transposed_ ? ky - 1 - y : y;
            result[static_cast<size_t>((kernel * kx + column) * ky + row)] =
                unpacked[static_cast<size_t>(((o * in + i) * ky + y) * kx + x)];
          }
    return result;
  }

 private:
  ConvDims dims_;
  bool transposed_, swapped_;
};

ConvOperands make_host_operands(Recorder& recorder, const ConvRun& run, const WeightPermutation& order, std::span<const std::byte> packed,
                                DType dtype) {
  const ConvDims& dims = order.dims();
  const auto channels = static_cast<size_t>(dims.kernels);
  std::vector<uint16_t> values(dims.weights()), bias(channels), slopes(dims.prelu ? channels : 0);
  const UnpackedWeights target{.values = values.data(), .bias = bias.data(), .prelu = dims.prelu ? slopes.data() : nullptr};
  if (run.shape.conv_window.dilated())
    unpack_dil_weights(dims, packed, target);
  else
    unpack_conv_weights(dims, packed, target);
  ConvOperands result{make_constant_operand(recorder, dtype, order.shape(), order(values)),
                      make_constant_operand(recorder, dtype, {dims.kernels}, bias),
                      {}};
  if (dims.prelu) result.slopes = recorder.upload_constant(HostTensor::copy_of(TensorDesc(DType::float16, {dims.kernels}), slopes.data()));
  return result;
}

ConvOperands make_device_operands(Recorder& recorder, const ConvRun& run, const WeightPermutation& order, const BufferRange& packed,
                                  DType dtype) {
  const ConvDims& dims = order.dims();
  const PackedOffsets offsets = run.shape.conv_window.dilated() ? compute_dil_offsets(dims) : compute_conv_offsets(dims);
  const Operand fp16_values = make_vector_view(packed, 0, DType::float16, packed.bytes / sizeof(uint16_t));
  const Operand weights =
      dims.quantized
          ? dequantize(recorder,
                       gather(recorder, make_vector_view(packed, 0, DType::uint8, packed.bytes), order(offsets.values), order.shape()),
                       packed)
          : gather(recorder, fp16_values, order(offsets.values), order.shape());
  ConvOperands result{
      convert(recorder, weights, dtype), convert(recorder, gather(recorder, fp16_values, offsets.bias, {dims.kernels}), dtype), {}};
  if (dims.prelu) result.slopes = gather(recorder, fp16_values, offsets.prelu, {dims.kernels}).range;
  return result;
}

}  // namespace

PackedWeights::PackedWeights(LoweringState& lowering, const MemoryRange& range, bool snapshot) {
  if (lowering.may_be_written_by_device(range))
    on_device_ = make_readable_range(lowering.recorder, {range.memory, range.offset}, range.bytes, snapshot);
  else
    on_host_ = lowering.read_tracked_weights(range);
}

ConvOperands make_conv_operands(Recorder& recorder, const ConvRun& run, const PackedWeights& packed, DType dtype, bool transposed) {
  const WeightPermutation order(run, transposed);
  if (packed.on_device()) return make_device_operands(recorder, run, order, packed.device(), dtype);
  return make_host_operands(recorder, run, order, packed.host(), dtype);
}

FcOperands make_fc_operands(Recorder& recorder, const FcDims& dims, const PackedWeights& packed) {
  const int64_t inputs = to_signed(dims.inputs()), outputs = to_signed(dims.outputs());
  if (!packed.on_device()) {
    std::vector<uint16_t> values(dims.inputs() * dims.outputs()), bias(dims.outputs());
    unpack_fc_weights(dims, packed.host(), {.values = values.data(), .bias = bias.data()});
    return {make_constant_operand(recorder, DType::float16, {outputs, inputs}, values),
            make_constant_operand(recorder, DType::float16, {outputs}, bias)};
  }
  const FcOffsets offsets = compute_fc_offsets(dims);
  Operand weights =
      make_vector_view(packed.device(), offsets.weights, dims.quantized ? DType::uint8 : DType::float16, dims.inputs() * dims.outputs());
  weights.desc = TensorDesc(weights.desc.dtype, {outputs, inputs});
  if (dims.quantized) weights = dequantize(recorder, weights, packed.device());
  return {weights, make_vector_view(packed.device(), offsets.bias, DType::float16, dims.outputs())};
}

}  // namespace pumice::dv
