#include "integer.h"

#include "core/error.h"

namespace py = pybind11;

namespace pumice {
namespace {

constexpr size_t kMaxDigits = 60;  // longest number that a message quotes, in digits

std::string format_long_integer(const py::handle& number) {
  const auto text = py::reinterpret_steal<py::object>(PyNumber_ToBase(number.ptr(), 16));
  if (!text) throw py::error_already_set();
  const bool is_long = text.cast<std::string>().size() > kMaxDigits;  // Python refuses to print very long integers in decimal
  return is_long ? text.cast<std::string>().substr(0, kMaxDigits) + "..." : py::str(number).cast<std::string>();
}

template <typename T>
T checked_cast(const Integer& given, const char* user, const std::string& what, const char* rule = "") {
  if (const auto value = given.as<T>()) return *value;
  throw GraphError(user, what + " of " + std::to_string(sizeof(T) * 8) + " bits expected; given " + given.text(), rule);
}

}  // namespace

std::string number_text(const py::handle& number) {
  Integer integer;
  return integer.load(number) ? integer.text() : py::repr(number).cast<std::string>();
}

bool Integer::load(const py::handle& given) {
  if (!given || !PyIndex_Check(given.ptr())) return false;
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(given.ptr()));
  if (!number) {
    PyErr_Clear();  // NumPy arrays and bool define __index__ but raise
    return false;
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow == 0) {
    *this = Integer(int64_t{value});
    return true;
  }
  *this = Integer();
  if (overflow > 0) {
    magnitude_ = PyLong_AsUnsignedLongLong(number.ptr());
    if (!PyErr_Occurred()) return true;
    PyErr_Clear();
  }
  text_ = format_long_integer(number);
  return true;
}

std::string Integer::text() const {
  return text_.empty() ? (negative_ ? "-" : "") + std::to_string(magnitude_) : text_;
}

uint64_t bytes_argument(const Integer& bytes, const char* rule, const char* slot) {
  if (const auto value = bytes.as<uint64_t>()) return *value;
  throw BindingError(rule, slot, "", "a number of bytes from 0 to 2^64 - 1", bytes.text());
}

size_t count_argument(const Integer& count, const char* name) {
  if (const auto value = count.as<uint32_t>()) return *value;
  throw BindingError("K12", name, "", "a number from 0 to 2^32 - 1", count.text());
}

size_t outputs_argument(const Integer& outputs, const std::string& node) {
  if (const auto value = outputs.as<uint32_t>()) return *value;
  throw GraphError(node, "a number of outputs from 1 on expected; given " + outputs.text());
}

uint64_t execution_argument(const Integer& id) {
  if (const auto value = id.as<uint64_t>()) return *value;
  throw StateError("execution " + id.text() + " has not been submitted", "L7");
}

std::vector<int64_t> sizes_argument(const Integers& sizes, const char* what) {
  std::vector<int64_t> values;
  values.reserve(sizes.size());
  for (const Integer& size : sizes) values.push_back(checked_cast<int64_t>(size, what, "numbers", "R8"));
  return values;
}

std::optional<Strides> strides_argument(const std::optional<Integers>& strides) {
  return strides ? std::optional(sizes_argument(*strides, "strides")) : std::nullopt;
}

int axis_argument(const Integer& axis, const char* what) {
  return checked_cast<int>(axis, what, "an axis");
}

std::vector<int> axes_argument(const Integers& axes, const char* what) {
  std::vector<int> values;
  for (const Integer& axis : axes) values.push_back(axis_argument(axis, what));
  return values;
}

std::optional<int32_t> zero_point_argument(const std::optional<Integer>& zero_point) {
  return zero_point ? std::optional(checked_cast<int32_t>(*zero_point, "zero_point", "a number")) : std::nullopt;
}

std::optional<int> channel_axis_argument(const std::optional<Integer>& axis) {
  return axis ? std::optional(axis_argument(*axis, "channel_axis")) : std::nullopt;
}

}  // namespace pumice
