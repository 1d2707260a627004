#include "device/tensor.h"

#include <variant>

#include "bindings.h"
#include "core/error.h"
#include "device/host_memory.h"
#include "operators/compiled/convert_tensor.h"

namespace pumice {
namespace {

py::array copy_to_numpy(const Tensor& self, const std::optional<py::array>& out = {}) {
  const TensorDesc& desc = self.desc();
  if (out) {
    check_output_array(*out, desc.dtype, "out", "");
    if (get_shape(*out) != desc.shape)
      throw BindingError("K5", "out", "", "an array of " + to_string(TensorDesc(desc.dtype, desc.shape)),
                         "one of " + to_string(TensorDesc(desc.dtype, get_shape(*out))));
  }
  const auto download = [&](std::span<std::byte> target) {
    const GilRelease release;
    self.download(target, check_signals);
  };
  if (bits(desc.dtype) < 8) {
    std::vector<std::byte> packed(desc.element_bytes());
    download(packed);
    return unpack_elements(desc.dtype, desc.shape, packed);
  }
  py::array result = out ? *out : make_empty_array(desc.dtype, desc.shape);
  download({static_cast<std::byte*>(result.mutable_data()), static_cast<size_t>(result.nbytes())});
  return result;
}

py::object convert_to_array(const Tensor& self, const py::object& dtype, const py::object& copy) {
  if (!copy.is_none() && !copy.cast<bool>())
    throw py::value_error("a Tensor is in device memory, so converting it to an array always copies it");
  const py::array array = copy_to_numpy(self);
  return dtype.is_none() ? py::object(array) : array.attr("astype")(dtype, py::arg("copy") = false);
}

Tensor import_host_array(const py::array& array, std::shared_ptr<Context> context) {
  reject_masked_array(array, "array");
  const DType dtype = get_engine_dtype(array.dtype(), "array");
  const auto reject = [](const std::string& why) { throw UnsupportedError("host memory without a copy: " + why); };
  if (bits(dtype) < 8)
    reject("NumPy stores each element of " + std::string(name(dtype)) + " in a byte, while the device packs several into one");
  if (!array.writeable()) reject("the array is read-only, but the device may write to it");
  Strides strides;
  for (py::ssize_t axis = 0; axis < array.ndim(); ++axis) {
    const bool counts = array.shape(axis) > 1;
    if (counts && (array.strides(axis) < 0 || array.strides(axis) % array.itemsize()))
      reject("a stride of " + std::to_string(array.strides(axis)) + " bytes; expected 0 or more elements of " +
             std::to_string(array.itemsize()));
    strides.push_back(counts ? array.strides(axis) / array.itemsize() : 1);
  }
  auto* const address = const_cast<void*>(array.data());
  auto owner = keep_alive(array);
  const GilRelease release;
  return import_host_tensor(TensorDesc(dtype, get_shape(array), std::move(strides)), address, std::move(context), std::move(owner));
}

// Converts a number to an element of the dtype. Throws BindingError (K6) if it is not a number or not representable in an integer dtype.
std::vector<std::byte> convert_to_element(const py::object& value, DType dtype) {
  const auto reject = [&]() -> BindingError {
    return {"K6", "value", "", "a number that " + std::string(name(dtype)) + " can hold", py::repr(value).cast<std::string>()};
  };
  const py::module_ numpy = py::module_::import("numpy");
  const auto array = numpy.attr("asarray")(value).cast<py::array>();
  const char kind = array.dtype().kind();
  const bool is_number = kind == 'O' ? py::isinstance<py::int_>(value) : std::string_view("biufV").find(kind) != std::string_view::npos;
  if (array.ndim() != 0 || !is_number) throw reject();
  py::object element_array;
  try {
    const bool is_real = kind == 'f' || kind == 'V';  // infinities, NaN and fractions are not integers
    if (is_real && !is_float(dtype) && !py::float_(array.attr("item")()).attr("is_integer")().cast<bool>()) throw reject();
    element_array = numpy.attr("full")(py::tuple(), value, get_numpy_dtype(dtype));
    if (!is_float(dtype) && !element_array.attr("item")().equal(value)) throw reject();
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_OverflowError) && !error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError)) throw;
    throw reject();
  }
  const HostTensor host = make_host_tensor(element_array, "value");
  return {host.data, host.data + std::max(bits(dtype) / 8, 1)};
}

// Converts nested lists of numbers to the dtype. Throws BindingError (K6) for values not representable in an integer dtype.
py::object convert_to_elements(const py::object& lists, DType dtype) {
  const py::module_ numpy = py::module_::import("numpy");
  const py::object array = numpy.attr("asarray")(lists);
  py::object element_array = array;
  try {
    element_array = numpy.attr("asarray")(lists, get_numpy_dtype(dtype));
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_OverflowError) && !error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError)) throw;
    element_array = py::none();
  }
  if (element_array.is_none() || (!is_float(dtype) && !numpy.attr("array_equal")(element_array, array).cast<bool>()))
    throw BindingError("K6", "value", "", "numbers that " + std::string(name(dtype)) + " can hold", py::repr(lists).cast<std::string>());
  return element_array;
}

void fill_tensor(const Tensor& self, const py::object& value) {
  const auto element = convert_to_element(value, self.desc().dtype);
  const GilRelease release;
  self.fill(element, check_signals);
}

void upload_array(const Tensor& self, const py::array& array) {
  const HostTensor host = make_host_tensor(array, "array");
  if (host.desc.dtype != self.desc().dtype || host.desc.shape != self.desc().shape)
    throw BindingError("K5", "array", "", to_string(self.desc()), to_string(host.desc));
  const GilRelease release;
  self.upload({host.data, host.desc.element_bytes()}, check_signals);
}

Tensor slice_axis(const Tensor& view, int axis, const py::slice& selection) {
  py::ssize_t start = 0, stop = 0, step = 0, length = 0;
  if (!selection.compute(view.desc().shape[static_cast<size_t>(axis)], &start, &stop, &step, &length)) throw py::error_already_set();
  return view.slice(axis, start, length, length > 1 ? step : 1);
}

Tensor select_index(const Tensor& view, int axis, const py::handle& selection) {
  const py::ssize_t index = PyNumber_AsSsize_t(selection.ptr(), PyExc_IndexError);
  if (index == -1 && PyErr_Occurred()) throw py::error_already_set();
  const int64_t size = view.desc().shape[static_cast<size_t>(axis)];
  if (index < -size || index >= size) throw py::index_error("index " + std::to_string(index) + " of an axis of " + std::to_string(size));
  return view.select(axis, index < 0 ? index + size : index);
}

// Implements __getitem__: an integer drops the axis, a slice keeps it, an ellipsis skips axes, None adds one.
Tensor index_tensor(const Tensor& self, const py::object& key) {
  const py::tuple keys = py::isinstance<py::tuple>(key) ? key.cast<py::tuple>() : py::make_tuple(key);
  int num_indices = 0, ellipses = 0;
  for (const auto& key_item : keys) {
    ellipses += key_item.is(py::ellipsis());
    num_indices += !key_item.is(py::ellipsis()) && !key_item.is_none();
  }
  if (num_indices > self.desc().rank())
    throw GraphError("index", std::to_string(num_indices) + " indices for a tensor of rank " + std::to_string(self.desc().rank()));
  if (ellipses > 1) throw GraphError("index", "more than one ellipsis");
  Tensor view = self;
  int axis = 0;
  for (const auto& key_item : keys) {
    if (key_item.is(py::ellipsis()))
      axis += self.desc().rank() - num_indices;
    else if (key_item.is_none())
      view = view.expand_dims(axis++);
    else if (py::isinstance<py::slice>(key_item))
      view = slice_axis(view, axis++, key_item.cast<py::slice>());
    else if (PyIndex_Check(key_item.ptr()) && !py::isinstance<py::bool_>(key_item) && !py::isinstance<py::array>(key_item))
      view = select_index(view, axis, key_item);
    else
      throw GraphError("index", "expected integers, slices, None and an ellipsis; given " + get_type_name(key_item) +
                                    ": for arrays, use the operators Gather and Compress");
  }
  return view;
}

void assign_tensor(const Tensor& view, const Tensor& value) {
  if (value.desc().dtype != view.desc().dtype) throw BindingError("K5", "value", "", to_string(view.desc()), to_string(value.desc()));
  if (value.buffer()->context() != view.buffer()->context())
    throw BindingError("M3", "value", "", "a tensor of this context", "one of another");
  const Tensor source = value.broadcast_to(view.desc().shape);
  const GilRelease release;
  const bool is_other_memory = source.buffer()->memory() != view.buffer()->memory();
  view.copy_from(is_other_memory && source.desc().is_packed() ? source : make_packed_copy(source, check_signals), check_signals);
}

void assign_elements(const Tensor& self, const py::object& key, const py::object& value) {
  const Tensor view = index_tensor(self, key);
  if (py::isinstance<Tensor>(value)) return assign_tensor(view, value.cast<const Tensor&>());
  const py::module_ numpy = py::module_::import("numpy");
  py::object array = value;
  if (!py::hasattr(value, "dtype")) {
    if (!py::isinstance<py::sequence>(value)) return fill_tensor(view, value);
    array = convert_to_elements(value, view.desc().dtype);
  }
  if (!py::isinstance<py::array>(array)) array = numpy.attr("asarray")(array);
  const HostTensor host_value = make_host_tensor(array.cast<py::array>(), "value");
  (void)compute_broadcast_strides(host_value.desc.shape, host_value.desc.strides, view.desc().shape);
  upload_array(view, numpy.attr("broadcast_to")(array, make_size_tuple(view.desc().shape)).cast<py::array>());
}

std::shared_ptr<Tensor> to_contiguous(const std::shared_ptr<Tensor>& self) {
  if (self->is_contiguous()) return self;
  const GilRelease release;
  return std::make_shared<Tensor>(make_packed_copy(*self, check_signals));
}

std::shared_ptr<Tensor> convert_dtype(const std::shared_ptr<Tensor>& self, const py::object& dtype) {
  const DType target_dtype = parse_dtype(dtype);
  if (target_dtype == self->desc().dtype) return self;
  const GilRelease release;
  return std::make_shared<Tensor>(convert_dtype(*self, target_dtype, check_signals));
}

Tensor squeeze_axes(const Tensor& self, const std::optional<std::variant<Integer, Integers>>& axis) {
  std::vector<int> axes;
  if (!axis) {
    for (int i = 0; i < self.desc().rank(); ++i)
      if (self.desc().shape[static_cast<size_t>(i)] == 1) axes.push_back(i);
  } else if (const auto* single_axis = std::get_if<Integer>(&*axis)) {
    axes = {parse_axis(*single_axis, "squeeze")};
  } else {
    axes = parse_axes(std::get<Integers>(*axis), "squeeze");
  }
  return self.squeeze(axes);
}

Tensor transpose_axes(const Tensor& self, const std::optional<Integers>& axes_argument) {
  if (axes_argument) return self.transpose(parse_axes(*axes_argument, "transpose"));
  std::vector<int> axes;
  for (int axis = self.desc().rank(); axis-- > 0;) axes.push_back(axis);
  return self.transpose(axes);
}

// Creates an array in device-accessible host memory.
py::array make_empty_host_array(const py::object& shape, const py::object& dtype, std::shared_ptr<Context> context) {
  const TensorDesc desc(parse_dtype(dtype), parse_shape(shape));
  if (bits(desc.dtype) < 8)
    throw UnsupportedError("host memory of the device: NumPy stores each element of " + std::string(name(desc.dtype)) +
                           " in a byte, while the device packs several into one");
  if (desc.elements() == 0) return make_empty_array(desc.dtype, desc.shape);
  std::shared_ptr<Buffer> buffer;
  {
    const GilRelease release;
    buffer = allocate_host_memory(std::move(context), desc.element_bytes());
  }
  return {get_numpy_dtype(desc.dtype), std::vector<py::ssize_t>(desc.shape.begin(), desc.shape.end()), buffer->map(),
          make_buffer_view(buffer)};
}

using TensorClass = py::class_<Tensor, std::shared_ptr<Tensor>>;

void bind_tensor_properties(TensorClass& tensor) {
  tensor.def_property_readonly("desc", &Tensor::desc)
      .def_property_readonly("buffer", &Tensor::buffer)
      .def_property_readonly("offset", &Tensor::offset, "Offset of the first element in the buffer, in elements.")
      .def_property_readonly("dtype", [](const Tensor& self) { return get_numpy_dtype(self.desc().dtype); })
      .def_property_readonly("shape", [](const Tensor& self) { return make_size_tuple(self.desc().shape); })
      .def_property_readonly(
          "strides", [](const Tensor& self) { return make_size_tuple(self.desc().strides); }, "Strides in elements.")
      .def_property_readonly("ndim", [](const Tensor& self) { return self.desc().rank(); })
      .def_property_readonly("size", [](const Tensor& self) { return self.desc().elements(); })
      .def_property_readonly(
          "nbytes", [](const Tensor& self) { return self.desc().element_bytes(); }, "Bytes of all elements, without gaps.")
      .def_property_readonly("is_contiguous", &Tensor::is_contiguous,
                             "Whether the elements are row-major and start at an offset that all kernels support; .contiguous() then "
                             "returns the tensor itself.")
      .def_property_readonly("context", [](const Tensor& self) { return self.buffer()->context(); })
      .def("__len__",
           [](const Tensor& self) {
             if (self.desc().rank() == 0) throw py::type_error("a tensor of rank 0 has no length");
             return self.desc().shape[0];
           })
      .def("__repr__",
           [](const Tensor& self) { return "<Tensor " + to_string(self.desc()) + " on '" + self.buffer()->context()->info().name + "'>"; });
}

void bind_element_access(TensorClass& tensor) {
  tensor
      .def("numpy", &copy_to_numpy, py::arg("out") = py::none(),
           "Return the elements as a row-major NumPy array, after waiting for the work submitted so far. Types that NumPy lacks use "
           "ml_dtypes.\n"
           "out: a writable C-contiguous array of the same dtype and shape; None: a new array.\n"
           "Raise BindingError (K5) if `out` does not match.")
      .def("__array__", &convert_to_array, py::arg("dtype") = py::none(), py::arg("copy") = py::none(),
           "Return the elements as numpy() does, converted to dtype on the host. Raise ValueError for copy=False.")
      .def(
          "tolist", [](const Tensor& self) { return copy_to_numpy(self).attr("tolist")(); },
          "Return the elements as nested lists of Python numbers.")
      .def(
          "item",
          [](const Tensor& self) {
            if (self.desc().elements() != 1) throw BindingError("K5", "tensor", "", "one element", to_string(self.desc()));
            return copy_to_numpy(self).attr("item")();
          },
          "Return the only element as a Python number. Raise BindingError (K5) unless there is exactly one.")
      .def("upload", &upload_array, py::arg("array"),
           "Overwrite the elements after the work submitted so far.\n"
           "array: same dtype and shape, any strides and byte order.\n"
           "Raise BindingError (K5), GraphError if elements of this view share memory, UnsupportedError for strided 4-bit views.")
      .def("fill", &fill_tensor, py::arg("value"),
           "Set all elements to a number. Raise BindingError (K6) if it is not representable in an integer dtype.")
      .def("__setitem__", &assign_elements, py::arg("key"), py::arg("value"),
           "Overwrite the elements of the view [key] with a number, or with a broadcastable array or Tensor of the same dtype. Raise the "
           "errors of upload and fill.")
      .def(
          "copy",
          [](const Tensor& self) {
            const GilRelease release;
            return make_packed_copy(self, check_signals);
          },
          "Return a packed copy in new memory, made on the device (4-bit dtypes: via the host).")
      .def("contiguous", &to_contiguous, "Return the tensor itself if is_contiguous, otherwise a copy.")
      .def("to", &convert_dtype, py::arg("dtype"),
           "Return a packed copy of another dtype, converted on the device like the Cast operator: floats round to nearest even. Return "
           "the tensor itself if it already has the dtype. Raise UnsupportedError naming a dtype that Cast does not support.");
}

void bind_views(TensorClass& tensor) {
  tensor
      .def("__getitem__", &index_tensor, py::arg("key"),
           "Return a view: integers drop an axis, slices with positive steps keep it, None adds one. Raise IndexError, or GraphError for "
           "arrays and negative steps.")
      .def(
          "reshape", [](const Tensor& self, const py::object& shape) { return self.reshape(parse_shape(shape)); }, py::arg("shape"),
          "Return a view of another shape, in which one size may be -1. Raise GraphError if elements would have to move.")
      .def(
          "broadcast_to", [](const Tensor& self, const Integers& shape) { return self.broadcast_to(parse_sizes(shape, "shape")); },
          py::arg("shape"), "Return a view with strides of 0, like numpy.broadcast_to. Raise GraphError.")
      .def("transpose", &transpose_axes, py::arg("axes") = py::none(), "Return a view with permuted axes; without `axes`, reversed.")
      .def_property_readonly(
          "T", [](const Tensor& self) { return transpose_axes(self, {}); }, "A view with reversed axes.")
      .def("squeeze", &squeeze_axes, py::arg("axis") = py::none(),
           "Return a view without the given axes of size 1, by default all. Raise GraphError.")
      .def(
          "expand_dims", [](const Tensor& self, const Integer& axis) { return self.expand_dims(parse_axis(axis, "expand_dims")); },
          py::arg("axis"), "Return a view with a new axis of size 1 at this index. Raise GraphError.");
}

}  // namespace

Shape parse_shape(const py::object& shape) {
  try {
    return parse_sizes(PyIndex_Check(shape.ptr()) ? Integers{shape.cast<Integer>()} : shape.cast<Integers>(), "shape");
  } catch (const py::cast_error&) {
    throw py::type_error("shape: expected an integer or a sequence of integers; given " + py::repr(shape).cast<std::string>());
  }
}

Tensor upload_tensor(const HostTensor& host, std::shared_ptr<Context> context) {
  const GilRelease release;
  Tensor tensor = Tensor::empty(std::move(context), host.desc.dtype, host.desc.shape);
  tensor.upload({host.data, host.desc.element_bytes()}, check_signals);
  return tensor;
}

Tensor import_host_tensor(TensorDesc desc, void* address, std::shared_ptr<Context> context, std::shared_ptr<const void> owner) {
  if (desc.elements() == 0) return Tensor::empty(std::move(context), desc.dtype, desc.shape);
  const auto bytes = static_cast<uint64_t>(count_span_elements(desc.shape, desc.strides) * bits(desc.dtype) / 8);
  return {std::move(desc), Buffer::import_host(std::move(context), static_cast<std::byte*>(address), bytes, std::move(owner))};
}

void bind_tensor(py::module_& module) {
  TensorClass tensor(module, "Tensor", py::custom_type_setup(add_buffer_protocol),
                     "A TensorDesc and the buffer with its elements. Views share the buffer and keep it alive. While the buffer is mapped, "
                     "the buffer protocol exposes its memory. Arithmetic, comparison and bitwise operators follow NumPy: they run on the "
                     "device, broadcast, and return a new Tensor of NumPy's result dtype; Python numbers adopt the tensor's dtype. == "
                     "compares elementwise and returns a bool Tensor, so tensors are not hashable.");
  tensor.def(py::init([](TensorDesc desc, std::shared_ptr<Buffer> buffer, const Integer& offset) {
               const auto first = offset.as<int64_t>();
               if (!first) throw BindingError("R1", "tensor", "", "a non-negative offset in elements", offset.text());
               return Tensor(std::move(desc), std::move(buffer), *first);
             }),
             py::arg("desc"), py::arg("buffer").none(false), py::arg("offset") = 0,
             "offset: offset of the first element in the buffer, in elements.\n"
             "Raise BindingError (R1) if the buffer is too small.");
  bind_tensor_properties(tensor);
  bind_element_access(tensor);
  bind_views(tensor);
  bind_arithmetic(tensor);
  bind_dlpack(module, tensor);
  module.def(
      "empty",
      [](const py::object& shape, const py::object& dtype, std::shared_ptr<Context> context) {
        return Tensor::empty(std::move(context), parse_dtype(dtype), parse_shape(shape));
      },
      py::arg("shape"), py::arg("dtype"), py::arg("context").none(false), "Allocate a tensor with undefined content.");
  module.def("empty_host", &make_empty_host_array, py::arg("shape"), py::arg("dtype"), py::arg("context").none(false),
             "Allocate a NumPy array with undefined content in device-accessible host memory.");
  module.def(
      "tensor",
      [](const py::array& array, std::shared_ptr<Context> context) { return upload_tensor(make_host_tensor(array, "array"), context); },
      py::arg("array"), py::arg("context").none(false), "Create a row-major tensor from a copy of the array's elements.");
  module.def("from_host", &import_host_array, py::arg("array"), py::arg("context").none(false),
             "Create a tensor on the array's memory, without a copy.");
}

}  // namespace pumice
