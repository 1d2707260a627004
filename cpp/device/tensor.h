// A TensorDesc and the buffer range that holds it; views share the buffer and copy nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/tensor_desc.h"
#include "device/buffer.h"

namespace pumice {

class Tensor {
 public:
  // `offset` in elements from the buffer's start. Throws BindingError (R1) where the buffer is too small.
  Tensor(TensorDesc desc, std::shared_ptr<Buffer> buffer, int64_t offset = 0);
  static Tensor empty(std::shared_ptr<Context> context, DType dtype, Shape shape, Heap heap = Heap::default_);

  const TensorDesc& desc() const { return desc_; }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  int64_t offset() const { return offset_; }
  uint64_t byte_offset() const;  // StateError where a 4-bit view starts mid-byte
  // From the first element to the last one reached.
  BufferRange range() const { return {buffer_, byte_offset(), desc_.bytes()}; }

  Tensor transpose(const std::vector<int>& axes) const;
  Tensor reshape(const Shape& shape) const;  // GraphError where that needs a copy
  Tensor broadcast_to(const Shape& shape) const;
  // One axis: elements begin, begin + step, ... (count of them); step > 0.
  Tensor slice(int axis, int64_t begin, int64_t count, int64_t step = 1) const;
  Tensor select(int axis, int64_t index) const;  // drops the axis

  // Packed row-major host bytes, as many as elements. upload needs a packed tensor (GraphError names .contiguous()).
  void upload(std::span<const std::byte> source) const;
  void download(std::span<std::byte> target) const;

 private:
  TensorDesc desc_;
  std::shared_ptr<Buffer> buffer_;
  int64_t offset_ = 0;
};

}  // namespace pumice
