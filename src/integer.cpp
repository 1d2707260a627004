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
T checked_cast(const Integer& integer, const char* user, const std::string& expected, const char* rule = "") {
  if (const auto value = integer.as<T>()) return *value;
  throw GraphError(user, "expected " + expected + " of " + std::to_string(sizeof(T) * 8) + " bits; given " + integer.text(), rule);
}

}  // namespace

std::string format_number(const py::handle& number) {
  Integer integer;
  return integer.load(number) ? integer.text() : py::repr(number).cast<std::string>();
}

bool Integer::load(const py::handle& object) {
  if (!object || !PyIndex_Check(object.ptr())) return false;
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
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

uint64_t parse_byte_count(const Integer& bytes, const char* rule, const char* slot) {
  if (const auto value = bytes.as<uint64_t>()) return *value;
  throw BindingError(rule, slot, "", "a number of bytes from 0 to 2^64 - 1", bytes.text());
}

size_t parse_count(const Integer& count, const char* name) {
  if (const auto value = count.as<uint32_t>()) return *value;
  throw BindingError("K12", name, "", "a number from 0 to 2^32 - 1", count.text());
}

size_t parse_output_count(const Integer& outputs, const std::string& node) {
  if (const auto value = outputs.as<uint32_t>()) return *value;
  throw GraphError(node, "expected a positive number of outputs; given " + outputs.text());
}

uint64_t parse_execution_id(const Integer& id) {
  if (const auto value = id.as<uint64_t>()) return *value;
  throw StateError("execution " + id.text() + " has not been submitted", "L7");
}

std::vector<int64_t> parse_sizes(const Integers& sizes, const char* label) {
  std::vector<int64_t> values;
  values.reserve(sizes.size());
  for (const Integer& size : sizes) values.push_back(checked_cast<int64_t>(size, label, "numbers", "R8"));
  return values;
}

std::optional<Strides> parse_strides(const std::optional<Integers>& strides) {
  return strides ? std::optional(parse_sizes(*strides, "strides")) : std::nullopt;
}

int parse_axis(const Integer& axis, const char* caller) {
  return checked_cast<int>(axis, caller, "an axis");
}

std::vector<int> parse_axes(const Integers& axes, const char* caller) {
  std::vector<int> values;
  for (const Integer& axis : axes) values.push_back(parse_axis(axis, caller));
  return values;
}

std::optional<int32_t> parse_zero_point(const std::optional<Integer>& zero_point) {
  return zero_point ? std::optional(checked_cast<int32_t>(*zero_point, "zero_point", "a number")) : std::nullopt;
}

std::optional<int> parse_channel_axis(const std::optional<Integer>& axis) {
  return axis ? std::optional(parse_axis(*axis, "channel_axis")) : std::nullopt;
}

}  // namespace pumice
