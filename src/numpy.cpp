#include <array>
#include <cstring>
#include <memory>

#include "bindings.h"
#include "core/error.h"
#include "core/result_memory.h"
#include "device/wait_check.h"

namespace pumice {
namespace {

py::dtype ml_dtype(const char* name) {
  return py::dtype::from_args(py::module_::import("ml_dtypes").attr(name));
}

py::dtype make_dtype(DType dtype) {
  const std::string known(name(dtype));
  return dtype == DType::bfloat16 || is_low_bit(dtype) ? ml_dtype(known.c_str()) : py::dtype(known);
}

std::string python_str(const py::handle& object) {
  return py::str(object).cast<std::string>();
}

}  // namespace

py::dtype numpy_dtype(DType dtype) {
  static auto& cache = *new std::array<py::object, kDTypeCount>;  // cached, since every program call needs it; never destroyed
  py::object& cached = cache[static_cast<size_t>(dtype)];
  if (!cached) cached = make_dtype(dtype);
  return py::reinterpret_borrow<py::dtype>(cached);
}

DType engine_dtype(const py::dtype& dtype, std::string_view what) {
  const std::string given = python_str(dtype);
  if (const char order = dtype.byteorder(); order == '>')
    throw BindingError("K5", std::string(what), std::string(what), "native byte order; .astype(array.dtype.newbyteorder('=')) converts",
                       given);
  for (int i = 0; i < kDTypeCount; ++i)
    if (name(static_cast<DType>(i)) == given) return static_cast<DType>(i);
  throw BindingError("K5", std::string(what), std::string(what), "one of " + names(~DTypeSet{0} >> (32 - kDTypeCount)), given);
}

DType dtype_argument(const py::object& dtype) {
  if (py::isinstance<DType>(dtype)) return dtype.cast<DType>();
  if (py::isinstance<py::str>(dtype)) return dtype_from_name(dtype.cast<std::string>());
  return engine_dtype(py::dtype::from_args(dtype), "dtype");
}

std::span<const std::byte> contiguous_bytes(const py::buffer_info& info, std::string_view user) {
  if (!PyBuffer_IsContiguous(info.view(), 'C')) throw Error(std::string(user) + ": contiguous bytes expected; given a strided buffer");
  return {static_cast<const std::byte*>(info.ptr), static_cast<size_t>(info.size * info.itemsize)};
}

py::array contiguous(const py::array& array) {
  if (array.dtype().byteorder() != '>' && (array.flags() & py::array::c_style) && (array.flags() & py::detail::npy_api::NPY_ARRAY_ALIGNED_))
    return array;
  const py::object native = array.attr("dtype").attr("newbyteorder")("=");
  return py::module_::import("numpy")
      .attr("ascontiguousarray")(array, native)
      .cast<py::array>()
      .attr("reshape")(array.attr("shape"))
      .cast<py::array>();
}

py::array pack_elements(const py::array& array, DType dtype) {
  py::array native = contiguous(array);
  if (bits(dtype) >= 8) return native;
  const auto bytes_array = native.attr("view")("uint8").cast<py::array_t<uint8_t>>();
  const py::ssize_t width = bits(dtype), elements_per_byte = 8 / width;
  py::array_t<uint8_t> packed((bytes_array.size() + elements_per_byte - 1) / elements_per_byte);
  std::fill_n(packed.mutable_data(), packed.size(), uint8_t{0});
  for (py::ssize_t i = 0; i < bytes_array.size(); ++i) {
    const int packed_element = bytes_array.data()[i] & ((1 << width) - 1);
    packed.mutable_data()[i / elements_per_byte] |= static_cast<uint8_t>(packed_element << (i % elements_per_byte * width));
  }
  return packed;
}

py::array unpack_elements(DType dtype, const Shape& shape, std::span<const std::byte> packed) {
  py::array_t<uint8_t> bytes_array(std::vector<py::ssize_t>(shape.begin(), shape.end()));
  const int64_t width = bits(dtype);
  for (int64_t i = 0; i < bytes_array.size(); ++i) {
    const int packed_element = static_cast<int>(packed[static_cast<size_t>(i * width / 8)]) >> i * width % 8 & ((1 << width) - 1);
    bytes_array.mutable_data()[i] = static_cast<uint8_t>(packed_element);
  }
  return bytes_array.attr("view")(numpy_dtype(dtype)).cast<py::array>();
}

std::span<const std::byte> bytes_of(const py::array& array) {
  return {static_cast<const std::byte*>(array.data()), static_cast<size_t>(array.nbytes())};
}

Shape shape_of(const py::array& array) {
  return {array.shape(), array.shape() + array.ndim()};
}

Sizes sizes_of(std::span<const int64_t> sizes) {
  py::tuple result(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) result[i] = sizes[i];
  return result;
}

py::array empty_array(DType dtype, const Shape& shape) {
  const std::vector<py::ssize_t> sizes(shape.begin(), shape.end());
  const py::dtype element = numpy_dtype(dtype);
  const size_t bytes = static_cast<size_t>(element_count(shape)) * static_cast<size_t>(element.itemsize());
  auto kept = std::make_unique<std::shared_ptr<std::byte>>(bytes < kMinPooledResultBytes ? nullptr : allocate_result_memory(bytes));
  std::byte* const begin = kept->get();
  if (!begin) return {element, sizes};  // let NumPy allocate, which also reports allocation failure best
  const py::capsule owner(kept.get(), [](void* held) { delete static_cast<std::shared_ptr<std::byte>*>(held); });
  kept.release();
  return {element, sizes, begin, owner};
}

std::shared_ptr<const void> keep(py::object object) {
  return {object.ptr(), [kept = object.release()](const void*) { release_with_gil([&] { kept.dec_ref(); }); }};
}

void reject_masked(const py::handle& array, std::string_view what) {
  static PyObject* const ndarray_type = py::object(py::module_::import("numpy").attr("ndarray")).release().ptr();
  if (reinterpret_cast<PyObject*>(Py_TYPE(array.ptr())) == ndarray_type) return;
  if (py::isinstance(array, py::module_::import("numpy.ma").attr("MaskedArray")))
    throw BindingError("K5", std::string(what), std::string(what), "an array without a mask; .filled(value) makes one", "a masked array");
}

void check_output_array(const py::array& array, DType dtype, const std::string& slot, const std::string& name) {
  reject_masked(array, slot);
  const std::string expected = "a writable C-contiguous array of " + std::string(pumice::name(dtype));
  const auto refuse = [&](const std::string& given) { throw BindingError("K5", slot, name, expected, given); };
  const DType given = engine_dtype(array.dtype(), slot);
  if (given != dtype) refuse("one of " + std::string(pumice::name(given)));
  if (bits(dtype) < 8)
    throw BindingError("K5", slot, name, "no array: NumPy keeps an element of " + std::string(pumice::name(dtype)) + " in a byte", "one");
  if (!array.writeable()) refuse("a read-only one");
  if (!(array.flags() & py::array::c_style)) refuse("a strided one");
}

py::array array_like(const py::handle& given, std::string_view what) {
  reject_masked(given, what);
  if (py::isinstance<py::array>(given)) return py::reinterpret_borrow<py::array>(given);
  try {
    auto array = py::module_::import("numpy").attr("asarray")(given).cast<py::array>();
    if (array.dtype().kind() != 'O') return array;
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw;
    throw BindingError("K5", std::string(what), std::string(what), "an array",
                       type_name(given) + ", of which NumPy makes none: " + error.what());
  }
  throw BindingError("K5", std::string(what), std::string(what), "an array", type_name(given));
}

bool is_foreign_array(const py::handle& value) {
  static PyObject* const number = py::object(py::module_::import("numpy").attr("generic")).release().ptr();
  if (PyLong_CheckExact(value.ptr()) || PyFloat_CheckExact(value.ptr()) || py::isinstance<py::array>(value)) return false;
  if (PyObject_IsInstance(value.ptr(), number) == 1) return false;
  return py::hasattr(value, "__array__") || py::hasattr(value, "__dlpack__");
}

HostTensor host_tensor(const py::array& array, std::string_view what) {
  reject_masked(array, what);
  const DType dtype = engine_dtype(contiguous(array).dtype(), what);
  const py::array native = pack_elements(array, dtype);
  HostTensor tensor;
  tensor.desc = TensorDesc(dtype, shape_of(array));
  tensor.data = static_cast<const std::byte*>(native.data());
  tensor.owner = keep(native);
  return tensor;
}

py::array array_of(const HostTensor& host) {
  const TensorDesc& desc = host.desc;
  if (bits(desc.dtype) < 8) return unpack_elements(desc.dtype, desc.shape, {host.data, desc.element_bytes()});
  py::array array = empty_array(desc.dtype, desc.shape);
  if (const size_t bytes = desc.element_bytes()) std::memcpy(array.mutable_data(), host.data, bytes);
  return array;
}

std::string type_name(const py::handle& value) {
  return python_str(py::type::handle_of(value).attr("__name__"));
}

void check_signals() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

void wait_for(Context& context, uint64_t id, std::optional<double> timeout_seconds) {
  constexpr double kPollWithGil = 20;  // microseconds; releasing and reacquiring the GIL takes longer
  if (!(timeout_seconds && *timeout_seconds <= 0) && context.poll(id, kPollWithGil)) return check_finished(context, id);
  const ReleasedGil release;
  context.wait(id, timeout_seconds, check_signals);
}

}  // namespace pumice
