#include "operators/compiled/convert_tensor.h"

#include "core/error.h"
#include "operators/compiled/eager.h"
#include "operators/table/onnx_dtype.h"

namespace pumice {
namespace {

void run_operator(std::string_view name, const Attributes& attributes, const Tensor& x, const Tensor& y,
                  const InterruptCallback& interrupted) {
  const auto make_operator = [&] { return Operator(name, {x.desc()}, {y.desc()}, attributes); };
  run_eagerly(std::string(name), make_operator, {x}, y, interrupted);
}

void copy_bytes(const BufferRange& source, const Tensor& target, const InterruptCallback& interrupted) {
  const BufferRegion whole{0, source.bytes};
  copy(source, target.buffer(), {&whole, 1}, interrupted);
}

// Returns the integer dtype of the same width, for bitwise copies.
DType get_same_width_integer_dtype(DType dtype) {
  switch (bits(dtype)) {
    case 64:
      return DType::int64;
    case 32:
      return DType::int32;
    case 16:
      return DType::uint16;
    default:
      return DType::uint8;
  }
}

}  // namespace

Tensor make_packed_copy(const Tensor& source, const InterruptCallback& interrupted) {
  const TensorDesc& desc = source.desc();
  const Tensor target = Tensor::empty(source.buffer()->context(), desc.dtype, desc.shape);
  if (desc.elements() == 0) return target;
  if (bits(desc.dtype) < 8) {
    std::vector<std::byte> bytes(desc.element_bytes());
    source.download(bytes, interrupted);
    target.upload(bytes, interrupted);
  } else if (desc.is_packed()) {
    copy_bytes({source.buffer(), source.byte_offset(), desc.element_bytes()}, target, interrupted);
  } else {
    const DType word = get_same_width_integer_dtype(desc.dtype);
    run_operator("Identity", {}, ensure_aligned(source, interrupted).reinterpret(word), target.reinterpret(word), interrupted);
  }
  return target;
}

Tensor convert_dtype(const Tensor& source, DType dtype, const InterruptCallback& interrupted) {
  if (dtype == source.desc().dtype) return make_packed_copy(source, interrupted);
  const Tensor target = Tensor::empty(source.buffer()->context(), dtype, source.desc().shape);
  Attributes attributes;
  attributes.set("to", to_onnx_dtype(dtype));
  if (source.desc().elements() == 0) {
    (void)Operator("Cast", {source.desc()}, {target.desc()}, attributes);  // throws for unsupported dtypes
    return target;
  }
  run_operator("Cast", attributes, ensure_aligned(source, interrupted), target, interrupted);
  return target;
}

}  // namespace pumice
