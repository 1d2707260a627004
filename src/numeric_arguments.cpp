#include "numeric_arguments.h"

#include <cmath>

#include "core/error.h"

namespace pumice {

void throw_argument_error(const std::string& name, const py::handle& value) {
  throw BindingError("K5", "argument '" + name + "'", name, "a Tensor, a NumPy array, an Image, a number, or numbers in a sequence or dict",
                     get_type_name(value));
}

// Complex numbers and durations convert to float, but are not valid.
bool is_unsupported_number(const py::handle& value) {
  if (PyComplex_Check(value.ptr())) return true;
  const bool has_kind = py::hasattr(value, "dtype") && py::hasattr(value.attr("dtype"), "kind");
  return has_kind && py::str("cmM").contains(py::str(value.attr("dtype").attr("kind")));
}

static Number convert_to_int64(const std::string& name, const py::object& integer) {
  int overflow = 0;
  const long long converted = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
  if (overflow == 0) return int64_t{converted};
  if (overflow > 0) {
    const unsigned long long unsigned_value = PyLong_AsUnsignedLongLong(integer.ptr());
    if (!PyErr_Occurred()) return uint64_t{unsigned_value};
    PyErr_Clear();
  }
  throw BindingError("K6", "argument '" + name + "'", name, "a 64-bit integer", py::str(integer).cast<std::string>());
}

static Number convert_to_number(const std::string& name, const py::handle& value) {
  if (py::isinstance<py::bool_>(value)) return int64_t{value.cast<bool>()};
  if (PyIndex_Check(value.ptr())) {
    if (const auto integer = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()))) return convert_to_int64(name, integer);
    PyErr_Clear();  // NumPy's bool defines __index__ but raises
  }
  const bool is_tensor = py::isinstance<Tensor>(value);  // a tensor's elements are on the device
  if (!PyNumber_Check(value.ptr()) || is_tensor || is_unsupported_number(value)) throw_argument_error(name, value);
  const double real = PyFloat_AsDouble(value.ptr());
  const bool failed = real == -1.0 && PyErr_Occurred();
  if (failed && !PyErr_ExceptionMatches(PyExc_OverflowError)) {
    PyErr_Clear();
    throw_argument_error(name, value);
  }
  PyErr_Clear();
  if (failed || (std::isinf(real) && !py::float_(real).equal(value)))
    throw BindingError("K6", "argument '" + name + "'", name, "a number that float64 can hold", py::str(value).cast<std::string>());
  return real;
}

bool is_sequence(const py::handle& value) {
  return py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value);
}

// Limits the nesting, because a list may contain itself.
void check_nesting_depth(const std::string& name, size_t depth) {
  constexpr size_t kMaxDepth = 32;
  if (depth > kMaxDepth)
    throw BindingError("K5", "argument '" + name.substr(0, 60) + "'", name.substr(0, 60),
                       "sequences and dicts nested at most " + std::to_string(kMaxDepth) + " deep", "deeper ones");
}

static void add_axis(PushConstantValues& numbers, const std::string& name, size_t axis, size_t size) {
  if (axis == numbers.shape.size() && numbers.values.empty()) return numbers.shape.push_back(static_cast<uint32_t>(size));
  if (axis >= numbers.shape.size() || numbers.shape[axis] != size)
    throw BindingError("K5", "argument '" + name + "'", name, "sequences of equal length on each level", "ragged ones");
}

// Appends the numbers of a vector, matrix or array in memory order, with the shape of the nesting.
void append_numbers(PushConstantValues& numbers, const std::string& name, const py::handle& value, size_t axis) {
  check_nesting_depth(name, axis);
  if (py::isinstance<py::array>(value)) {
    const auto array = value.cast<py::array>();
    if (is_unsupported_number(array)) throw_argument_error(name, value);
    for (py::ssize_t i = 0; i < array.ndim(); ++i)
      add_axis(numbers, name, axis + static_cast<size_t>(i), static_cast<size_t>(array.shape(i)));
    if (axis + static_cast<size_t>(array.ndim()) != numbers.shape.size()) add_axis(numbers, name, numbers.shape.size(), 0);
    for (const auto& item : py::list(array.attr("ravel")().attr("tolist")())) numbers.values.push_back(convert_to_number(name, item));
  } else if (is_sequence(value)) {
    add_axis(numbers, name, axis, py::len(value));
    for (const auto& item : py::reinterpret_borrow<py::sequence>(value)) append_numbers(numbers, name, item, axis + 1);
  } else {
    if (axis != numbers.shape.size()) add_axis(numbers, name, axis, 0);
    numbers.values.push_back(convert_to_number(name, value));
  }
}

}  // namespace pumice
