// Messages of debugged kernels: those of printf, and accesses out of bounds.
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

// One message, written by one printf of one invocation.
struct Message {
  std::string text, file;
  uint32_t line = 0;
  std::array<uint32_t, 3> invocation{};
};

// The messages of one kernel, of all its executions that were read. Thread-safe. Holds the latest 100,000.
class MessageLog {
 public:
  explicit MessageLog(std::string kernel) : kernel_(std::move(kernel)) {}
  const std::string& kernel() const { return kernel_; }
  void add(std::vector<Message> messages, uint64_t lost);

  std::vector<Message> messages() const;
  uint64_t lost() const;  // for want of room, in the ring or here
  std::vector<Message> take();
  // The messages that have come since the last call and how many were lost, for logging.
  std::pair<std::vector<Message>, uint64_t> take_unlogged();
  bool has_unlogged() const { return has_unlogged_; }

 private:
  std::string kernel_;
  mutable std::mutex mutex_;
  std::atomic<bool> has_unlogged_{false};
  std::vector<Message> messages_, unlogged_;
  uint64_t lost_ = 0, unlogged_lost_ = 0;
};

// The destination of a kernel's messages; shared by its dispatches.
struct DebugSink {
  std::shared_ptr<MessageLog> log;
  uint64_t ring_bytes = 0;
};

// Reads a ring that an execution has finished with: messages go to the log, an access out of bounds is returned.
std::optional<OutOfBoundsError> read_ring(const Shader& shader, std::span<const uint32_t> ring, MessageLog& log);

}  // namespace pumice
