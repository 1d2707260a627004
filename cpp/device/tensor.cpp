#include "device/tensor.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "core/strided_copy.h"

namespace pumice {
namespace {

constexpr int64_t kSpanRatio =
    4;  // a strided tensor is downloaded as one range if the range is at most this many times as large as the elements

void check_host_bytes(const TensorDesc& desc, size_t host_bytes) {
  if (host_bytes != desc.element_bytes())
    throw BindingError("R2", "tensor", "", std::to_string(desc.element_bytes()) + " bytes on the host", std::to_string(host_bytes));
}

Shape infer_reshape_shape(const TensorDesc& desc, Shape shape) {
  const auto free = std::find(shape.begin(), shape.end(), -1);
  if (free != shape.end()) {
    *free = 1;
    const int64_t known_count = element_count(shape);
    *free = known_count > 0 && std::find(free + 1, shape.end(), -1) == shape.end() ? desc.elements() / known_count : -1;
  }
  check_shape(shape);
  if (element_count(shape) != desc.elements())
    throw GraphError("reshape", "cannot view " + to_string(desc.shape) + " as " + to_string(shape) + ": the element counts differ");
  return shape;
}

// Per-channel scales do not apply to a view with other axes.
void remove_channel_scales(TensorDesc& desc) {
  if (desc.channel_axis) desc.quantized({});
}

// Extracts a sub-byte element.
uint8_t read_sub_byte_element(std::span<const std::byte> bytes, int64_t width, int64_t index) {
  return static_cast<uint8_t>(static_cast<int>(bytes[static_cast<size_t>(index * width / 8)]) >> index * width % 8 & ((1 << width) - 1));
}

}  // namespace

Tensor::Tensor(TensorDesc desc, std::shared_ptr<Buffer> buffer, int64_t offset)
    : desc_(std::move(desc)), buffer_(std::move(buffer)), offset_(offset) {
  if (offset < 0) throw BindingError("R1", "tensor", "", "a non-negative offset in elements", std::to_string(offset));
  const int64_t end = checked_add(offset, count_span_elements(desc_.shape, desc_.strides), "buffer size");
  const auto end_bits = static_cast<uint64_t>(checked_mul(end, bits(desc_.dtype), "buffer size"));
  if ((end_bits + 7) / 8 > buffer_->bytes())
    throw BindingError("R1", "tensor", "", "a buffer of at least " + std::to_string((end_bits + 7) / 8) + " bytes",
                       std::to_string(buffer_->bytes()) + " bytes");
  (void)byte_offset();
}

Tensor Tensor::empty(std::shared_ptr<Context> context, DType dtype, Shape shape, Heap heap) {
  TensorDesc desc(dtype, std::move(shape));
  const uint64_t bytes = desc.bytes();
  return {std::move(desc), Buffer::create(std::move(context), bytes, heap)};
}

uint64_t Tensor::byte_offset() const {
  const uint64_t offset_bits = static_cast<uint64_t>(offset_) * static_cast<uint64_t>(bits(desc_.dtype));
  if (offset_bits % 8) throw StateError("a view of a tensor of packed elements that starts in the middle of a byte has no address");
  return offset_bits / 8;
}

bool Tensor::is_contiguous() const {
  const uint64_t alignment = std::max(desc_.required_alignment(), buffer_->context()->limit("minStorageBufferOffsetAlignment"));
  return desc_.is_packed() && byte_offset() % alignment == 0;
}

Tensor Tensor::transpose(const std::vector<int>& axes) const {
  Tensor view = *this;
  view.desc_ = desc_.permute(axes);
  return view;
}

Tensor Tensor::reshape(Shape shape) const {
  shape = infer_reshape_shape(desc_, std::move(shape));
  const auto strides = compute_view_strides(desc_.shape, desc_.strides, shape);
  if (!strides)
    throw GraphError("reshape", "a tensor of shape " + to_string(desc_.shape) + " with strides " + to_string(desc_.strides) +
                                    " cannot be viewed as " + to_string(shape) + " without a copy: call .contiguous() first");
  Tensor view = *this;
  remove_channel_scales(view.desc_);
  view.desc_.shape = std::move(shape);
  view.desc_.strides = *strides;
  return view;
}

Tensor Tensor::broadcast_to(const Shape& shape) const {
  Tensor view = *this;
  view.desc_ = desc_.broadcast_to(shape);
  return view;
}

Tensor Tensor::slice(int axis, int64_t begin, int64_t count, int64_t step) const {
  const auto at = static_cast<size_t>(normalize_axis(axis, desc_.rank(), "slice"));
  if (step < 1)
    throw GraphError(
        "slice",
        "a step of " + std::to_string(step) +
            "; the step of a view must be at least 1, because strides are not negative: use the operator Slice for a reversed copy");
  if (begin < 0 || count < 0 || (count > 0 && (begin >= desc_.shape[at] || count - 1 > (desc_.shape[at] - 1 - begin) / step)))
    throw GraphError("slice", std::to_string(count) + " elements from index " + std::to_string(begin) + " in steps of " +
                                  std::to_string(step) + " do not fit in an axis of " + std::to_string(desc_.shape[at]));
  Tensor view = *this;
  remove_channel_scales(view.desc_);
  view.desc_.padding_bytes = 0;
  view.desc_.shape[at] = count;
  if (view.desc_.elements() > 0) view.offset_ += begin * desc_.strides[at];  // an empty view could start past the end of the buffer
  if (count > 1) view.desc_.strides[at] *= step;
  return view;
}

Tensor Tensor::select(int axis, int64_t index) const {
  const int at = normalize_axis(axis, desc_.rank(), "select");
  Tensor view = slice(at, index, 1);
  view.desc_.shape.erase(view.desc_.shape.begin() + at);
  view.desc_.strides.erase(view.desc_.strides.begin() + at);
  return view;
}

Tensor Tensor::expand_dims(int axis) const {
  const int at = normalize_axis(axis, desc_.rank() + 1, "expand_dims");
  Tensor view = *this;
  remove_channel_scales(view.desc_);
  const int64_t stride = at < desc_.rank() ? desc_.shape[static_cast<size_t>(at)] * desc_.strides[static_cast<size_t>(at)] : 1;
  view.desc_.shape.insert(view.desc_.shape.begin() + at, 1);
  view.desc_.strides.insert(view.desc_.strides.begin() + at, stride);
  check_shape(view.desc_.shape);
  return view;
}

Tensor Tensor::squeeze(const std::vector<int>& axes) const {
  std::vector<bool> dropped(desc_.shape.size(), false);
  for (const int axis : axes) {
    const auto at = static_cast<size_t>(normalize_axis(axis, desc_.rank(), "squeeze"));
    if (desc_.shape[at] != 1)
      throw GraphError("squeeze", "axis " + std::to_string(axis) + " of " + to_string(desc_.shape) + " has size " +
                                      std::to_string(desc_.shape[at]) + "; expected 1");
    dropped[at] = true;
  }
  Tensor view = *this;
  remove_channel_scales(view.desc_);
  for (size_t i = dropped.size(); i-- > 0;) {
    if (!dropped[i]) continue;
    view.desc_.shape.erase(view.desc_.shape.begin() + static_cast<std::ptrdiff_t>(i));
    view.desc_.strides.erase(view.desc_.strides.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return view;
}

Tensor Tensor::reinterpret(DType dtype) const {
  if (bits(dtype) != bits(desc_.dtype))
    throw GraphError("reinterpret",
                     "a tensor of " + std::string(name(desc_.dtype)) + " as " + std::string(name(dtype)) + ": elements of different sizes");
  Tensor view = *this;
  view.desc_.dtype = dtype;
  return view;
}

std::vector<BufferRegion> Tensor::contiguous_regions() const {
  const StridedRuns runs(element_size(), desc_.shape, to_byte_strides(desc_.strides, element_size()),
                         to_byte_strides(packed_strides(desc_.shape), element_size()));
  std::vector<BufferRegion> result;
  runs.visit([&](int64_t from, int64_t) { result.push_back({byte_offset() + static_cast<uint64_t>(from), runs.run_bytes()}); });
  return result;
}

void Tensor::check_writable() const {
  if (has_internal_overlap(desc_.shape, desc_.strides))
    throw GraphError("tensor", "elements of a view of shape " + to_string(desc_.shape) + " with strides " + to_string(desc_.strides) +
                                   " share memory; write to the tensor that it is a view of");
}

void Tensor::copy_from(const Tensor& packed, const InterruptCallback& interrupted) const {
  check_writable();
  if (bits(desc_.dtype) < 8) {
    std::vector<std::byte> bytes(desc_.element_bytes());
    packed.download(bytes, interrupted);
    return upload(bytes, interrupted);
  }
  if (!packed.desc_.is_packed()) throw Error("copy_from: expected a packed tensor");
  pumice::copy({packed.buffer_, packed.byte_offset(), desc_.element_bytes()}, buffer_, contiguous_regions(), interrupted);
}

void Tensor::upload(std::span<const std::byte> source, const InterruptCallback& interrupted) const {
  check_host_bytes(desc_, source.size());
  check_writable();
  if (bits(desc_.dtype) < 8) return upload_sub_byte(source, interrupted);
  if (desc_.is_packed()) return pumice::upload({buffer_, byte_offset(), source.size()}, source, interrupted);
  if (count_span_elements(desc_.shape, desc_.strides) > desc_.elements())
    return pumice::upload(buffer_, contiguous_regions(), source, interrupted);
  std::vector<std::byte> span(source.size());  // elements in memory order
  copy_strided(element_size(), desc_.shape, source.data(), to_byte_strides(packed_strides(desc_.shape), element_size()), span.data(),
               to_byte_strides(desc_.strides, element_size()));
  pumice::upload({buffer_, byte_offset(), span.size()}, span, interrupted);
}

void Tensor::download(std::span<std::byte> target, const InterruptCallback& interrupted) const {
  check_host_bytes(desc_, target.size());
  if (bits(desc_.dtype) < 8) return download_sub_byte(target, interrupted);
  if (desc_.is_packed()) return pumice::download({buffer_, byte_offset(), target.size()}, target, interrupted);
  const int64_t reached = count_span_elements(desc_.shape, desc_.strides);
  if (reached / kSpanRatio > desc_.elements()) return pumice::download(buffer_, contiguous_regions(), target, interrupted);
  std::vector<std::byte> span(static_cast<size_t>(reached) * element_size());
  pumice::download({buffer_, byte_offset(), span.size()}, span, interrupted);
  copy_strided(element_size(), desc_.shape, span.data(), to_byte_strides(desc_.strides, element_size()), target.data(),
               to_byte_strides(packed_strides(desc_.shape), element_size()));
}

// The last byte may also contain elements outside this tensor, so only the bits of this tensor are replaced.
void Tensor::upload_sub_byte(std::span<const std::byte> source, const InterruptCallback& interrupted) const {
  const int width = bits(desc_.dtype);
  if (!desc_.is_packed()) throw UnsupportedError("writing to a strided view of a " + std::to_string(width) + "-bit tensor");
  if (source.empty()) return;
  const uint64_t begin = byte_offset();
  std::vector<std::byte> bytes(source.begin(), source.end());
  if (const int64_t tail_bits = desc_.elements() * width % 8; tail_bits != 0 && !buffer_->context()->compile_only()) {
    std::byte last{};
    pumice::download({buffer_, begin + bytes.size() - 1, 1}, {&last, 1}, interrupted);
    const auto tail_mask = static_cast<std::byte>((1 << tail_bits) - 1);
    bytes.back() = (bytes.back() & tail_mask) | (last & ~tail_mask);
  }
  pumice::upload({buffer_, begin, bytes.size()}, bytes, interrupted);
}

void Tensor::download_sub_byte(std::span<std::byte> target, const InterruptCallback& interrupted) const {
  const int64_t width = bits(desc_.dtype), elements_per_byte = 8 / width;
  const int64_t reached = count_span_elements(desc_.shape, desc_.strides), first = offset_ % elements_per_byte;
  std::vector<std::byte> span(static_cast<size_t>((first + reached + elements_per_byte - 1) / elements_per_byte));
  if (reached > 0) pumice::download({buffer_, static_cast<uint64_t>(offset_ / elements_per_byte), span.size()}, span, interrupted);
  std::fill(target.begin(), target.end(), std::byte{0});
  const StridedRuns runs(1, desc_.shape, desc_.strides, packed_strides(desc_.shape));
  runs.visit([&](int64_t from, int64_t to) {
    for (int64_t i = 0; i < static_cast<int64_t>(runs.run_bytes()); ++i)
      target[static_cast<size_t>((to + i) * width / 8)] |=
          static_cast<std::byte>(read_sub_byte_element(span, width, first + from + i) << (to + i) * width % 8);
  });
}

void Tensor::fill(std::span<const std::byte> element, const InterruptCallback& interrupted) const {
  if (element.size() != std::max<size_t>(element_size(), 1))
    throw BindingError("R2", "tensor", "", "the bytes of one " + std::string(name(desc_.dtype)), std::to_string(element.size()) + " bytes");
  std::array<std::byte, 8> pattern;
  for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = element[i % element.size()];
  if (const int width = bits(desc_.dtype); width < 8)
    pattern.fill(static_cast<std::byte>((static_cast<int>(element[0]) & ((1 << width) - 1)) * (width == 4 ? 0x11 : 0x55)));
  const auto write = [&](const Tensor& view) {
    std::vector<std::byte> bytes(view.desc_.element_bytes());
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern[i % pattern.size()];
    view.upload(bytes, interrupted);
  };
  const bool is_word = std::equal(pattern.begin(), pattern.begin() + 4, pattern.begin() + 4);
  if (!desc_.is_packed() || byte_offset() % 4 || !is_word) return write(*this);
  const Tensor line = reshape({-1});
  const int64_t lanes = std::max(32 / bits(desc_.dtype), 1), whole = desc_.elements() / lanes * lanes;
  uint32_t word = 0;
  std::memcpy(&word, pattern.data(), sizeof word);
  pumice::fill({buffer_, byte_offset(), line.slice(0, 0, whole).desc_.element_bytes()}, word, interrupted);
  write(line.slice(0, whole, desc_.elements() - whole));
}

}  // namespace pumice
