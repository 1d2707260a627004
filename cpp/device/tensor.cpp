#include "device/tensor.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/error.h"

namespace pumice {
namespace {

// Host bytes of a packed tensor.
uint64_t packed_bytes(const TensorDesc& desc) {
  return desc.element_bytes();
}

void check_axis(const TensorDesc& desc, int axis) {
  if (axis < 0 || axis >= desc.rank())
    throw GraphError("tensor", "axis " + std::to_string(axis) + " of a tensor of rank " + std::to_string(desc.rank()));
}

// Copies the elements of a strided tensor to packed memory.
void gather(const TensorDesc& desc, const std::byte* source, std::byte* target) {
  const size_t element = static_cast<size_t>(bits(desc.dtype)) / 8;
  Shape index(desc.shape.size(), 0);
  for (int64_t i = 0, count = desc.elements(); i < count; ++i) {
    const int64_t at = std::inner_product(index.begin(), index.end(), desc.strides.begin(), int64_t{0});
    std::memcpy(target + static_cast<size_t>(i) * element, source + static_cast<size_t>(at) * element, element);
    for (size_t axis = index.size(); axis-- > 0 && ++index[axis] == desc.shape[axis];) index[axis] = 0;
  }
}

}  // namespace

Tensor::Tensor(TensorDesc desc, std::shared_ptr<Buffer> buffer, int64_t offset)
    : desc_(std::move(desc)), buffer_(std::move(buffer)), offset_(offset) {
  const uint64_t begin = byte_offset(), size = buffer_->bytes();
  if (offset < 0 || begin > size || desc_.bytes() > (size + 3) / 4 * 4 - begin)
    throw BindingError("R1", "tensor", "", "a buffer of at least " + std::to_string(begin + desc_.bytes()) + " bytes",
                       std::to_string(size) + " bytes");
}

Tensor Tensor::empty(std::shared_ptr<Context> context, DType dtype, Shape shape, Heap heap) {
  TensorDesc desc(dtype, std::move(shape));
  const uint64_t bytes = desc.bytes();
  return {std::move(desc), Buffer::create(std::move(context), bytes, heap)};
}

uint64_t Tensor::byte_offset() const {
  const uint64_t offset_bits = static_cast<uint64_t>(offset_) * static_cast<uint64_t>(bits(desc_.dtype));
  if (offset_bits % 8) throw StateError("a view of a 4-bit tensor that starts in the middle of a byte has no address");
  return offset_bits / 8;
}

Tensor Tensor::transpose(const std::vector<int>& axes) const {
  if (axes.size() != desc_.shape.size())
    throw GraphError("transpose", std::to_string(axes.size()) + " axes for a tensor of rank " + std::to_string(desc_.rank()));
  Tensor view = *this;
  std::vector<bool> seen(axes.size(), false);
  for (size_t i = 0; i < axes.size(); ++i) {
    check_axis(desc_, axes[i]);
    if (seen[axes[i]]) throw GraphError("transpose", "axis " + std::to_string(axes[i]) + " is named twice");
    seen[axes[i]] = true;
    view.desc_.shape[i] = desc_.shape[axes[i]];
    view.desc_.strides[i] = desc_.strides[axes[i]];
  }
  return view;
}

Tensor Tensor::reshape(const Shape& shape) const {
  if (element_count(shape) != desc_.elements())
    throw GraphError("reshape", "cannot see " + to_string(desc_.shape) + " as " + to_string(shape) + ": the element counts differ");
  if (!desc_.is_packed())
    throw GraphError("reshape", "a strided tensor of shape " + to_string(desc_.shape) + " needs a copy to be seen as " + to_string(shape) +
                                    ": call .contiguous() first");
  Tensor view = *this;
  view.desc_.shape = shape;
  view.desc_.strides = packed_strides(shape);
  return view;
}

Tensor Tensor::broadcast_to(const Shape& shape) const {
  Tensor view = *this;
  view.desc_.strides = broadcast_strides(desc_.shape, desc_.strides, shape);
  view.desc_.shape = shape;
  return view;
}

Tensor Tensor::slice(int axis, int64_t begin, int64_t count, int64_t step) const {
  check_axis(desc_, axis);
  if (step < 1) throw GraphError("slice", "a step of " + std::to_string(step) + "; a view's step is at least 1");
  if (begin < 0 || count < 0 || (count > 0 && begin + (count - 1) * step >= desc_.shape[axis]))
    throw GraphError("slice", "elements " + std::to_string(begin) + " to " + std::to_string(begin + (count - 1) * step) +
                                  " of an axis of " + std::to_string(desc_.shape[axis]));
  Tensor view = *this;
  if (count > 0) view.offset_ += begin * desc_.strides[axis];
  view.desc_.shape[axis] = count;
  view.desc_.strides[axis] *= step;
  return view;
}

Tensor Tensor::select(int axis, int64_t index) const {
  Tensor view = slice(axis, index, 1);
  view.desc_.shape.erase(view.desc_.shape.begin() + axis);
  view.desc_.strides.erase(view.desc_.strides.begin() + axis);
  return view;
}

void Tensor::upload(std::span<const std::byte> source) const {
  if (!desc_.is_packed())
    throw GraphError("upload", "host data goes into a packed tensor, not into a strided view of shape " + to_string(desc_.shape) +
                                   "; fill a .contiguous() tensor instead");
  const uint64_t bytes = packed_bytes(desc_);
  if (source.size() != bytes)
    throw BindingError("R2", "tensor", "", std::to_string(bytes) + " bytes of host data", std::to_string(source.size()));
  pumice::upload(range(), source);
}

void Tensor::download(std::span<std::byte> target) const {
  const uint64_t bytes = packed_bytes(desc_);
  if (target.size() != bytes)
    throw BindingError("R2", "tensor", "", std::to_string(bytes) + " bytes of host memory", std::to_string(target.size()));
  if (desc_.is_packed()) return pumice::download({buffer_, byte_offset(), bytes}, target);
  if (bits(desc_.dtype) < 8) throw UnsupportedError("downloading a strided view of a 4-bit tensor");
  std::vector<std::byte> span(desc_.bytes());
  const uint64_t available = std::min<uint64_t>(span.size(), buffer_->bytes() - byte_offset());
  pumice::download({buffer_, byte_offset(), available}, std::span(span).first(available));
  gather(desc_, span.data(), target.data());
}

}  // namespace pumice
