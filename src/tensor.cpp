#include "device/tensor.h"

#include "bindings.h"
#include "core/error.h"

namespace pumice {
namespace {

py::array to_numpy(const Tensor& self) {
  if (bits(self.desc().dtype) < 8) {
    const int64_t count = self.desc().elements();
    std::vector<std::byte> packed(static_cast<size_t>(count + 1) / 2);
    self.download(packed);
    py::array_t<uint8_t> wide(std::vector<py::ssize_t>(self.desc().shape.begin(), self.desc().shape.end()));
    for (int64_t i = 0; i < count; ++i) {
      const auto lane = static_cast<uint8_t>(static_cast<uint8_t>(packed[static_cast<size_t>(i) / 2]) >> (i % 2 * 4) & 15);
      wide.mutable_data()[i] = self.desc().dtype == DType::int4 && lane > 7 ? static_cast<uint8_t>(lane - 16) : lane;
    }
    return wide.attr("view")(self.desc().dtype == DType::int4 ? "int8" : "uint8")
        .attr("astype")(numpy_dtype(self.desc().dtype))
        .cast<py::array>();
  }
  py::array result = empty_array(self.desc().dtype, self.desc().shape);
  const std::span<std::byte> target(static_cast<std::byte*>(result.mutable_data()), static_cast<size_t>(result.nbytes()));
  const ReleasedGil release;
  self.download(target);
  return result;
}

Tensor from_numpy(const py::array& array, std::shared_ptr<Context> context, Heap heap = Heap::default_) {
  const HostTensor host = host_tensor(array, "array");
  const size_t bytes = host.desc.element_bytes();
  const ReleasedGil release;
  Tensor tensor = Tensor::empty(std::move(context), host.desc.dtype, host.desc.shape, heap);
  tensor.upload({host.data, bytes});
  return tensor;
}

// One step of indexing: an integer drops the axis, a slice keeps it, an ellipsis skips axes.
Tensor index(const Tensor& self, const py::object& key) {
  const py::tuple parts = py::isinstance<py::tuple>(key) ? key.cast<py::tuple>() : py::make_tuple(key);
  const auto is_ellipsis = [](const py::handle& part) { return part.is(py::ellipsis()); };
  const auto named = static_cast<int>(parts.size()) - static_cast<int>(std::count_if(parts.begin(), parts.end(), is_ellipsis));
  if (named > self.desc().rank())
    throw GraphError("index", std::to_string(named) + " indices for a tensor of rank " + std::to_string(self.desc().rank()));
  Tensor view = self;
  int axis = 0;
  for (const auto& part : parts) {
    if (is_ellipsis(part)) {
      axis += self.desc().rank() - named;
    } else if (py::isinstance<py::slice>(part)) {
      size_t start = 0, stop = 0, step = 0, length = 0;
      if (!part.cast<py::slice>().compute(static_cast<size_t>(view.desc().shape[static_cast<size_t>(axis)]), &start, &stop, &step, &length))
        throw py::error_already_set();
      view = view.slice(axis++, static_cast<int64_t>(start), static_cast<int64_t>(length), static_cast<int64_t>(step));
    } else {
      int64_t at = part.cast<int64_t>();
      const int64_t size = view.desc().shape[static_cast<size_t>(axis)];
      if (at < -size || at >= size) throw py::index_error("index " + std::to_string(at) + " of an axis of " + std::to_string(size));
      view = view.select(axis, at < 0 ? at + size : at);
    }
  }
  return view;
}

}  // namespace

void bind_tensor(py::module_& module) {
  py::class_<Tensor, std::shared_ptr<Tensor>>(module, "Tensor", "A TensorDesc and the buffer that holds it; views share the buffer.")
      .def(py::init<TensorDesc, std::shared_ptr<Buffer>, int64_t>(), py::arg("desc"), py::arg("buffer").none(false), py::arg("offset") = 0,
           "offset in elements.")
      .def_property_readonly("desc", &Tensor::desc)
      .def_property_readonly("buffer", &Tensor::buffer)
      .def_property_readonly("offset", &Tensor::offset, "In elements.")
      .def_property_readonly("dtype", [](const Tensor& self) { return numpy_dtype(self.desc().dtype); })
      .def_property_readonly("shape", [](const Tensor& self) { return sizes_of(self.desc().shape); })
      .def_property_readonly(
          "strides", [](const Tensor& self) { return sizes_of(self.desc().strides); }, "In elements.")
      .def_property_readonly("ndim", [](const Tensor& self) { return self.desc().rank(); })
      .def_property_readonly("size", [](const Tensor& self) { return self.desc().elements(); })
      .def_property_readonly("context", [](const Tensor& self) { return self.buffer()->context(); })
      .def("numpy", &to_numpy, "A new NumPy array with the tensor's elements; waits for the work submitted so far.")
      .def(
          "__array__",
          [](const Tensor& self, const py::object& dtype, const py::object& copy) -> py::object {
            if (!copy.is_none() && !copy.cast<bool>())
              throw py::value_error("a Tensor is in device memory: an array of it is always a copy");
            py::object array = to_numpy(self);
            return dtype.is_none() ? array : array.attr("astype")(dtype);
          },
          py::arg("dtype") = py::none(), py::arg("copy") = py::none())
      .def(
          "upload",
          [](const Tensor& self, const py::array& array) {
            const HostTensor host = host_tensor(array, "array");
            if (host.desc.dtype != self.desc().dtype || host.desc.shape != self.desc().shape)
              throw BindingError("K5", "array", "", to_string(self.desc()), to_string(host.desc));
            const ReleasedGil release;
            self.upload({host.data, host.desc.element_bytes()});
          },
          py::arg("array"), "Overwrites the elements; same dtype and shape. Ordered after the work submitted so far.")
      .def("__getitem__", &index)
      .def("reshape", &Tensor::reshape, py::arg("shape"))
      .def("broadcast_to", &Tensor::broadcast_to, py::arg("shape"))
      .def(
          "transpose",
          [](const Tensor& self, std::optional<std::vector<int>> axes) {
            if (!axes) {
              axes.emplace();
              for (int axis = self.desc().rank(); axis-- > 0;) axes->push_back(axis);
            }
            return self.transpose(*axes);
          },
          py::arg("axes") = py::none())
      .def(
          "contiguous", [](const Tensor& self) { return from_numpy(to_numpy(self), self.buffer()->context()); },
          "A packed copy, row-major.")
      .def("__len__",
           [](const Tensor& self) {
             if (self.desc().rank() == 0) throw py::type_error("a tensor of rank 0 has no length");
             return self.desc().shape[0];
           })
      .def("__repr__",
           [](const Tensor& self) { return "<Tensor " + to_string(self.desc()) + " on '" + self.buffer()->context()->info().name + "'>"; });
  module.def(
      "empty",
      [](const py::object& shape, const py::object& dtype, std::shared_ptr<Context> context) {
        const Shape sizes = py::isinstance<py::int_>(shape) ? Shape{shape.cast<int64_t>()} : shape.cast<Shape>();
        return Tensor::empty(std::move(context), dtype_argument(dtype), sizes);
      },
      py::arg("shape"), py::arg("dtype"), py::arg("context").none(false), "A tensor of undefined content.");
  module.def(
      "tensor", [](const py::array& array, std::shared_ptr<Context> context) { return from_numpy(array, std::move(context)); },
      py::arg("array"), py::arg("context").none(false), "A tensor with a copy of the array's elements, row-major.");
}

}  // namespace pumice
