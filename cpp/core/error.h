// The engine's whole error vocabulary. `throw` for anything that a caller can cause; `assert` only for our own invariants.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace pumice {

// Shortens a text to at most 16 KiB: the beginning and the end stay, with a note of how much was cut between them. Names and values in
// messages may come from a file, which may make them as long as it likes.
std::string bounded(std::string text);

// Root of every exception that the engine throws on purpose. Its text is bounded().
class Error : public std::runtime_error {
 public:
  explicit Error(std::string text) : std::runtime_error(bounded(std::move(text))) {}
};

// Vulkan refused, or there is no loader, driver or matching device.
class DeviceError : public Error {
 public:
  using Error::Error;
};

// The context is dead, the process is not: a new Context works.
class DeviceLostError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

// Memory has run out. The text says how many bytes, of what, and the heap's budget.
class OutOfMemoryError : public DeviceError {
 public:
  using DeviceError::DeviceError;
  // The same error, of which the text says where it arose; as that of the next ones.
  OutOfMemoryError(const std::string& place, const OutOfMemoryError& inner) : DeviceError(place + ": " + inner.what()) {}
};

// A shader that does not compile. Each of `messages` is "file:line:column: text", the user's line and a caret, one below the other.
class ShaderCompileError : public Error {
 public:
  explicit ShaderCompileError(const std::string& message) : Error(message), messages{message} {}
  ShaderCompileError(const std::string& joined, std::vector<std::string> each) : Error(joined), messages(std::move(each)) {}

  std::vector<std::string> messages;
};

// A refused binding; `rule` is an id of the binding rules (C1 .. L5, G1 ..) or of the kernel's own interface ("K...").
class BindingError : public Error {
 public:
  BindingError(std::string rule, std::string slot, std::string tensor, std::string expected, std::string given);
  BindingError(const std::string& place, const BindingError& inner);  // the same error, of which the text says where it arose

  std::string rule, slot, tensor, expected, given;
};

// A graph or a model file breaks a rule; `node` names the node or value, `rule` the rule ("B2.3", or empty).
class GraphError : public Error {
 public:
  GraphError(std::string node, const std::string& message, std::string rule = {});
  GraphError(const std::string& place, const GraphError& inner);  // the same error, of which the text says where it arose

  std::string node, rule;
};

// Something is not supported. The error lists *all* such things (nodes, operators, dtypes, options), one per item.
class UnsupportedError : public Error {
 public:
  explicit UnsupportedError(std::vector<std::string> items);
  explicit UnsupportedError(const std::string& item) : UnsupportedError(std::vector<std::string>{item}) {}
  UnsupportedError(const std::string& place, const UnsupportedError& inner);  // each item says where it arose

  std::vector<std::string> items;
};

// A wait, loop or execution ran out of time; `transient`: trying again may succeed.
class TimeoutError : public Error {
 public:
  TimeoutError(const std::string& message, bool is_transient) : Error(message), transient(is_transient) {}
  TimeoutError(const std::string& place, const TimeoutError& inner) : Error(place + ": " + inner.what()), transient(inner.transient) {}

  bool transient;
};

// The caller's memory for an output is too small: `shape` is the output's true one.
class OutputSizeError : public Error {
 public:
  OutputSizeError(std::string output, std::vector<int64_t> shape, uint64_t bytes, uint64_t given_bytes);

  std::string output;
  std::vector<int64_t> shape;
};

// A call in the wrong state (use after close, recording into a committed list, two threads in one table); `rule` names the rule of
// graphs that asks for another one ("B2.12"), or is empty.
class StateError : public Error {
 public:
  explicit StateError(const std::string& message, std::string rule = {});
  StateError(const std::string& place, const StateError& inner);

  std::string rule;
};

// A kernel that checks its bounds reached past an array in a buffer; the first of `count` accesses. Without a line: too many other messages
// left no room for it.
class OutOfBoundsError : public Error {
 public:
  struct Access {
    std::string kernel, file, buffer;
    uint32_t line = 0;
    bool writes = false;
    int64_t index = 0;
    uint64_t size = 0;  // elements of the array
    std::array<uint32_t, 3> invocation{};
    uint64_t count = 0;
  };
  explicit OutOfBoundsError(Access reached);

  Access access;
};

// A program that checks its indices has met one out of range.
class IndexRangeError : public Error {
 public:
  struct Place {
    std::string node, value;       // the value that its indices are
    int64_t index = 0;             // the first
    std::vector<int64_t> element;  // its place in the value
    uint64_t count = 0;            // indices out of range in all
  };
  IndexRangeError(const std::string& message, Place first) : Error(message), place(std::move(first)) {}
  // The same error, of which the text says where it arose.
  IndexRangeError(const std::string& where, const IndexRangeError& inner) : Error(where + ": " + inner.what()), place(inner.place) {}

  Place place;
};

}  // namespace pumice
