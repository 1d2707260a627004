// Messages of debugged kernels: printf output and out-of-bounds accesses.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "shader/shader.h"

namespace pumice {

// The output of one printf in one invocation.
struct Message {
  std::string text, file;
  uint32_t line = 0;
  std::array<uint32_t, 3> invocation{};
};

// Messages read so far from all executions of a kernel. Keeps the latest 100,000. Thread-safe.
class MessageLog {
 public:
  explicit MessageLog(std::string kernel) : kernel_(std::move(kernel)) {}
  const std::string& kernel() const { return kernel_; }
  void add(std::vector<Message> messages, uint64_t lost);

  std::vector<Message> messages() const;
  uint64_t lost() const;  // number of messages dropped because the ring or the log was full
  std::vector<Message> take();
  // Returns the messages since the last call and the number of lost messages, for logging.
  std::pair<std::vector<Message>, uint64_t> take_unlogged_messages();
  bool has_unlogged_messages() const { return has_unlogged_; }

 private:
  std::string kernel_;
  mutable std::mutex mutex_;
  std::atomic<bool> has_unlogged_{false};
  std::vector<Message> messages_, unlogged_;
  uint64_t lost_ = 0, unlogged_lost_ = 0;
};

// Receives a kernel's messages; shared by its dispatches.
struct DebugMessageSink {
  std::shared_ptr<MessageLog> log;
  uint64_t ring_bytes = 0;
};

// Reads the ring of a finished execution: logs messages and returns the out-of-bounds access, if any.
std::optional<OutOfBoundsError> read_message_ring(const Shader& shader, std::span<const uint32_t> ring, MessageLog& log);

}  // namespace pumice
