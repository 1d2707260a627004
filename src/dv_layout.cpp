#include "bindings.h"
#include "core/error.h"
#include "dv/weights/whc8_layout.h"

namespace pumice {
namespace {

constexpr std::string_view kAxes = "NCHW";

// A batch of tensors in host memory with named axes.
struct AxisLayout {
  std::array<py::ssize_t, 4> axes{-1, -1, -1, -1};  // axis of the array for each letter of kAxes; -1: absent
  uint32_t images = 1;
  dv::Extent extent;

  AxisLayout(const std::optional<std::string>& layout_argument, const Shape& shape) {
    const std::string layout = layout_argument.value_or(shape.size() == 3 ? "CHW" : "NCHW");
    for (size_t i = 0; i < layout.size(); ++i)
      if (const size_t axis = kAxes.find(layout[i]); axis != kAxes.npos && axes[axis] < 0) axes[axis] = static_cast<py::ssize_t>(i);
    const bool has_batch = axes[0] >= 0;
    if (layout.size() != 3u + has_batch || std::count(axes.begin(), axes.end(), -1) != (has_batch ? 0 : 1))
      throw BindingError("D6", "layout", "", "the letters C, H and W, and optionally N, in any order", "'" + layout + "'");
    if (shape.size() != layout.size())
      throw BindingError("D6", "shape", "", std::to_string(layout.size()) + " axes, to match '" + layout + "'", to_string(shape));
    const auto size = [&](size_t axis) {
      const int64_t axis_size = shape[static_cast<size_t>(axes[axis])];
      if (axis_size < 0 || axis_size > UINT32_MAX) throw BindingError("D6", "shape", "", "sizes that fit in 32 bits", to_string(shape));
      return static_cast<uint32_t>(axis_size);
    };
    if (has_batch) images = size(0);
    extent = {size(3), size(2), size(1)};
  }
  dv::HostStrides get_host_strides(const py::array& array) const {
    const auto stride = [&](size_t axis) { return axes[axis] < 0 ? 0 : array.strides(axes[axis]); };
    return {stride(0), stride(1), stride(2), stride(3)};
  }
};

void check_supported_array(const py::array& array, const char* label) {
  reject_masked_array(array, label);
  if (array.dtype().attr("hasobject").cast<bool>()) throw UnsupportedError(std::string(label) + " of Python objects in WHC8");
}

bool has_native_layout(const py::array& array) {
  return array.dtype().byteorder() != '>' && (array.flags() & py::detail::npy_api::NPY_ARRAY_ALIGNED_);
}

py::array to_whc8(const py::array& array, const std::optional<std::string>& layout) {
  check_supported_array(array, "array");
  const AxisLayout axis_layout(layout, get_shape(array));
  const py::array source = has_native_layout(array) ? array : make_contiguous(array);
  py::array result(source.dtype(), std::vector<py::ssize_t>{source.size()});
  const auto element_bytes = static_cast<size_t>(source.itemsize());
  const auto* from = static_cast<const std::byte*>(source.data());
  auto* to = static_cast<std::byte*>(result.mutable_data());
  const dv::HostStrides strides = axis_layout.get_host_strides(source);
  const GilRelease release;
  dv::to_whc8(element_bytes, axis_layout.images, axis_layout.extent, from, strides, to);
  return result;
}

py::array from_whc8(const py::array& values, const Shape& shape, const std::optional<std::string>& layout) {
  check_supported_array(values, "values");
  const AxisLayout axis_layout(layout, shape);
  const py::array source = make_contiguous(values);
  const uint64_t elements = axis_layout.images * axis_layout.extent.elements();
  if (source.ndim() != 1 || static_cast<uint64_t>(source.size()) != elements)
    throw BindingError("D6", "values", "",
                       "one axis of " + std::to_string(elements) + " elements, as the shape " + to_string(shape) + " has",
                       "shape " + to_string(get_shape(source)));
  py::array result(source.dtype(), std::vector<py::ssize_t>(shape.begin(), shape.end()));
  const auto element_bytes = static_cast<size_t>(source.itemsize());
  const auto* from = static_cast<const std::byte*>(source.data());
  auto* to = static_cast<std::byte*>(result.mutable_data());
  const dv::HostStrides strides = axis_layout.get_host_strides(result);
  const GilRelease release;
  dv::from_whc8(element_bytes, axis_layout.images, axis_layout.extent, from, to, strides);
  return result;
}

uint64_t compute_whc8_index(const std::array<uint32_t, 3>& shape, uint32_t channel, uint32_t y, uint32_t x) {
  const auto [channels, height, width] = shape;
  if (channel >= channels || y >= height || x >= width)
    throw BindingError("D6", "index", "", "one inside " + to_string(Shape(shape.begin(), shape.end())), to_string(Shape{channel, y, x}));
  return dv::whc8_index({width, height, channels}, channel, x, y);
}

}  // namespace

void bind_dv_layout(py::module_& module) {
  module.def("to_whc8", &to_whc8, py::arg("array"), py::arg("layout") = py::none(),
             "Return activations in WHC8 order, one image after another, as a 1D array of the same dtype.\n"
             "layout: axes of the array, the letters C, H, W and, for a batch, N in any order; None: 'CHW' or 'NCHW' by rank.\n"
             "Raise BindingError (D6), UnsupportedError for elements that are not 1, 2, 4 or 8 bytes.");
  module.def("from_whc8", &from_whc8, py::arg("values"), py::arg("shape"), py::arg("layout") = py::none(),
             "Convert WHC8 values to a new array of this shape, with axes as in layout. Inverse of to_whc8(), with the same errors.");
  module.def("whc8_index", &compute_whc8_index, py::arg("shape"), py::arg("channel"), py::arg("y"), py::arg("x"),
             "Return the index of an element of one image in WHC8.\n"
             "shape: (channels, height, width).\n"
             "Raise BindingError (D6).");
}

}  // namespace pumice
