// Detects loops that the driver ended silently (Quirk::loop_limit): user kernels report them, and waits throw.
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

// Maximum total number of loop iterations per invocation that no driver truncates, with a margin for the watch's own loop.
inline constexpr uint64_t kUnwatchedIterations = 60'000;

// The loop reports of a context's kernels. Thread-safe.
class LoopWatch : public WaitCheck, public std::enable_shared_from_this<LoopWatch> {
 public:
  using Lines = std::function<std::string()>;  // source locations of the kernel's loops, for the message

  // The buffer that kernels report to, shared by recordings.
  class Memory {
   public:
    Memory(std::shared_ptr<LoopWatch> watch, const std::shared_ptr<Context>& context);
    ~Memory();  // reads the last report
    BufferRange range() const { return {buffer_, 0, buffer_->bytes()}; }
    uint32_t take_report() const;  // id of a kernel that reported since the last call, or 0

   private:
    std::shared_ptr<LoopWatch> watch_;
    std::shared_ptr<Buffer> buffer_;
  };

  static std::shared_ptr<LoopWatch> of(Context& context);
  void add_kernel(uint32_t number, std::string name, Lines lines);
  std::shared_ptr<const Memory> memory(const std::shared_ptr<Context>& context);
  // Throws UnsupportedError, once per thread, if execution `id` may have had truncated loops.
  void check(Context& context, uint64_t id) override;

 private:
  struct Kernel {
    std::string name;
    Lines lines;
  };
  // Affected executions (after, last], and the threads that have already thrown the error; without them, a wait for all work would throw
  // again.
  struct Report {
    uint64_t after, last;
    std::string message;
    std::set<std::thread::id> notified_threads = {};
  };
  void read(const Memory& memory, Context& context);

  std::mutex mutex_;
  std::map<uint32_t, Kernel> kernels_;
  std::weak_ptr<const Memory> memory_;
  uint64_t clean_ = 0;  // all reports up to this execution have been read
  std::vector<Report> reports_;
};

}  // namespace pumice
