// Memory and timelines that another API on the same GPU imports by file descriptor.
#include "bindings.h"
#include "core/error.h"
#include "device/shared_timeline.h"
#include "device/submission_order.h"

namespace pumice {
namespace {

Tensor make_empty_shared_tensor(const py::object& shape, const py::object& dtype, std::shared_ptr<Context> context) {
  TensorDesc desc(parse_dtype(dtype), parse_shape(shape));
  const uint64_t bytes = desc.bytes();
  const GilRelease release;
  return {std::move(desc), Buffer::create_shared(std::move(context), bytes)};
}

// Returns a tensor that views an array of the other API, if it is in memory shared with the context.
std::optional<Tensor> find_shared_tensor_by_dtype(Context& context, uint64_t address, const py::object& dtype, const Shape& shape,
                                                  const Strides& strides) {
  if (!find_shared_buffer(context, address).buffer) return {};  // before parse_dtype(), which may not know the other API's dtype
  return find_shared_tensor(context, address, TensorDesc(parse_dtype(dtype), shape, strides));
}

// Counts a view of the buffer while the other API's array exists, so that a pool does not reuse its memory.
std::shared_ptr<Buffer> add_external_view(std::shared_ptr<Buffer> buffer) {
  buffer->adjust_view_count(1);
  Buffer* const raw_buffer = buffer.get();
  return {raw_buffer, [buffer = std::move(buffer)](Buffer*) { buffer->adjust_view_count(-1); }};
}

}  // namespace

std::optional<Tensor> find_shared_tensor(Context& context, uint64_t address, TensorDesc desc) {
  const BufferRange found = find_shared_buffer(context, address);
  if (!found.buffer) return {};
  const auto width = static_cast<uint64_t>(bits(desc.dtype)) / 8;
  if (width == 0 || found.offset % width) return {};
  return Tensor(std::move(desc), add_external_view(found.buffer), static_cast<int64_t>(found.offset / width));
}

void bind_memory_sharing(py::module_& module, py::class_<Buffer, std::shared_ptr<Buffer>>& buffer) {
  buffer.def("_export_memory", &Buffer::export_memory, "Return a new file descriptor for a shared buffer's memory, owned by the caller.")
      .def_property_readonly("_allocated_bytes", &Buffer::allocated_bytes, "Allocation size in bytes, required for the import.")
      .def(
          "_set_mapping",
          [](Buffer& self, uint64_t address, int device, py::object owner) {
            self.set_mapping({address, device}, keep_alive(std::move(owner)));
          },
          py::arg("address"), py::arg("device"), py::arg("owner"),
          "Set the buffer's address and device index in the other API. Keep `owner` alive as long as the memory.")
      .def_property_readonly(
          "_mapping",
          [](const Buffer& self) -> std::optional<std::pair<uint64_t, int>> {
            if (!self.mapping()) return {};
            return std::pair(self.mapping()->address, self.mapping()->device);
          },
          "The (address, device index) of a shared buffer in the other API; None for other buffers.");
  buffer.def_property_readonly("_views", &Buffer::view_count, "Number of external arrays that view the buffer's memory and keep it alive.");
  py::class_<SharedTimeline, std::shared_ptr<SharedTimeline>>(module, "SharedTimeline",
                                                              "A timeline semaphore that another API can import by file descriptor.")
      .def(py::init<std::shared_ptr<Context>>(), py::arg("context").none(false), "Raise UnsupportedError naming the missing feature.")
      .def("export_semaphore", &SharedTimeline::export_semaphore, "Return a new file descriptor, owned by the caller.")
      .def_property_readonly("value", &SharedTimeline::value);
  module.def("empty_shared", &make_empty_shared_tensor, py::arg("shape"), py::arg("dtype"), py::arg("context").none(false),
             "Allocate a tensor with undefined content in exportable memory. Raise UnsupportedError naming the missing feature.");
  module.def("shared_tensor", &find_shared_tensor_by_dtype, py::arg("context").none(false), py::arg("address"), py::arg("dtype"),
             py::arg("shape"), py::arg("strides"),
             "Return the tensor at an address of the other API in this context's shared memory; None for any other address.");
  module.def("begin_order", &begin_submission_order, py::arg("ready"), py::arg("value"), py::arg("done"),
             "Begin an order: until end_order(), submissions of this thread wait for `ready` to reach the value and signal `done` with "
             "their ids.");
  module.def("end_order", &end_submission_order,
             "End the thread's innermost order and return the id of its last submission, 0 if there was none.");
}

}  // namespace pumice
