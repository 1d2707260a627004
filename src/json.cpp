#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "bindings.h"

namespace pumice {
namespace {

constexpr std::string_view kEscapeLetters = "\"\\/bfnrt",
                           kEscapedChars = "\"\\/\b\f\n\r\t";  // characters after a backslash, and their meanings

constexpr int kMaxDepth = 1000;  // nesting limit: cache entries need far less, and a thread's stack suffices

// Increments the nesting depth for the lifetime of this object.
struct DepthGuard {
  explicit DepthGuard(int& all) : depth(all) {
    if (depth == kMaxDepth) throw py::value_error("JSON: expected at most " + std::to_string(kMaxDepth) + " nested lists and dicts");
    ++depth;
  }
  ~DepthGuard() { --depth; }
  DepthGuard(const DepthGuard&) = delete;
  int& depth;
};

py::object take_ownership(PyObject* result) {
  if (!result) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

// Parses JSON into Python objects like json.loads(). Loading models and tuned kernels reads cache entries, and importing Python's json
// module alone takes as long as parsing all of them.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  py::object parse_document() {
    py::object result = parse_value();
    if (skip_whitespace() != '\0' || at_ != text_.size()) fail("the end of the text");
    return result;
  }

 private:
  [[noreturn]] void fail(const char* expected) const {
    throw py::value_error("JSON: expected " + std::string(expected) + " at byte " + std::to_string(at_));
  }

  // Returns the current character, or NUL at the end.
  char current_char() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  // Skips whitespace and returns the next character.
  char skip_whitespace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) ++at_;
    return current_char();
  }

  bool consume(char expected_char) {
    if (skip_whitespace() != expected_char) return false;
    ++at_;
    return true;
  }

  bool consume(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  py::object parse_value() {
    switch (skip_whitespace()) {
      case '"':
        return parse_string();
      case '[':
        return parse_list();
      case '{':
        return parse_dict();
      case 't':
        if (consume("true")) return py::bool_(true);
        break;
      case 'f':
        if (consume("false")) return py::bool_(false);
        break;
      case 'n':
        if (consume("null")) return py::none();
        break;
      case 'N':
        if (consume("NaN")) return py::float_(std::numeric_limits<double>::quiet_NaN());
        break;
      default:
        return parse_number();
    }
    fail("a value");
  }

  py::object parse_list() {
    const DepthGuard depth_guard(depth_);
    py::list result;
    ++at_;
    if (consume(']')) return result;
    do {
      if (PyList_Append(result.ptr(), parse_value().ptr()) != 0) throw py::error_already_set();
    } while (consume(','));
    if (!consume(']')) fail("',' or ']'");
    return result;
  }

  py::object parse_dict() {
    const DepthGuard depth_guard(depth_);
    py::dict result;
    ++at_;
    if (consume('}')) return result;
    do {
      if (skip_whitespace() != '"') fail("a quoted name");
      const py::object key = parse_string();
      if (!consume(':')) fail("':'");
      if (PyDict_SetItem(result.ptr(), key.ptr(), parse_value().ptr()) != 0) throw py::error_already_set();
    } while (consume(','));
    if (!consume('}')) fail("',' or '}'");
    return result;
  }

  size_t skip_digits() {
    const size_t first = at_;
    while (current_char() >= '0' && current_char() <= '9') ++at_;
    return at_ - first;
  }

  py::object parse_number() {
    const size_t first = at_;
    const bool negative = current_char() == '-';
    if (negative) ++at_;
    if (consume("Infinity")) return py::float_(negative ? -HUGE_VAL : HUGE_VAL);
    const bool zero = current_char() == '0';
    const size_t num_digits = skip_digits();
    if (num_digits == 0 || (zero && num_digits > 1)) fail("a value");
    bool exact = true;
    if (current_char() == '.') {
      ++at_;
      exact = false;
      if (skip_digits() == 0) fail("a digit");
    }
    if (current_char() == 'e' || current_char() == 'E') {
      ++at_;
      exact = false;
      if (current_char() == '+' || current_char() == '-') ++at_;
      if (skip_digits() == 0) fail("a digit");
    }
    return exact ? parse_integer(text_.substr(first, at_ - first)) : parse_real(text_.substr(first, at_ - first));
  }

  static py::object parse_integer(std::string_view digits) {
    const std::string copy(digits);
    return take_ownership(PyLong_FromString(copy.c_str(), nullptr, 10));
  }

  static py::object parse_real(std::string_view digits) {
    const std::string copy(digits);
    const double result = PyOS_string_to_double(copy.c_str(), nullptr, nullptr);
    if (result == -1.0 && PyErr_Occurred()) throw py::error_already_set();
    return py::float_(result);
  }

  // Allows lone surrogates, as Python strings do.
  static py::object decode_utf8(std::string_view utf8) {
    return take_ownership(PyUnicode_DecodeUTF8(utf8.data(), static_cast<Py_ssize_t>(utf8.size()), "surrogatepass"));
  }

  py::object parse_string() {
    const size_t first = ++at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && static_cast<unsigned char>(text_[at_]) >= ' ') ++at_;
    if (current_char() == '"') return decode_utf8(text_.substr(first, at_++ - first));
    std::string result(text_.substr(first, at_ - first));
    while (current_char() != '"') {
      if (static_cast<unsigned char>(current_char()) < ' ') fail("a valid character in a string");
      const char item = text_[at_++];
      item == '\\' ? parse_escape(result) : result.push_back(item);
    }
    ++at_;
    return decode_utf8(result);
  }

  void parse_escape(std::string& result) {
    const char name = current_char();
    const size_t escape_index = name == '\0' ? std::string_view::npos : kEscapeLetters.find(name);
    if (escape_index == std::string_view::npos && name != 'u') fail("a valid escape sequence");
    ++at_;
    if (name != 'u') return result.push_back(kEscapedChars[escape_index]);
    uint32_t code = parse_utf16_unit();
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_).starts_with("\\u")) {
      const size_t before = at_;
      at_ += 2;
      const uint32_t low = parse_utf16_unit();
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      } else {
        at_ = before;  // lone high surrogate
      }
    }
    append_utf8(result, code);
  }

  uint32_t parse_utf16_unit() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char item = current_char();
      const bool digit = item >= '0' && item <= '9';
      const char letter = static_cast<char>(item | 0x20);
      if (!digit && !(letter >= 'a' && letter <= 'f')) fail("four hexadecimal digits");
      code = code * 16 + static_cast<uint32_t>(digit ? item - '0' : letter - 'a' + 10);
    }
    return code;
  }

  static void append_utf8(std::string& result, uint32_t code) {
    const auto append_continuation = [&](int shift) { result.push_back(static_cast<char>(0x80 | (code >> shift & 0x3f))); };
    if (code < 0x80) return result.push_back(static_cast<char>(code));
    if (code < 0x800) {
      result.push_back(static_cast<char>(0xc0 | code >> 6));
    } else if (code < 0x10000) {
      result.push_back(static_cast<char>(0xe0 | code >> 12));
      append_continuation(6);
    } else {
      result.push_back(static_cast<char>(0xf0 | code >> 18));
      append_continuation(12);
      append_continuation(6);
    }
    append_continuation(0);
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

// Writes Python values as JSON like json.dumps() with default options.
class JsonWriter {
 public:
  explicit JsonWriter(bool sorted) : sorted_(sorted) {}

  void write_value(const py::handle& value) {
    PyObject* const object = value.ptr();
    if (object == Py_None) {
      text_ += "null";
    } else if (PyBool_Check(object)) {
      text_ += object == Py_True ? "true" : "false";
    } else if (PyUnicode_Check(object)) {
      write_string(value);
    } else if (PyLong_Check(object)) {
      text_ += take_ownership(PyNumber_ToBase(object, 10)).cast<std::string>();
    } else if (PyFloat_Check(object)) {
      write_real(value);
    } else if (PyList_Check(object) || PyTuple_Check(object)) {
      write_list(value);
    } else if (PyDict_Check(object)) {
      write_dict(py::reinterpret_borrow<py::dict>(value));
    } else {
      throw py::type_error("JSON: expected strings, numbers, and lists and dicts of them; given " + get_type_name(value));
    }
  }

  const std::string& text() const { return text_; }

 private:
  void write_list(const py::handle& list) {
    const DepthGuard depth_guard(depth_);
    text_ += '[';
    std::string_view before;
    for (const auto& item : list) {
      text_ += before;
      write_value(item);
      before = ", ";
    }
    text_ += ']';
  }

  void write_dict(const py::dict& dict) {
    const DepthGuard depth_guard(depth_);
    py::list keys(dict);
    if (sorted_ && PyList_Sort(keys.ptr()) != 0) throw py::error_already_set();
    text_ += '{';
    std::string_view before;
    for (const auto& key : keys) {
      if (!PyUnicode_Check(key.ptr())) throw py::type_error("JSON: expected strings as keys; given " + get_type_name(key));
      text_ += before;
      write_string(key);
      text_ += ": ";
      write_value(dict[key]);
      before = ", ";
    }
    text_ += '}';
  }

  void write_real(const py::handle& value) {
    const auto number = value.cast<double>();
    if (std::isnan(number)) {
      text_ += "NaN";
    } else if (std::isinf(number)) {
      text_ += number < 0 ? "-Infinity" : "Infinity";
    } else {
      text_ += py::repr(py::float_(number)).cast<std::string>();
    }
  }

  void write_string(const py::handle& text) {
    text_ += '"';
    const Py_ssize_t count = PyUnicode_GetLength(text.ptr());
    for (Py_ssize_t i = 0; i < count; ++i) write_character(PyUnicode_ReadChar(text.ptr(), i));
    text_ += '"';
  }

  void write_character(uint32_t code) {
    const size_t escape_index = code < 0x80 ? kEscapedChars.find(static_cast<char>(code)) : std::string_view::npos;
    if (escape_index != std::string_view::npos && code != '/') {
      text_ += {'\\', kEscapeLetters[escape_index]};
    } else if (code >= ' ' && code < 0x7f) {
      text_ += static_cast<char>(code);
    } else if (code < 0x10000) {
      write_utf16_unit(code);
    } else {
      write_utf16_unit(0xd800 + ((code - 0x10000) >> 10));
      write_utf16_unit(0xdc00 + ((code - 0x10000) & 0x3ff));
    }
  }

  void write_utf16_unit(uint32_t code) {
    text_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) text_ += "0123456789abcdef"[code >> shift & 0xf];
  }

  const bool sorted_;
  int depth_ = 0;
  std::string text_;
};

std::string write_json(const py::handle& value, bool sort_keys) {
  JsonWriter writer(sort_keys);
  writer.write_value(value);
  return writer.text();
}

py::object parse_json(const py::bytes& text) {
  return JsonReader(std::string_view(text)).parse_document();
}

}  // namespace

void bind_json(py::module_& module) {
  module.def("parse_json", &parse_json, py::arg("text"), "Parse JSON like json.loads(). Raise ValueError if it is invalid.");
  module.def("json_text", &write_json, py::arg("value"), py::kw_only(), py::arg("sort_keys") = false,
             "Serialise a value to JSON like json.dumps(). Raise TypeError for unsupported types.");
}

}  // namespace pumice
