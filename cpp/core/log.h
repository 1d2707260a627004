// The engine's log: messages that are no errors, kept here until the face hands them to Python's logging.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pumice {

// The numbers are those of Python's logging.
enum class LogLevel : int { debug = 10, info = 20, warning = 30, error = 40 };

// Thread-safe; the oldest of over 1,000 waiting messages is dropped.
void log(LogLevel level, std::string message);
std::vector<std::pair<LogLevel, std::string>> take_log();
bool has_log();  // cheap

}  // namespace pumice
