// A TensorDesc with the buffer range that stores it. Views share the buffer.
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
  // `offset`: elements from the start of the buffer. Throws BindingError (R1) if the buffer is too small.
  Tensor(TensorDesc desc, std::shared_ptr<Buffer> buffer, int64_t offset = 0);
  static Tensor empty(std::shared_ptr<Context> context, DType dtype, Shape shape, Heap heap = Heap::default_);

  const TensorDesc& desc() const { return desc_; }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  int64_t offset() const { return offset_; }
  uint64_t byte_offset() const;  // throws StateError if a view of packed sub-byte elements starts mid-byte
  // Returns the range from the first element through the last one.
  BufferRange range() const { return {buffer_, byte_offset(), desc_.bytes()}; }
  // Whether the tensor is row-major and its offset has the alignment required by the device and the description, so that every kernel can
  // read it.
  bool is_contiguous() const;

  // Return views. Negative axes count from the end. The functions throw GraphError if no such view exists. Only transpose and broadcast_to
  // keep per-channel scales.
  Tensor transpose(const std::vector<int>& axes) const;
  Tensor reshape(Shape shape) const;  // one size may be -1 (inferred). Throws GraphError if elements would have to be moved
  Tensor broadcast_to(const Shape& shape) const;
  // Returns the elements begin, begin + step, ... (`count` of them) along an axis; step > 0.
  Tensor slice(int axis, int64_t begin, int64_t count, int64_t step = 1) const;
  Tensor select(int axis, int64_t index) const;  // selects one index and removes the axis
  Tensor expand_dims(int axis) const;            // inserts an axis of size 1 at this position
  Tensor squeeze(const std::vector<int>& axes) const;
  Tensor reinterpret(DType dtype) const;  // reinterprets the bytes as a dtype of the same width

  // Copy all elements from or to packed row-major host bytes. The tensor may be strided, but elements that are written must not overlap
  // (GraphError). `interrupted` as in pumice::upload. Sub-byte elements can only be written to packed tensors (UnsupportedError).
  void upload(std::span<const std::byte> source, const InterruptCallback& interrupted = {}) const;
  void download(std::span<std::byte> target, const InterruptCallback& interrupted = {}) const;
  // Copies a packed tensor of the same dtype, shape and context on the device; it must not share memory with this one. Same rules as
  // upload().
  void copy_from(const Tensor& packed, const InterruptCallback& interrupted = {}) const;
  // Sets all elements to a value, given as its bytes; sub-byte values are in the low bits.
  void fill(std::span<const std::byte> element, const InterruptCallback& interrupted = {}) const;

 private:
  void check_writable() const;
  void upload_sub_byte(std::span<const std::byte> source, const InterruptCallback& interrupted) const;
  void download_sub_byte(std::span<std::byte> target, const InterruptCallback& interrupted) const;
  std::vector<BufferRegion> contiguous_regions() const;  // contiguous runs of elements, row-major
  size_t element_size() const { return static_cast<size_t>(bits(desc_.dtype)) / 8; }

  TensorDesc desc_;
  std::shared_ptr<Buffer> buffer_;
  int64_t offset_ = 0;
};

}  // namespace pumice
