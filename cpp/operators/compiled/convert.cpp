#include "operators/compiled/convert.h"

#include "core/error.h"
#include "operators/compiled/immediate.h"
#include "operators/table/onnx_dtype.h"

namespace pumice {
namespace {

void run_operator(std::string_view name, const Attributes& attributes, const Tensor& x, const Tensor& y, const Interrupted& interrupted) {
  const auto make_operator = [&] { return Operator(name, {x.desc()}, {y.desc()}, attributes); };
  run_immediately(std::string(name), make_operator, {x}, y, interrupted);
}

void copy_bytes(const BufferRange& source, const Tensor& target, const Interrupted& interrupted) {
  const BufferPiece whole{0, source.bytes};
  copy(source, target.buffer(), {&whole, 1}, interrupted);
}

// Integer dtype of the same width, for copies that preserve bits.
DType integer_dtype_of(DType dtype) {
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

Tensor packed_copy(const Tensor& source, const Interrupted& interrupted) {
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
    const DType word = integer_dtype_of(desc.dtype);
    run_operator("Identity", {}, make_aligned(source, interrupted).reinterpret(word), target.reinterpret(word), interrupted);
  }
  return target;
}

Tensor convert_dtype(const Tensor& source, DType dtype, const Interrupted& interrupted) {
  if (dtype == source.desc().dtype) return packed_copy(source, interrupted);
  const Tensor target = Tensor::empty(source.buffer()->context(), dtype, source.desc().shape);
  Attributes attributes;
  attributes.set("to", onnx_number(dtype));
  if (source.desc().elements() == 0) {
    (void)Operator("Cast", {source.desc()}, {target.desc()}, attributes);  // throws for unsupported dtypes
    return target;
  }
  run_operator("Cast", attributes, make_aligned(source, interrupted), target, interrupted);
  return target;
}

}  // namespace pumice
