#include <algorithm>

#include "bindings.h"
#include "core/log.h"
#include "dispatch/command_list.h"
#include "dispatch/debug_recording.h"
#include "dispatch/kernel/debug_messages.h"

namespace pumice {
namespace {

constexpr int kInfo = 20, kWarning = 30;  // values of Python's logging levels

// Decodes shader output, which may contain arbitrary bytes.
py::str decode_utf8(const std::string& text) {
  return py::reinterpret_steal<py::str>(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

std::string format_location(const Message& message) {
  const auto& [x, y, z] = message.invocation;
  return message.file + ":" + std::to_string(message.line) + " [" + std::to_string(x) + ", " + std::to_string(y) + ", " +
         std::to_string(z) + "]";
}

std::string strip_newline(const std::string& text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

}  // namespace

void forward_log() {
  if (!has_log_messages()) return;
  const auto entries = take_log_messages();
  const bool imported = py::module_::import("sys").attr("modules").contains("logging");
  const bool warns = std::ranges::any_of(entries, [](const auto& entry) { return entry.first >= LogLevel::warning; });
  if (!imported && !warns) return;  // without the logging module, only warnings are shown
  const auto logger = py::module_::import("logging").attr("getLogger")("pumice");
  for (const auto& [level, text] : entries) logger.attr("log")(static_cast<int>(level), "%s", decode_utf8(text));
}

void log_messages(MessageLog& log) {
  const auto [messages, lost] = log.take_unlogged_messages();
  const bool imported = py::module_::import("sys").attr("modules").contains("logging");
  if ((messages.empty() || !imported) && lost == 0) return;  // without the logging module, only warnings are shown
  const auto logger = py::module_::import("logging").attr("getLogger")("pumice.shader");
  if (logger.attr("isEnabledFor")(kInfo).cast<bool>())
    for (const auto& message : messages)
      logger.attr("log")(kInfo, "%s %s", decode_utf8(format_location(message)), decode_utf8(strip_newline(message.text)));
  if (lost > 0) logger.attr("log")(kWarning, "kernel '%s': %d messages lost", log.kernel(), lost);
}

void collect_messages(Recording& recording, uint64_t id) {
  const auto logs = recording.message_logs();
  if (logs.empty()) return;
  std::exception_ptr error;
  try {
    recording.collect_messages(id);
  } catch (...) {
    error = std::current_exception();
  }
  for (const auto& log : logs) log_messages(*log);
  if (error) std::rethrow_exception(error);
}

void collect_finished_messages(Context& context) {
  const DebugMessages collected = [&] {
    const GilRelease release;
    return collect_debug_messages(context);
  }();
  for (const auto& log : collected.logs)
    if (log->has_unlogged_messages()) log_messages(*log);
  if (collected.error) throw OutOfBoundsError(*collected.error);
}

void bind_messages(py::module_& module) {
  module.def("forward_log", &forward_log, "Forward the engine's log messages since the last call to the logger \"pumice\".");
  py::class_<Message>(module, "Message", "A message printed by an invocation of a kernel.")
      .def_property_readonly("text", [](const Message& self) { return decode_utf8(self.text); })
      .def_property_readonly("file", [](const Message& self) { return decode_utf8(self.file); })
      .def_readonly("line", &Message::line)
      .def_property_readonly(
          "invocation", [](const Message& self) { return py::make_tuple(self.invocation[0], self.invocation[1], self.invocation[2]); },
          "gl_GlobalInvocationID of the invocation, (x, y, z).")
      .def("__str__", [](const Message& self) { return decode_utf8(self.text); })
      .def("__repr__",
           [](const Message& self) { return decode_utf8("<Message " + format_location(self) + " '" + strip_newline(self.text) + "'>"); });
}

}  // namespace pumice
