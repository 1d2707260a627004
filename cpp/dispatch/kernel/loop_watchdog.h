// Detects loops that the driver ended silently (Quirk::loop_limit): user kernels report them, and Context::wait() throws.
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
#include "device/post_wait_hook.h"

namespace pumice {

// Loop iterations per invocation that no driver truncates, minus a margin for the loop of the watchdog itself.
inline constexpr uint64_t kMaxUnmonitoredIterations = 60'000;

// Collects reports of runaway loops from a context's kernels. Thread-safe.
class LoopWatchdog : public PostWaitHook, public std::enable_shared_from_this<LoopWatchdog> {
 public:
  using LoopLocations = std::function<std::string()>;  // source locations of the kernel's loops, for the message

  // The buffer to which kernels report truncated loops; recordings share it.
  class ReportBuffer {
   public:
    ReportBuffer(std::shared_ptr<LoopWatchdog> watchdog, const std::shared_ptr<Context>& context);
    ~ReportBuffer();  // reads the last report
    BufferRange range() const { return {buffer_, 0, buffer_->bytes()}; }
    uint32_t take_report() const;  // id of a kernel that reported since the last call, or 0

   private:
    std::shared_ptr<LoopWatchdog> watchdog_;
    std::shared_ptr<Buffer> buffer_;
  };

  static std::shared_ptr<LoopWatchdog> get_for_context(Context& context);
  void add_kernel(uint32_t number, std::string name, LoopLocations lines);
  std::shared_ptr<const ReportBuffer> get_report_buffer(const std::shared_ptr<Context>& context);
  // Throws UnsupportedError, once per thread, if execution `id` may have had truncated loops.
  void check(Context& context, uint64_t id) override;

 private:
  struct MonitoredKernel {
    std::string name;
    LoopLocations lines;
  };
  // Affected executions (after, last], and the threads that have already thrown the error, so that each throws it only once.
  struct WatchdogReport {
    uint64_t after, last;
    std::string message;
    std::set<std::thread::id> notified_threads = {};
  };
  void read_reports(const ReportBuffer& memory, Context& context);

  std::mutex mutex_;
  std::map<uint32_t, MonitoredKernel> kernels_;
  std::weak_ptr<const ReportBuffer> memory_;
  uint64_t clean_ = 0;  // all reports up to this execution have been read
  std::vector<WatchdogReport> reports_;
};

}  // namespace pumice
