// What is done on drivers that end a kernel's loops silently (Quirk::loop_limit): users' kernels report it, and waits raise it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device/buffer.h"
#include "device/wait_check.h"

namespace pumice {

// The most iterations of all loops of an invocation that no driver ends, with a margin for the watch's own loop.
inline constexpr uint64_t kUnwatchedIterations = 60'000;

// The reports of one context's kernels. Thread-safe.
class LoopWatch : public WaitCheck, public std::enable_shared_from_this<LoopWatch> {
 public:
  using Lines = std::function<std::string()>;  // the places of a kernel's loops, for the message

  // The memory that kernels report to; recordings share it and keep it.
  class Memory {
   public:
    Memory(std::shared_ptr<LoopWatch> watch, const std::shared_ptr<Context>& context);
    ~Memory();  // reads a last report
    BufferRange range() const { return {buffer_, 0, buffer_->bytes()}; }
    uint32_t take() const;  // the number of a kernel that reported since, or 0

   private:
    std::shared_ptr<LoopWatch> watch_;
    std::shared_ptr<Buffer> buffer_;
  };

  static std::shared_ptr<LoopWatch> of(Context& context);
  void add_kernel(uint32_t number, std::string name, Lines lines);
  std::shared_ptr<const Memory> memory(const std::shared_ptr<Context>& context);
  // Throws UnsupportedError where execution `id` is among those of which one reported ended loops, once in each thread.
  void check(Context& context, uint64_t id) override;

 private:
  struct Kernel {
    std::string name;
    Lines lines;
  };
  // Executions after `after` and up to `last`, and the threads whose waits have raised it: one that waits for all work would raise it
  // again.
  struct Report {
    uint64_t after, last;
    std::string message;
    std::set<std::thread::id> told = {};
  };
  void read(const Memory& memory, Context& context);

  std::mutex mutex_;
  std::map<uint32_t, Kernel> kernels_;
  std::weak_ptr<const Memory> memory_;
  uint64_t clean_ = 0;  // no execution up to this one has a report that was not read
  std::vector<Report> reports_;
};

}  // namespace pumice
