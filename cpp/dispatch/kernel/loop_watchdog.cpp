#include "dispatch/kernel/loop_watchdog.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "shader/spirv/loop_limit.h"

namespace pumice {
namespace {

constexpr size_t kMaxReports = 64;

}  // namespace

LoopWatchdog::ReportBuffer::ReportBuffer(std::shared_ptr<LoopWatchdog> watchdog, const std::shared_ptr<Context>& context)
    : watchdog_(std::move(watchdog)), buffer_(Buffer::create(context, kLoopWatchdogBytes, Heap::readback)) {
  std::memset(buffer_->map(), 0, kLoopWatchdogBytes);
}

LoopWatchdog::ReportBuffer::~ReportBuffer() {
  try {
    watchdog_->read_reports(*this, *buffer_->context());
  } catch (const Error&) {  // the context is closed or lost: its results are no longer read
  }
}

uint32_t LoopWatchdog::ReportBuffer::take_report() const {
  return std::atomic_ref(*reinterpret_cast<uint32_t*>(buffer_->map())).exchange(0);
}

std::shared_ptr<LoopWatchdog> LoopWatchdog::get_for_context(Context& context) {
  return context.attachment<LoopWatchdog>();
}

void LoopWatchdog::add_kernel(uint32_t number, std::string name, LoopLocations lines) {
  const std::lock_guard guard(mutex_);
  kernels_[number] = {std::move(name), std::move(lines)};
}

std::shared_ptr<const LoopWatchdog::ReportBuffer> LoopWatchdog::get_report_buffer(const std::shared_ptr<Context>& context) {
  const std::lock_guard guard(mutex_);
  if (auto existing = memory_.lock()) return existing;
  auto result = std::make_shared<const ReportBuffer>(shared_from_this(), context);
  memory_ = result;
  set_post_wait_hook(*context, this);  // the watchdog is attached to the context, so it lives at least as long
  return result;
}

// Reports have no execution id: any execution since the last read may be affected.
void LoopWatchdog::read_reports(const ReportBuffer& memory, Context& context) {
  const uint64_t completed = context.get_last_completed();
  const std::lock_guard guard(mutex_);
  const uint32_t number = memory.take_report();
  if (number == 0) {
    clean_ = std::max(clean_, completed);
    return;
  }
  const MonitoredKernel& kernel = kernels_[number];
  const std::string lines = kernel.lines ? kernel.lines() : "";
  const uint64_t last = context.get_last_submitted();
  reports_.push_back({clean_, last,
                      "kernel '" + kernel.name + "': driver '" + context.info().driver +
                          "' ended its loops silently, since an invocation and its neighbours ran more than 65,535 iterations in all" +
                          (lines.empty() ? "" : " (loops at " + lines + ")") +
                          ", so its results are wrong. Give each invocation less work by using more threads or several calls, or use a "
                          "driver without the quirk loop_limit (docs/drivers.md)"});
  if (reports_.size() > kMaxReports) reports_.erase(reports_.begin());
  clean_ = last;
}

void LoopWatchdog::check(Context& context, uint64_t id) {
  std::shared_ptr<const ReportBuffer> memory;
  {
    const std::lock_guard guard(mutex_);
    memory = memory_.lock();
  }
  if (memory) read_reports(*memory, context);
  const std::lock_guard guard(mutex_);
  for (WatchdogReport& report : reports_)
    if (id > report.after && id <= report.last && report.notified_threads.insert(std::this_thread::get_id()).second)
      throw UnsupportedError(report.message);
}

}  // namespace pumice
