// All exception types of the engine. `throw` for anything that a caller can cause; `assert` only for internal invariants.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace pumice {

// Shortens the text to at most 16 KiB: keeps its beginning and end, and notes how much was removed. Names and values in messages may come
// from a file and be arbitrarily long.
std::string truncate_message(std::string text);

// Base class of every exception that the engine throws. truncate_message() limits the message length.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string text) : std::runtime_error(truncate_message(std::move(text))) {}
};

// A Vulkan call failed, or there is no loader, driver or matching device.
class DeviceError : public Error {
 public:
  using Error::Error;
};

// The context is unusable, but the process is not: a new Context works.
class DeviceLostError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

// Out of memory. The message gives the number of bytes, their purpose and the heap's budget.
class OutOfMemoryError : public DeviceError {
 public:
  using DeviceError::DeviceError;
  // Prefixes the message with the location. The classes below have the same constructor.
  OutOfMemoryError(const std::string& location, const OutOfMemoryError& inner) : DeviceError(location + ": " + inner.what()) {}
};

// Shader compilation failed. Each message is "file:line:column: text", followed by the source line and a caret line.
class ShaderCompileError : public Error {
 public:
  explicit ShaderCompileError(const std::string& message) : Error(message), messages{message} {}
  ShaderCompileError(const std::string& joined_text, std::vector<std::string> separate_messages)
      : Error(joined_text), messages(std::move(separate_messages)) {}

  std::vector<std::string> messages;
};

// A rejected binding; `rule` is the id of a binding rule (C1 .. L5, G1 ..) or of a kernel interface rule ("K...").
class BindingError : public Error {
 public:
  BindingError(std::string rule, std::string slot, std::string tensor, std::string expected, std::string given);
  BindingError(const std::string& location, const BindingError& inner);  // prefixes the text with the location

  std::string rule, slot, tensor, expected, given;
};

// A graph or a model file violates a rule. `node`: name of the node or value. `rule`: rule id ("B2.3"), or empty.
class GraphError : public Error {
 public:
  GraphError(std::string node, const std::string& message, std::string rule = {});
  GraphError(const std::string& location, const GraphError& inner);  // prefixes the text with the location

  std::string node, rule;
};

// An unsupported feature. The error lists *all* unsupported nodes, operators, dtypes or options, one per item.
class UnsupportedError : public Error {
 public:
  explicit UnsupportedError(std::vector<std::string> items);
  explicit UnsupportedError(const std::string& item) : UnsupportedError(std::vector<std::string>{item}) {}
  UnsupportedError(const std::string& location, const UnsupportedError& inner);  // prefixes each item with the location

  std::vector<std::string> items;
};

// A wait, loop or execution timed out; `transient`: whether a retry may succeed.
class TimeoutError : public Error {
 public:
  TimeoutError(const std::string& message, bool is_transient) : Error(message), transient(is_transient) {}
  TimeoutError(const std::string& location, const TimeoutError& inner)
      : Error(location + ": " + inner.what()), transient(inner.transient) {}

  bool transient;
};

// The caller's output buffer is too small; `shape` is the shape that the output needs.
class OutputSizeError : public Error {
 public:
  OutputSizeError(std::string output, std::vector<int64_t> shape, uint64_t bytes, uint64_t given_bytes);

  std::string output;
  std::vector<int64_t> shape;
};

// A call in the wrong state (use after close, recording into a committed list, two threads using one table); `rule` is the violated graph
// rule ("B2.12"), or empty.
class StateError : public Error {
 public:
  explicit StateError(const std::string& message, std::string rule = {});
  StateError(const std::string& location, const StateError& inner);

  std::string rule;
};

// A bounds-checked kernel accessed a buffer out of bounds. Describes the first of `count` such accesses. `line` is 0 if the
// message buffer was full.
class OutOfBoundsError : public Error {
 public:
  struct Access {
    std::string kernel, file, buffer;
    uint32_t line = 0;
    bool writes = false;
    int64_t index = 0;
    uint64_t size = 0;  // array length in elements
    std::array<uint32_t, 3> invocation{};
    uint64_t count = 0;
  };
  explicit OutOfBoundsError(Access first_access);

  Access access;
};

// A program with index checks read an out-of-range index.
class IndexRangeError : public Error {
 public:
  struct Details {
    std::string node, value;       // value: the tensor of indices
    int64_t index = 0;             // first out-of-range index
    std::vector<int64_t> element;  // position of that index in `value`
    uint64_t count = 0;            // number of out-of-range indices
  };
  IndexRangeError(const std::string& message, Details first_error) : Error(message), details(std::move(first_error)) {}
  // Prefixes the message with the location.
  IndexRangeError(const std::string& location, const IndexRangeError& inner)
      : Error(location + ": " + inner.what()), details(inner.details) {}

  Details details;
};

}  // namespace pumice
