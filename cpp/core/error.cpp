#include "core/error.h"

#include <utility>

#include "core/escape_unprintable.h"

namespace pumice {
namespace {

std::string format_unsupported_message(const std::vector<std::string>& items) {
  if (items.size() == 1) return "not supported: " + escape_unprintable(items[0]);
  std::string text = "not supported (" + std::to_string(items.size()) + "):";
  for (const auto& item : items) text += "\n  " + escape_unprintable(item);
  return text;
}

std::string format_binding_message(const std::string& rule, const std::string& slot, const std::string& tensor, const std::string& expected,
                                   const std::string& given) {
  std::string where = escape_unprintable(slot);
  if (!tensor.empty() && slot.find(tensor) == std::string::npos) where += " '" + escape_unprintable(tensor) + "'";
  return "[" + rule + "] " + where + ": expected " + expected + "; given " + given;
}

std::string format_access_message(const OutOfBoundsError::Access& access) {
  const std::string kernel = "kernel '" + access.kernel + "': ", count = std::to_string(access.count);
  if (access.line == 0) return kernel + count + " accesses out of bounds, none of which were recorded because the ring was full";
  const auto& [x, y, z] = access.invocation;
  return access.file + ":" + std::to_string(access.line) + ": " + kernel + (access.writes ? "write to '" : "read of '") + access.buffer +
         "' at index " + std::to_string(access.index) + ", which has " + std::to_string(access.size) + " elements, by invocation (" +
         std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")" +
         (access.count > 1 ? "; one of " + count + " accesses out of bounds" : "");
}

// Inserts `location` into an error message, after the leading rule id if there is one.
std::string prefix_message(const std::string& location, const std::string& text, const std::string& rule) {
  const std::string start = rule.empty() ? "" : "[" + rule + "] ";
  return text.starts_with(start) ? start + location + ": " + text.substr(start.size()) : location + ": " + text;
}

std::vector<std::string> prefix_items(const std::string& location, std::vector<std::string> items) {
  for (std::string& item : items) item = location + ": " + item;
  return items;
}

// Returns the last UTF-8 character boundary at or before `end`; `end` itself if the text is not UTF-8.
size_t find_utf8_boundary_before(const std::string& text, size_t end) {
  constexpr size_t kMaxUtf8Bytes = 4;
  for (size_t offset = 0; offset < kMaxUtf8Bytes && offset <= end; ++offset)
    if ((static_cast<unsigned char>(text[end - offset]) & 0xC0) != 0x80) return end - offset;
  return end;
}

}  // namespace

std::string truncate_message(std::string text) {
  constexpr size_t kHeadBytes = 12 << 10, kTail = 4 << 10;
  text = escape_unprintable(text, LineBreaks::keep);
  if (text.size() <= kHeadBytes + kTail) return text;
  const size_t first = find_utf8_boundary_before(text, kHeadBytes), last = find_utf8_boundary_before(text, text.size() - kTail);
  return text.substr(0, first) + " ... (" + std::to_string(last - first) + " bytes of this message are omitted) ... " + text.substr(last);
}

OutOfBoundsError::OutOfBoundsError(Access first_access) : Error(format_access_message(first_access)), access(std::move(first_access)) {}

BindingError::BindingError(std::string rule_id, std::string slot_name, std::string tensor_name, std::string expected_text,
                           std::string given_text)
    : Error(format_binding_message(rule_id, slot_name, tensor_name, expected_text, given_text)),
      rule(std::move(rule_id)),
      slot(std::move(slot_name)),
      tensor(std::move(tensor_name)),
      expected(std::move(expected_text)),
      given(std::move(given_text)) {}

BindingError::BindingError(const std::string& location, const BindingError& inner)
    : Error(prefix_message(location, inner.what(), inner.rule)),
      rule(inner.rule),
      slot(inner.slot),
      tensor(inner.tensor),
      expected(inner.expected),
      given(inner.given) {}

GraphError::GraphError(const std::string& location, const GraphError& inner)
    : Error(prefix_message(location, inner.what(), inner.rule)), node(inner.node), rule(inner.rule) {}

GraphError::GraphError(std::string node_name, const std::string& message, std::string rule_id)
    : Error((rule_id.empty() ? "" : "[" + rule_id + "] ") + (node_name.empty() ? "" : "'" + escape_unprintable(node_name) + "': ") +
            message),
      node(std::move(node_name)),
      rule(std::move(rule_id)) {}

OutputSizeError::OutputSizeError(std::string output_name, std::vector<int64_t> true_shape, uint64_t bytes, uint64_t given_bytes)
    : Error("output '" + escape_unprintable(output_name) + "': " + std::to_string(bytes) + " bytes needed, given " +
            std::to_string(given_bytes)),
      output(std::move(output_name)),
      shape(std::move(true_shape)) {}

StateError::StateError(const std::string& message, std::string rule_id)
    : Error((rule_id.empty() ? "" : "[" + rule_id + "] ") + message), rule(std::move(rule_id)) {}

StateError::StateError(const std::string& location, const StateError& inner)
    : Error(prefix_message(location, inner.what(), inner.rule)), rule(inner.rule) {}

UnsupportedError::UnsupportedError(const std::string& location, const UnsupportedError& inner)
    : UnsupportedError(prefix_items(location, inner.items)) {}

UnsupportedError::UnsupportedError(std::vector<std::string> unsupported)
    : Error(format_unsupported_message(unsupported)), items(std::move(unsupported)) {}

}  // namespace pumice
