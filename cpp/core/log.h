// The engine's log: messages are queued until the bindings pass them to Python's logging.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pumice {

// The values equal Python's logging levels.
enum class LogLevel : int { debug = 10, info = 20, warning = 30, error = 40 };

// Thread-safe. Drops the oldest message if more than 1,000 are queued.
void log(LogLevel level, std::string message);
std::vector<std::pair<LogLevel, std::string>> take_log_messages();
bool has_log_messages();  // whether messages are queued; cheap

}  // namespace pumice
