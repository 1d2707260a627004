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
  uint64_t byte_offset() const;  // StateError where a view of packed elements starts mid-byte
  // The bytes from the first element to the last one reached.
  BufferRange range() const { return {buffer_, byte_offset(), desc_.bytes()}; }
  // True for a row-major tensor that every kernel can read: it begins at a multiple of the alignment that the device and the description
  // ask for.
  bool is_contiguous() const;

  // Views. Negative axes count from the end. Throw GraphError where the shape has no such view. Scales by channel stay with transpose and
  // broadcast_to alone.
  Tensor transpose(const std::vector<int>& axes) const;
  Tensor reshape(Shape shape) const;  // one size may be -1: what is left. GraphError where elements would have to be moved
  Tensor broadcast_to(const Shape& shape) const;
  // Part of one axis: elements begin, begin + step, ... (count of them); step > 0.
  Tensor slice(int axis, int64_t begin, int64_t count, int64_t step = 1) const;
  Tensor select(int axis, int64_t index) const;  // drops the axis
  Tensor expand_dims(int axis) const;            // a new axis of size 1 at this place
  Tensor squeeze(const std::vector<int>& axes) const;
  Tensor reinterpret(DType dtype) const;  // the same bytes; as many bits

  // Copy packed row-major host bytes, as many as elements, in and out; the tensor may be strided, written elements must not share memory
  // (GraphError). `interrupted` as in pumice::upload. Elements of less than a byte are written packed only (UnsupportedError).
  void upload(std::span<const std::byte> source, const Interrupted& interrupted = {}) const;
  void download(std::span<std::byte> target, const Interrupted& interrupted = {}) const;
  // Copies the elements of a packed tensor of the same dtype, shape and context, which shares no memory with this one, on the device. Its
  // rules are upload's.
  void copy_from(const Tensor& packed, const Interrupted& interrupted = {}) const;
  // Sets all elements to one, given by its bytes; of a dtype of less than a byte by the low bits of one.
  void fill(std::span<const std::byte> element, const Interrupted& interrupted = {}) const;

 private:
  void check_writable() const;
  void upload_lanes(std::span<const std::byte> source, const Interrupted& interrupted) const;
  void download_lanes(std::span<std::byte> target, const Interrupted& interrupted) const;
  std::vector<BufferPiece> pieces() const;  // contiguous runs of elements in row-major order
  size_t width() const { return static_cast<size_t>(bits(desc_.dtype)) / 8; }

  TensorDesc desc_;
  std::shared_ptr<Buffer> buffer_;
  int64_t offset_ = 0;
};

}  // namespace pumice
