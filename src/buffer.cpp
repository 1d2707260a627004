#include "device/buffer.h"

#include "bindings.h"
#include "core/error.h"

namespace pumice {

py::capsule make_buffer_view(const std::shared_ptr<Buffer>& self) {
  self->adjust_view_count(1);
  return {new std::shared_ptr<Buffer>(self), [](void* pointer) {
            const std::unique_ptr<std::shared_ptr<Buffer>> buffer(static_cast<std::shared_ptr<Buffer>*>(pointer));
            (*buffer)->adjust_view_count(-1);
          }};
}

namespace {

Heap parse_heap(const std::string& heap_name) {
  for (const Heap heap : {Heap::default_, Heap::upload, Heap::readback})
    if (name(heap) == heap_name) return heap;
  throw UnsupportedError("heap '" + heap_name + "'; supported: 'default', 'upload' and 'readback'");
}

// Returns a NumPy view of the mapped bytes.
py::array_t<uint8_t> map_bytes(const std::shared_ptr<Buffer>& self) {
  if (self->heap() != Heap::upload) self->context()->require_execution("a buffer");
  auto* bytes = reinterpret_cast<uint8_t*>(self->map());
  return {{static_cast<py::ssize_t>(self->bytes())}, {py::ssize_t{1}}, bytes, make_buffer_view(self)};
}

py::class_<Buffer, std::shared_ptr<Buffer>> bind_buffer_class(py::module_& module) {
  py::class_<Buffer, std::shared_ptr<Buffer>> bound(module, "Buffer", "A byte range of device memory. Also a context manager.");
  bound
      .def(py::init([](std::shared_ptr<Context> context, const Integer& bytes, const std::string& heap) {
             const Heap kind = parse_heap(heap);
             const uint64_t size = parse_byte_count(bytes, "M5", "bytes");
             const GilRelease release;
             return Buffer::create(std::move(context), size, kind);
           }),
           py::arg("context").none(false), py::arg("bytes"), py::arg("heap") = "default",
           "Allocate memory with undefined content.\n"
           "bytes: size in bytes.\n"
           "heap: 'default' (device memory), 'upload' (written by the host) or 'readback' (read by the host).\n"
           "Raise OutOfMemoryError, or BindingError (M5) if the size is negative.")
      .def_property_readonly("bytes", &Buffer::bytes)
      .def_property_readonly("heap", [](const Buffer& self) { return std::string(name(self.heap())); })
      .def_property_readonly("context", &Buffer::context)
      .def_property_readonly("id", &Buffer::id, "The buffer's number in error messages.")
      .def_property_readonly("mappable", &Buffer::mappable)
      .def_property_readonly("mapped", &Buffer::mapped)
      .def("map", &map_bytes,
           "Map the whole buffer and return it as a uint8 NumPy array, without a copy. Raise StateError if the memory is not host-visible.")
      .def("unmap", &Buffer::unmap, "End host access. Idempotent.")
      .def(
          "sync_start", [](Buffer& self, bool read, bool write) { self.sync_start(read, write, check_signals); }, py::arg("read") = true,
          py::arg("write") = true, py::call_guard<GilRelease>(), "Begin host access. If `read`, wait for all work submitted so far.")
      .def("sync_end", &Buffer::sync_end)
      .def_property_readonly("closed", &Buffer::closed)
      .def("close", &Buffer::close, "Free the memory once the work in flight has finished. Idempotent.")
      .def("__enter__", [](std::shared_ptr<Buffer> self) { return self; })
      .def("__exit__", [](Buffer& self, const py::args&) { self.close(); })
      .def("__repr__", [](const Buffer& self) {
        return "<Buffer " + std::to_string(self.id()) + " of " + std::to_string(self.bytes()) + " bytes, heap '" +
               std::string(name(self.heap())) + "'" + (self.closed() ? ", closed>" : ">");
      });
  return bound;
}

void bind_buffer_range(py::module_& module) {
  py::class_<BufferRange>(module, "BufferRange", "A byte range of a buffer.")
      .def(py::init([](std::shared_ptr<Buffer> buffer, const Integer& offset, const std::optional<Integer>& bytes) {
             const uint64_t begin = parse_byte_count(offset, "R1", "offset");
             const uint64_t rest = begin <= buffer->bytes() ? buffer->bytes() - begin : 0;
             return BufferRange{buffer, begin, bytes ? parse_byte_count(*bytes, "R1", "bytes") : rest};
           }),
           py::arg("buffer").none(false), py::arg("offset") = 0, py::arg("bytes") = py::none(),
           "offset, bytes: in bytes; bytes=None extends to the end of the buffer. The range is checked against the buffer when it is "
           "bound.\n"
           "Raise BindingError (R1) if either is negative.")
      .def_readonly("buffer", &BufferRange::buffer)
      .def_readonly("offset", &BufferRange::offset)
      .def_readonly("bytes", &BufferRange::bytes)
      .def("__repr__", [](const BufferRange& self) { return "<BufferRange " + to_string(self) + ">"; });
}

}  // namespace

py::class_<Buffer, std::shared_ptr<Buffer>> bind_buffer(py::module_& module) {
  auto bound = bind_buffer_class(module);
  bind_buffer_range(module);
  return bound;
}

}  // namespace pumice
