#include "core/log.h"

#include <atomic>
#include <deque>
#include <mutex>

#include "core/escape_unprintable.h"

namespace pumice {
namespace {

constexpr size_t kMaxWaiting = 1000;

struct MessageQueue {
  std::mutex mutex;
  std::deque<std::pair<LogLevel, std::string>> waiting;
  std::atomic<bool> any{false};
};

MessageQueue& get_message_queue() {
  static auto* log = new MessageQueue;
  return *log;
}

}  // namespace

void log(LogLevel level, std::string message) {
  auto& all = get_message_queue();
  const std::lock_guard lock(all.mutex);
  if (all.waiting.size() == kMaxWaiting) all.waiting.pop_front();
  all.waiting.emplace_back(level, escape_unprintable(message));
  all.any = true;
}

std::vector<std::pair<LogLevel, std::string>> take_log_messages() {
  auto& all = get_message_queue();
  const std::lock_guard lock(all.mutex);
  std::vector<std::pair<LogLevel, std::string>> messages_taken(all.waiting.begin(), all.waiting.end());
  all.waiting.clear();
  all.any = false;
  return messages_taken;
}

bool has_log_messages() {
  return get_message_queue().any;
}

}  // namespace pumice
