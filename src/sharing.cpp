// Memory and timelines that another API on the same GPU imports by file descriptor.
#include "bindings.h"
#include "core/error.h"
#include "device/shared_timeline.h"
#include "device/submission_order.h"

namespace pumice {
namespace {

Tensor empty_shared(const py::object& shape, const py::object& dtype, std::shared_ptr<Context> context) {
  TensorDesc desc(dtype_argument(dtype), shape_argument(shape));
  const uint64_t bytes = desc.bytes();
  const ReleasedGil release;
  return {std::move(desc), Buffer::create_shared(std::move(context), bytes)};
}

// Views an array of the other API if it is in memory shared with the context.
std::optional<Tensor> shared_tensor(Context& context, uint64_t address, const py::object& dtype, const Shape& shape,
                                    const Strides& strides) {
  if (!shared_memory_at(context, address).buffer) return {};  // before dtype_argument(), which may not know the other API's dtype
  return shared_tensor_at(context, address, TensorDesc(dtype_argument(dtype), shape, strides));
}

// Holds a view of the buffer while the other API's array exists, so that a pool does not treat its memory as free.
std::shared_ptr<Buffer> viewed(std::shared_ptr<Buffer> buffer) {
  buffer->count_view(1);
  Buffer* const one = buffer.get();
  return {one, [buffer = std::move(buffer)](Buffer*) { buffer->count_view(-1); }};
}

}  // namespace

std::optional<Tensor> shared_tensor_at(Context& context, uint64_t address, TensorDesc desc) {
  const BufferRange found = shared_memory_at(context, address);
  if (!found.buffer) return {};
  const auto width = static_cast<uint64_t>(bits(desc.dtype)) / 8;
  if (width == 0 || found.offset % width) return {};
  return Tensor(std::move(desc), viewed(found.buffer), static_cast<int64_t>(found.offset / width));
}

void bind_sharing(py::module_& module, py::class_<Buffer, std::shared_ptr<Buffer>>& buffer) {
  buffer.def("_export_memory", &Buffer::export_memory, "A new file descriptor of a shared buffer's memory, which the caller owns.")
      .def_property_readonly("_allocated_bytes", &Buffer::allocated_bytes, "The size of the allocation, which an import states.")
      .def(
          "_set_mapping",
          [](Buffer& self, uint64_t address, int device, py::object owner) { self.set_mapping({address, device}, keep(std::move(owner))); },
          py::arg("address"), py::arg("device"), py::arg("owner"),
          "Notes where the other interface has the memory. The owner is kept as long as the memory is.")
      .def_property_readonly(
          "_mapping",
          [](const Buffer& self) -> std::optional<std::pair<uint64_t, int>> {
            if (!self.mapping()) return {};
            return std::pair(self.mapping()->address, self.mapping()->device);
          },
          "The address of a shared buffer in the other interface, and that interface's number of the device; None for any other buffer.");
  buffer.def_property_readonly("_views", &Buffer::views, "Arrays of others that see the buffer's memory and keep it.");
  py::class_<SharedTimeline, std::shared_ptr<SharedTimeline>>(
      module, "SharedTimeline", "A timeline semaphore of a context that another interface imports by a file descriptor.")
      .def(py::init<std::shared_ptr<Context>>(), py::arg("context").none(false), "Raises UnsupportedError naming what is missing.")
      .def("export_semaphore", &SharedTimeline::export_semaphore, "A new file descriptor, which the caller owns.")
      .def_property_readonly("value", &SharedTimeline::value);
  module.def("empty_shared", &empty_shared, py::arg("shape"), py::arg("dtype"), py::arg("context").none(false),
             "A tensor of undefined content in memory that can be exported. Raises UnsupportedError naming what is missing.");
  module.def("shared_tensor", &shared_tensor, py::arg("context").none(false), py::arg("address"), py::arg("dtype"), py::arg("shape"),
             py::arg("strides"),
             "The tensor at an address of the other interface, in shared memory of this context; None where the address is in none.");
  module.def("begin_order", &begin_order, py::arg("ready"), py::arg("value"), py::arg("done"),
             "From here on the calling thread's submissions come after `ready` has the value, and `done` gets the id of each.");
  module.def("end_order", &end_order, "Ends the innermost order of the thread: the id of its last submission, 0 where there was none.");
}

}  // namespace pumice
