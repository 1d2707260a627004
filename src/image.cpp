#include "bindings.h"
#include "core/error.h"
#include "device/image_transfer.h"

namespace pumice {
namespace {

template <typename Mode>
Mode parse_mode(const std::string& mode_name, std::initializer_list<Mode> modes, const char* label) {
  std::string mode_names;
  for (const Mode mode : modes) {
    if (name(mode) == mode_name) return mode;
    mode_names += (mode_names.empty() ? "'" : ", '") + std::string(name(mode)) + "'";
  }
  throw UnsupportedError(std::string(label) + " '" + mode_name + "'; supported: " + mode_names);
}

[[noreturn]] void throw_invalid_argument(const char* argument, const char* expected, const py::handle& value) {
  throw BindingError("K5", "argument '" + std::string(argument) + "'", argument, expected, py::repr(value).cast<std::string>());
}

std::string parse_string_argument(const char* argument, const py::object& value) {
  if (!py::isinstance<py::str>(value)) throw_invalid_argument(argument, "a name", value);
  return value.cast<std::string>();
}

// Parses a shape of Python or NumPy integers. A single integer is a 1D shape.
Shape parse_image_shape(const py::object& shape) {
  const auto add = [&](Shape& sizes, const py::handle& size) {
    const auto integer = py::reinterpret_steal<py::object>(PyIndex_Check(size.ptr()) ? PyNumber_Index(size.ptr()) : nullptr);
    const int64_t value = integer ? PyLong_AsLongLong(integer.ptr()) : -1;
    if (PyErr_Occurred()) PyErr_Clear();
    if (!integer || (value == -1 && !integer.equal(py::int_(-1)))) throw_invalid_argument("shape", "64-bit integers", shape);
    sizes.push_back(value);
  };
  Shape sizes;
  if (PyIndex_Check(shape.ptr()) && !py::isinstance<py::array>(shape)) {
    add(sizes, shape);
    return sizes;
  }
  if (!py::isinstance<py::sequence>(shape) || py::isinstance<py::str>(shape)) throw_invalid_argument("shape", "integers", shape);
  for (const auto& size : py::reinterpret_borrow<py::sequence>(shape)) add(sizes, size);
  return sizes;
}

std::shared_ptr<Image> make_image(std::shared_ptr<Context> context, const py::object& format_name, const py::object& shape,
                                  const py::object& filter, const py::object& address, const py::object& normalized) {
  const ImageFormat format = image_format_from_name(parse_string_argument("format", format_name));
  const Shape sizes = parse_image_shape(shape);
  SamplerOptions options;
  options.filter = parse_mode(parse_string_argument("filter", filter), {Filter::nearest, Filter::linear}, "filter");
  options.address =
      parse_mode(parse_string_argument("address", address), {AddressMode::clamp, AddressMode::repeat, AddressMode::border}, "address mode");
  const size_t dimensions = sizes.size() - (get_channel_count(format) > 1 && !sizes.empty() ? 1 : 0);
  if (!normalized.is_none() && !py::isinstance<py::bool_>(normalized))
    throw_invalid_argument("normalized", "True, False or None", normalized);
  options.normalized = normalized.is_none() ? !supports_unnormalized_coordinates(dimensions, options.address) : normalized.cast<bool>();
  const GilRelease release;
  return create_image_in_general_layout(std::move(context), format, sizes, options, check_signals);
}

py::array copy_texels_to_numpy(const Image& self) {
  py::array result = make_empty_array(get_channel_dtype(self.format()), self.shape());
  const std::span<std::byte> target(static_cast<std::byte*>(result.mutable_data()), static_cast<size_t>(result.nbytes()));
  const GilRelease release;
  download(self, target, check_signals);
  return result;
}

void upload_texels(const Image& self, const py::array& array) {
  reject_masked_array(array, "array");
  const py::dtype dtype = get_numpy_dtype(get_channel_dtype(self.format()));
  if (!py::module_::import("numpy").attr("can_cast")(array.dtype(), dtype, "safe").cast<bool>() || get_shape(array) != self.shape())
    throw BindingError("K5", "array", "",
                       to_string(TensorDesc(get_channel_dtype(self.format()), self.shape())) + ", or a dtype that converts to it exactly",
                       py::str(array.dtype()).cast<std::string>() + " " + to_string(get_shape(array)));
  const py::array texels = make_contiguous(array.attr("astype")(dtype, py::arg("copy") = false).cast<py::array>());
  const auto bytes = get_bytes(texels);
  const GilRelease release;
  upload(self, bytes, check_signals);
}

using ImageClass = py::class_<Image, std::shared_ptr<Image>>;

// Binds construction and properties.
void bind_image_properties(ImageClass& image) {
  image
      .def(py::init(&make_image), py::arg("context").none(false), py::arg("format"), py::arg("shape"), py::kw_only(),
           py::arg("filter") = "nearest", py::arg("address") = "clamp", py::arg("normalized") = py::none(),
           "Create an image with undefined content.\n"
           "format: in GLSL's notation. Floats: 'r32f', 'rg32f', 'rgba32f', 'r16f', 'rg16f', 'rgba16f'. Normalised bytes, floats from 0 to "
           "1 in shaders: 'r8', 'rg8', 'rgba8'. Integers: 'r32ui', 'rg32ui', 'rgba32ui', 'r16ui', 'r8ui', 'rgba8ui', 'r32i', 'rg32i', "
           "'rgba32i', 'r16i', 'r8i'.\n"
           "shape: [width], [height, width] or [depth, height, width], with 2 or 4 channels last for rg and rgba formats. Shaders use "
           "coordinates (x, y, z) = (width, height, depth).\n"
           "filter: 'nearest' or 'linear'.\n"
           "address: 'clamp', 'repeat' or 'border' (zeros).\n"
           "normalized: whether sampler coordinates are 0 to 1 instead of texels; None: texels if possible, that is for 1D and 2D images "
           "without 'repeat'.\n"
           "These sampler settings apply to texture functions, not to texelFetch and storage images.\n"
           "Raise UnsupportedError for what the device does not support, OutOfMemoryError.")
      .def_property_readonly("context", &Image::context)
      .def_property_readonly("format", [](const Image& self) { return std::string(name(self.format())); })
      .def_property_readonly("shape", [](const Image& self) { return make_size_tuple(self.shape()); })
      .def_property_readonly("dtype", [](const Image& self) { return get_numpy_dtype(get_channel_dtype(self.format())); })
      .def_property_readonly("dimensions", &Image::dimensions, "Number of axes without the channels, 1 to 3.")
      .def_property_readonly("filter", [](const Image& self) { return std::string(name(self.sampler_options().filter)); })
      .def_property_readonly("address", [](const Image& self) { return std::string(name(self.sampler_options().address)); })
      .def_property_readonly("normalized", [](const Image& self) { return self.sampler_options().normalized; });
}

// Binds texel access and close().
void bind_image_texels(ImageClass& image) {
  image
      .def("numpy", &copy_texels_to_numpy,
           "Return a copy of the texels in the shape of the image, after waiting for the work submitted so far.")
      .def(
          "__array__",
          [](const Image& self, const py::object& dtype, const py::object& copy) -> py::object {
            if (!copy.is_none() && !copy.cast<bool>())
              throw py::value_error("an Image is in device memory, so converting it to an array always copies it");
            py::object array = copy_texels_to_numpy(self);
            return dtype.is_none() ? array : array.attr("astype")(dtype);
          },
          py::arg("dtype") = py::none(), py::arg("copy") = py::none())
      .def("upload", &upload_texels, py::arg("array"),
           "Overwrite the texels after the work submitted so far. The array must have the same shape and exactly convertible elements. "
           "Raise BindingError.")
      .def_property_readonly("closed", &Image::closed)
      .def("close", &Image::close, "Free the memory once the work in flight has finished. Idempotent.")
      .def("__enter__", [](std::shared_ptr<Image> self) { return self; })
      .def("__exit__", [](Image& self, const py::args&) { self.close(); })
      .def("__repr__", [](const Image& self) {
        return "<Image " + std::string(name(self.format())) + " " + to_string(self.shape()) + " on '" + self.context()->info().name + "'" +
               (self.closed() ? ", closed>" : ">");
      });
}

}  // namespace

void bind_image(py::module_& module) {
  ImageClass image(module, "Image", "Texels in device memory, for the image arguments of kernels. Also a context manager.");
  bind_image_properties(image);
  bind_image_texels(image);
}

}  // namespace pumice
