// Buffer protocol (memoryview(), NumPy) for mapped tensors.
#include "bindings.h"
#include "core/strides.h"
#include "device/tensor.h"

namespace pumice {
namespace {

// Returns the format character of the struct module; null if there is none.
const char* get_buffer_format(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return "d";
    case DType::float32:
      return "f";
    case DType::float16:
      return "e";
    case DType::int64:
      return "q";
    case DType::uint64:
      return "Q";
    case DType::int32:
      return "i";
    case DType::uint32:
      return "I";
    case DType::int16:
      return "h";
    case DType::uint16:
      return "H";
    case DType::int8:
      return "b";
    case DType::uint8:
      return "B";
    case DType::bool_:
      return "?";
    default:
      return nullptr;
  }
}

template <typename T>
std::vector<T> make_reversed(const std::vector<T>& values) {
  return {values.rbegin(), values.rend()};
}

// Owns what a Py_buffer refers to: the tensor, shape and strides.
struct ExportedBuffer {
  Tensor tensor;
  std::vector<Py_ssize_t> shape, strides;
};

// Implements bf_getbuffer for the mapped memory. Like Buffer.map(), it does not wait for the device.
int get_buffer(PyObject* object, Py_buffer* view, int flags) {
  std::shared_ptr<Tensor> tensor_owner;
  try {
    tensor_owner = py::handle(object).cast<std::shared_ptr<Tensor>>();
  } catch (const py::cast_error&) {
    PyErr_SetString(PyExc_BufferError, "this Tensor was not initialised");
    return -1;
  }
  const Tensor& self = *tensor_owner;
  const TensorDesc& desc = self.desc();
  const char* format = get_buffer_format(desc.dtype);
  const auto requests = [flags](int requested) { return (flags & requested) == requested; };
  const bool is_read_only = has_internal_overlap(desc.shape, desc.strides);
  const bool by_rows = desc.is_packed(), by_columns = is_packed(make_reversed(desc.shape), make_reversed(desc.strides));
  const char* reason = !self.buffer()->mapped()  ? "the buffer of this Tensor is not mapped: .buffer.map() maps it, .numpy() makes a copy"
                       : self.buffer()->closed() ? "the buffer of this Tensor is closed"
                       : !format                 ? "the buffer protocol has no format for a dtype that NumPy lacks"
                       : !by_rows && !requests(PyBUF_STRIDES) ? "this Tensor is strided, but the request does not support strides"
                       : (requests(PyBUF_C_CONTIGUOUS) && !by_rows) || (requests(PyBUF_F_CONTIGUOUS) && !by_columns) ||
                               (requests(PyBUF_ANY_CONTIGUOUS) && !by_rows && !by_columns)
                           ? "this Tensor is strided, but the request is for contiguous memory"
                       : requests(PyBUF_WRITABLE) && is_read_only ? "elements of this Tensor share memory: it is read-only here"
                                                                  : nullptr;
  if (reason) {
    PyErr_SetString(PyExc_BufferError, reason);
    return -1;
  }
  const Py_ssize_t width = bits(desc.dtype) / 8;
  auto exported = std::make_unique<ExportedBuffer>(ExportedBuffer{self, {desc.shape.begin(), desc.shape.end()}, {}});
  for (const int64_t stride : desc.strides) exported->strides.push_back(stride * width);
  *view = {};
  view->buf = self.buffer()->host_bytes() + self.byte_offset();
  view->obj = py::handle(object).inc_ref().ptr();
  view->len = static_cast<Py_ssize_t>(desc.element_bytes());
  view->itemsize = width;
  view->ndim = desc.rank();
  view->readonly = is_read_only;
  if (flags & PyBUF_FORMAT) view->format = const_cast<char*>(format);
  if (flags & PyBUF_ND) view->shape = exported->shape.data();
  if (requests(PyBUF_STRIDES)) view->strides = exported->strides.data();
  self.buffer()->adjust_view_count(1);
  view->internal = exported.release();
  return 0;
}

void release_buffer(PyObject*, Py_buffer* view) {
  const std::unique_ptr<ExportedBuffer> exported(static_cast<ExportedBuffer*>(view->internal));
  exported->tensor.buffer()->adjust_view_count(-1);
}

}  // namespace

void add_buffer_protocol(PyHeapTypeObject* type) {
  type->as_buffer.bf_getbuffer = get_buffer;
  type->as_buffer.bf_releasebuffer = release_buffer;
  type->ht_type.tp_as_buffer = &type->as_buffer;
}

}  // namespace pumice
