#include <array>
#include <cstring>
#include <memory>

#include "bindings.h"
#include "core/error.h"
#include "core/host_memory_pool.h"
#include "device/post_wait_hook.h"

namespace pumice {
namespace {

py::dtype get_ml_dtypes_dtype(const char* name) {
  return py::dtype::from_args(py::module_::import("ml_dtypes").attr(name));
}

py::dtype make_dtype(DType dtype) {
  const std::string known(name(dtype));
  return dtype == DType::bfloat16 || is_low_bit(dtype) ? get_ml_dtypes_dtype(known.c_str()) : py::dtype(known);
}

std::string format_python_str(const py::handle& object) {
  return py::str(object).cast<std::string>();
}

}  // namespace

py::dtype get_numpy_dtype(DType dtype) {
  static auto& cache = *new std::array<py::object, kDTypeCount>;  // cached, since every program call needs it; never destroyed
  py::object& cached = cache[static_cast<size_t>(dtype)];
  if (!cached) cached = make_dtype(dtype);
  return py::reinterpret_borrow<py::dtype>(cached);
}

DType get_engine_dtype(const py::dtype& dtype, std::string_view label) {
  const std::string dtype_name = format_python_str(dtype);
  if (const char order = dtype.byteorder(); order == '>')
    throw BindingError("K5", std::string(label), std::string(label), "native byte order; .astype(array.dtype.newbyteorder('=')) converts",
                       dtype_name);
  for (int i = 0; i < kDTypeCount; ++i)
    if (name(static_cast<DType>(i)) == dtype_name) return static_cast<DType>(i);
  throw BindingError("K5", std::string(label), std::string(label), "one of " + join_dtype_names(~DTypeSet{0} >> (32 - kDTypeCount)),
                     dtype_name);
}

DType parse_dtype(const py::object& dtype) {
  if (py::isinstance<DType>(dtype)) return dtype.cast<DType>();
  if (py::isinstance<py::str>(dtype)) return dtype_from_name(dtype.cast<std::string>());
  return get_engine_dtype(py::dtype::from_args(dtype), "dtype");
}

std::span<const std::byte> get_contiguous_bytes(const py::buffer_info& info, std::string_view user) {
  if (!PyBuffer_IsContiguous(info.view(), 'C')) throw Error(std::string(user) + ": expected contiguous bytes; given a strided buffer");
  return {static_cast<const std::byte*>(info.ptr), static_cast<size_t>(info.size * info.itemsize)};
}

py::array make_contiguous(const py::array& array) {
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
  py::array native = make_contiguous(array);
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
  return bytes_array.attr("view")(get_numpy_dtype(dtype)).cast<py::array>();
}

std::span<const std::byte> get_bytes(const py::array& array) {
  return {static_cast<const std::byte*>(array.data()), static_cast<size_t>(array.nbytes())};
}

Shape get_shape(const py::array& array) {
  return {array.shape(), array.shape() + array.ndim()};
}

Sizes make_size_tuple(std::span<const int64_t> sizes) {
  py::tuple result(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) result[i] = sizes[i];
  return result;
}

py::array make_empty_array(DType dtype, const Shape& shape) {
  const std::vector<py::ssize_t> sizes(shape.begin(), shape.end());
  const py::dtype element = get_numpy_dtype(dtype);
  const size_t bytes = static_cast<size_t>(element_count(shape)) * static_cast<size_t>(element.itemsize());
  auto memory = std::make_unique<std::shared_ptr<std::byte>>(bytes < kMinPooledResultBytes ? nullptr : allocate_result_memory(bytes));
  std::byte* const begin = memory->get();
  if (!begin) return {element, sizes};  // let NumPy allocate, which also reports allocation failure best
  const py::capsule owner(memory.get(), [](void* pointer) { delete static_cast<std::shared_ptr<std::byte>*>(pointer); });
  memory.release();
  return {element, sizes, begin, owner};
}

std::shared_ptr<const void> keep_alive(py::object object) {
  return {object.ptr(), [reference = object.release()](const void*) { release_with_gil([&] { reference.dec_ref(); }); }};
}

void reject_masked_array(const py::handle& array, std::string_view label) {
  static PyObject* const ndarray_type = py::object(py::module_::import("numpy").attr("ndarray")).release().ptr();
  if (reinterpret_cast<PyObject*>(Py_TYPE(array.ptr())) == ndarray_type) return;
  if (py::isinstance(array, py::module_::import("numpy.ma").attr("MaskedArray")))
    throw BindingError("K5", std::string(label), std::string(label), "an array without a mask; .filled(value) makes one", "a masked array");
}

void check_output_array(const py::array& array, DType dtype, const std::string& slot, const std::string& name) {
  reject_masked_array(array, slot);
  const std::string expected = "a writable C-contiguous array of " + std::string(pumice::name(dtype));
  const auto reject = [&](const std::string& actual) { throw BindingError("K5", slot, name, expected, actual); };
  const DType actual_dtype = get_engine_dtype(array.dtype(), slot);
  if (actual_dtype != dtype) reject("one of " + std::string(pumice::name(actual_dtype)));
  if (bits(dtype) < 8)
    throw BindingError("K5", slot, name,
                       "no array, because NumPy stores each element of " + std::string(pumice::name(dtype)) + " in a byte", "one");
  if (!array.writeable()) reject("a read-only one");
  if (!(array.flags() & py::array::c_style)) reject("a strided one");
}

py::array convert_to_numpy(const py::handle& value, std::string_view label) {
  reject_masked_array(value, label);
  if (py::isinstance<py::array>(value)) return py::reinterpret_borrow<py::array>(value);
  try {
    auto array = py::module_::import("numpy").attr("asarray")(value).cast<py::array>();
    if (array.dtype().kind() != 'O') return array;
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw;
    throw BindingError("K5", std::string(label), std::string(label), "an array",
                       get_type_name(value) + ", which NumPy cannot convert: " + error.what());
  }
  throw BindingError("K5", std::string(label), std::string(label), "an array", get_type_name(value));
}

bool is_foreign_array(const py::handle& value) {
  static PyObject* const number = py::object(py::module_::import("numpy").attr("generic")).release().ptr();
  if (PyLong_CheckExact(value.ptr()) || PyFloat_CheckExact(value.ptr()) || py::isinstance<py::array>(value)) return false;
  if (PyObject_IsInstance(value.ptr(), number) == 1) return false;
  return py::hasattr(value, "__array__") || py::hasattr(value, "__dlpack__");
}

HostTensor make_host_tensor(const py::array& array, std::string_view label) {
  reject_masked_array(array, label);
  const DType dtype = get_engine_dtype(make_contiguous(array).dtype(), label);
  const py::array native = pack_elements(array, dtype);
  HostTensor tensor;
  tensor.desc = TensorDesc(dtype, get_shape(array));
  tensor.data = static_cast<const std::byte*>(native.data());
  tensor.owner = keep_alive(native);
  return tensor;
}

py::array copy_to_array(const HostTensor& host) {
  const TensorDesc& desc = host.desc;
  if (bits(desc.dtype) < 8) return unpack_elements(desc.dtype, desc.shape, {host.data, desc.element_bytes()});
  py::array array = make_empty_array(desc.dtype, desc.shape);
  if (const size_t bytes = desc.element_bytes()) std::memcpy(array.mutable_data(), host.data, bytes);
  return array;
}

std::string get_type_name(const py::handle& value) {
  return format_python_str(py::type::handle_of(value).attr("__name__"));
}

void check_signals() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

void wait_for_execution(Context& context, uint64_t id, std::optional<double> timeout_seconds) {
  constexpr double kPollWithGil = 20;  // microseconds; releasing and reacquiring the GIL takes longer
  if (!(timeout_seconds && *timeout_seconds <= 0) && context.poll(id, kPollWithGil)) return run_post_wait_hook(context, id);
  const GilRelease release;
  context.wait(id, timeout_seconds, check_signals);
}

}  // namespace pumice
