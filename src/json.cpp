#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "bindings.h"

namespace pumice {
namespace {

constexpr std::string_view kNames = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";  // characters after a backslash, and their meanings

constexpr int kMostDepth = 1000;  // nesting limit: far more than cache entries need, and safe for a thread's stack

// Counts the nesting depth for its lifetime.
struct Level {
  explicit Level(int& all) : depth(all) {
    if (depth == kMostDepth)
      throw py::value_error("JSON: expected at most " + std::to_string(kMostDepth) + " lists and dicts in one another");
    ++depth;
  }
  ~Level() { --depth; }
  Level(const Level&) = delete;
  int& depth;
};

py::object owned(PyObject* made) {
  if (!made) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

// Parses JSON into Python objects like json.loads(). Loading models and tuned kernels reads cache entries, and importing Python's json
// module alone takes as long as parsing all of them.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  py::object document() {
    py::object made = value();
    if (next() != '\0' || at_ != text_.size()) fail("its end");
    return made;
  }

 private:
  [[noreturn]] void fail(const char* expected) const {
    throw py::value_error("JSON: expected " + std::string(expected) + " at byte " + std::to_string(at_));
  }

  // The current character, or NUL at the end.
  char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  // Skips whitespace and returns the next character.
  char next() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) ++at_;
    return here();
  }

  bool takes(char wanted) {
    if (next() != wanted) return false;
    ++at_;
    return true;
  }

  bool takes(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  py::object value() {
    switch (next()) {
      case '"':
        return string();
      case '[':
        return list();
      case '{':
        return dict();
      case 't':
        if (takes("true")) return py::bool_(true);
        break;
      case 'f':
        if (takes("false")) return py::bool_(false);
        break;
      case 'n':
        if (takes("null")) return py::none();
        break;
      case 'N':
        if (takes("NaN")) return py::float_(std::numeric_limits<double>::quiet_NaN());
        break;
      default:
        return number();
    }
    fail("a value");
  }

  py::object list() {
    const Level level(depth_);
    py::list made;
    ++at_;
    if (takes(']')) return made;
    do {
      if (PyList_Append(made.ptr(), value().ptr()) != 0) throw py::error_already_set();
    } while (takes(','));
    if (!takes(']')) fail("',' or ']'");
    return made;
  }

  py::object dict() {
    const Level level(depth_);
    py::dict made;
    ++at_;
    if (takes('}')) return made;
    do {
      if (next() != '"') fail("a name in quotes");
      const py::object key = string();
      if (!takes(':')) fail("':'");
      if (PyDict_SetItem(made.ptr(), key.ptr(), value().ptr()) != 0) throw py::error_already_set();
    } while (takes(','));
    if (!takes('}')) fail("',' or '}'");
    return made;
  }

  size_t digits() {
    const size_t first = at_;
    while (here() >= '0' && here() <= '9') ++at_;
    return at_ - first;
  }

  py::object number() {
    const size_t first = at_;
    const bool negative = here() == '-';
    if (negative) ++at_;
    if (takes("Infinity")) return py::float_(negative ? -HUGE_VAL : HUGE_VAL);
    const bool zero = here() == '0';
    const size_t whole = digits();
    if (whole == 0 || (zero && whole > 1)) fail("a value");
    bool exact = true;
    if (here() == '.') {
      ++at_;
      exact = false;
      if (digits() == 0) fail("a digit");
    }
    if (here() == 'e' || here() == 'E') {
      ++at_;
      exact = false;
      if (here() == '+' || here() == '-') ++at_;
      if (digits() == 0) fail("a digit");
    }
    return exact ? integer(text_.substr(first, at_ - first)) : real(text_.substr(first, at_ - first));
  }

  static py::object integer(std::string_view digits) {
    const std::string copy(digits);
    return owned(PyLong_FromString(copy.c_str(), nullptr, 10));
  }

  static py::object real(std::string_view digits) {
    const std::string copy(digits);
    const double made = PyOS_string_to_double(copy.c_str(), nullptr, nullptr);
    if (made == -1.0 && PyErr_Occurred()) throw py::error_already_set();
    return py::float_(made);
  }

  // Allows lone surrogates, as Python strings do.
  static py::object decoded(std::string_view utf8) {
    return owned(PyUnicode_DecodeUTF8(utf8.data(), static_cast<Py_ssize_t>(utf8.size()), "surrogatepass"));
  }

  py::object string() {
    const size_t first = ++at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && static_cast<unsigned char>(text_[at_]) >= ' ') ++at_;
    if (here() == '"') return decoded(text_.substr(first, at_++ - first));
    std::string made(text_.substr(first, at_ - first));
    while (here() != '"') {
      if (static_cast<unsigned char>(here()) < ' ') fail("a character of a string");
      const char one = text_[at_++];
      one == '\\' ? escape(made) : made.push_back(one);
    }
    ++at_;
    return decoded(made);
  }

  void escape(std::string& made) {
    const char name = here();
    const size_t place = name == '\0' ? std::string_view::npos : kNames.find(name);
    if (place == std::string_view::npos && name != 'u') fail("an escape");
    ++at_;
    if (name != 'u') return made.push_back(kMeant[place]);
    uint32_t code = unit();
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_).starts_with("\\u")) {
      const size_t before = at_;
      at_ += 2;
      const uint32_t low = unit();
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      } else {
        at_ = before;  // lone high surrogate
      }
    }
    append(made, code);
  }

  uint32_t unit() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char one = here();
      const bool digit = one >= '0' && one <= '9';
      const char letter = static_cast<char>(one | 0x20);
      if (!digit && !(letter >= 'a' && letter <= 'f')) fail("four hexadecimal digits");
      code = code * 16 + static_cast<uint32_t>(digit ? one - '0' : letter - 'a' + 10);
    }
    return code;
  }

  static void append(std::string& made, uint32_t code) {
    const auto tail = [&](int shift) { made.push_back(static_cast<char>(0x80 | (code >> shift & 0x3f))); };
    if (code < 0x80) return made.push_back(static_cast<char>(code));
    if (code < 0x800) {
      made.push_back(static_cast<char>(0xc0 | code >> 6));
    } else if (code < 0x10000) {
      made.push_back(static_cast<char>(0xe0 | code >> 12));
      tail(6);
    } else {
      made.push_back(static_cast<char>(0xf0 | code >> 18));
      tail(12);
      tail(6);
    }
    tail(0);
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

// Writes Python values as JSON like json.dumps() with default options.
class JsonWriter {
 public:
  explicit JsonWriter(bool sorted) : sorted_(sorted) {}

  void value(const py::handle& given) {
    PyObject* const object = given.ptr();
    if (object == Py_None) {
      text_ += "null";
    } else if (PyBool_Check(object)) {
      text_ += object == Py_True ? "true" : "false";
    } else if (PyUnicode_Check(object)) {
      string(given);
    } else if (PyLong_Check(object)) {
      text_ += owned(PyNumber_ToBase(object, 10)).cast<std::string>();
    } else if (PyFloat_Check(object)) {
      real(given);
    } else if (PyList_Check(object) || PyTuple_Check(object)) {
      list(given);
    } else if (PyDict_Check(object)) {
      dict(py::reinterpret_borrow<py::dict>(given));
    } else {
      throw py::type_error("JSON: expected text, numbers, lists and dicts of them; given " + type_name(given));
    }
  }

  const std::string& text() const { return text_; }

 private:
  void list(const py::handle& given) {
    const Level level(depth_);
    text_ += '[';
    std::string_view before;
    for (const auto& one : given) {
      text_ += before;
      value(one);
      before = ", ";
    }
    text_ += ']';
  }

  void dict(const py::dict& given) {
    const Level level(depth_);
    py::list keys(given);
    if (sorted_ && PyList_Sort(keys.ptr()) != 0) throw py::error_already_set();
    text_ += '{';
    std::string_view before;
    for (const auto& key : keys) {
      if (!PyUnicode_Check(key.ptr())) throw py::type_error("JSON: expected names of text; given " + type_name(key));
      text_ += before;
      string(key);
      text_ += ": ";
      value(given[key]);
      before = ", ";
    }
    text_ += '}';
  }

  void real(const py::handle& given) {
    const auto number = given.cast<double>();
    if (std::isnan(number)) {
      text_ += "NaN";
    } else if (std::isinf(number)) {
      text_ += number < 0 ? "-Infinity" : "Infinity";
    } else {
      text_ += py::repr(py::float_(number)).cast<std::string>();
    }
  }

  void string(const py::handle& given) {
    text_ += '"';
    const Py_ssize_t count = PyUnicode_GetLength(given.ptr());
    for (Py_ssize_t i = 0; i < count; ++i) character(PyUnicode_ReadChar(given.ptr(), i));
    text_ += '"';
  }

  void character(uint32_t code) {
    const size_t place = code < 0x80 ? kMeant.find(static_cast<char>(code)) : std::string_view::npos;
    if (place != std::string_view::npos && code != '/') {
      text_ += {'\\', kNames[place]};
    } else if (code >= ' ' && code < 0x7f) {
      text_ += static_cast<char>(code);
    } else if (code < 0x10000) {
      unit(code);
    } else {
      unit(0xd800 + ((code - 0x10000) >> 10));
      unit(0xdc00 + ((code - 0x10000) & 0x3ff));
    }
  }

  void unit(uint32_t code) {
    text_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) text_ += "0123456789abcdef"[code >> shift & 0xf];
  }

  const bool sorted_;
  int depth_ = 0;
  std::string text_;
};

std::string written(const py::handle& value, bool sort_keys) {
  JsonWriter writer(sort_keys);
  writer.value(value);
  return writer.text();
}

py::object parsed(const py::bytes& text) {
  return JsonReader(std::string_view(text)).document();
}

}  // namespace

void bind_json(py::module_& module) {
  module.def("parse_json", &parsed, py::arg("text"), "Parse JSON like json.loads(). Raise ValueError if it is invalid.");
  module.def("json_text", &written, py::arg("value"), py::kw_only(), py::arg("sort_keys") = false,
             "Serialise a value to JSON like json.dumps(). Raise TypeError for unsupported types.");
}

}  // namespace pumice
