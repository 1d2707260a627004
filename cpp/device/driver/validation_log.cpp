#include "device/driver/validation_log.h"

#include <mutex>
#include <utility>

namespace pumice {
namespace {

constexpr size_t kMaxMessages = 1000;

struct ValidationLog {
  std::mutex mutex;
  std::vector<std::string> messages;
};

ValidationLog& get_validation_log() {
  static auto* log = new ValidationLog;
  return *log;
}

}  // namespace

void add_validation_message(std::string text) {
  auto& log = get_validation_log();
  const std::lock_guard lock(log.mutex);
  if (log.messages.size() < kMaxMessages) log.messages.push_back(std::move(text));
}

std::vector<std::string> take_validation_messages() {
  auto& log = get_validation_log();
  const std::lock_guard lock(log.mutex);
  return std::exchange(log.messages, {});
}

}  // namespace pumice
