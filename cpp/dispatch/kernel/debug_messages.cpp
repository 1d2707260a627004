#include "dispatch/kernel/debug_messages.h"

#include <algorithm>
#include <utility>

#include "shader/debug/printf_format.h"

namespace pumice {
namespace {

constexpr size_t kMaxMessages = 100'000;

// Appends messages, drops the oldest ones beyond kMaxMessages, and returns how many were dropped.
size_t append_messages_up_to_limit(std::vector<Message>& log, const std::vector<Message>& more) {
  log.insert(log.end(), more.begin(), more.end());
  const size_t excess = log.size() > kMaxMessages ? log.size() - kMaxMessages : 0;
  log.erase(log.begin(), log.begin() + static_cast<ptrdiff_t>(excess));
  return excess;
}

OutOfBoundsError::Access make_out_of_bounds_access(const std::string& kernel, const AccessSite& site, std::span<const uint32_t> record,
                                                   uint64_t count) {
  OutOfBoundsError::Access access;
  access.kernel = kernel;
  access.file = site.file;
  access.line = site.line;
  access.buffer = site.buffer;
  access.writes = site.writes;
  std::copy_n(record.begin() + 1, 3, access.invocation.begin());
  access.index = site.signed_index ? static_cast<int32_t>(record[4]) : static_cast<int64_t>(record[4]);
  access.size = record[5];
  access.count = count;
  return access;
}

}  // namespace

void MessageLog::add(std::vector<Message> messages, uint64_t lost) {
  const std::lock_guard guard(mutex_);
  has_unlogged_ = has_unlogged_ || lost > 0 || !messages.empty();
  unlogged_lost_ += lost + append_messages_up_to_limit(unlogged_, messages);
  lost_ += lost + append_messages_up_to_limit(messages_, messages);
}

std::vector<Message> MessageLog::messages() const {
  const std::lock_guard guard(mutex_);
  return messages_;
}

uint64_t MessageLog::lost() const {
  const std::lock_guard guard(mutex_);
  return lost_;
}

std::vector<Message> MessageLog::take() {
  const std::lock_guard guard(mutex_);
  lost_ = 0;
  return std::exchange(messages_, {});
}

std::pair<std::vector<Message>, uint64_t> MessageLog::take_unlogged_messages() {
  const std::lock_guard guard(mutex_);
  has_unlogged_ = false;
  return {std::exchange(unlogged_, {}), std::exchange(unlogged_lost_, 0)};
}

std::optional<OutOfBoundsError> read_message_ring(const Shader& shader, std::span<const uint32_t> ring, MessageLog& log) {
  const RingBufferHeader head{ring[0], ring[1], ring[2], ring[3]};
  auto words = ring.subspan(sizeof head / sizeof(uint32_t));
  words = words.first(std::min<size_t>(head.reserved, words.size()));
  const auto& [formats, accesses] = shader.debug;
  std::vector<std::vector<ConversionSpecifier>> conversions;
  for (const auto& format : formats) conversions.push_back(parse_conversions(format.text));
  std::vector<Message> messages;
  std::optional<OutOfBoundsError> error;
  while (!words.empty() && words[0] != 0) {
    const bool is_access = words[0] & kAccessRecord;
    const uint32_t number = is_access ? words[0] & ~kAccessRecord : words[0] - 1;
    if (number >= (is_access ? accesses.size() : formats.size())) break;  // the shader has overwritten its message ring
    const uint32_t length = is_access ? kAccessRecordWords : kRecordHeaderWords + count_argument_words(conversions[number]);
    if (length > words.size()) break;
    if (is_access) {
      if (!error) error.emplace(make_out_of_bounds_access(log.kernel(), accesses[number], words, head.violations));
    } else {
      const PrintfFormat& format = formats[number];
      messages.push_back({format_message(format.text, conversions[number], words.subspan(kRecordHeaderWords)),
                          format.file,
                          format.line,
                          {words[1], words[2], words[3]}});
    }
    words = words.subspan(length);
  }
  log.add(std::move(messages), head.lost);
  if (!error && head.violations > 0) {
    OutOfBoundsError::Access unknown;
    unknown.kernel = log.kernel();
    unknown.count = head.violations;
    error.emplace(std::move(unknown));
  }
  return error;
}

}  // namespace pumice
