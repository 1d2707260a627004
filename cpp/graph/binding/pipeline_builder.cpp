#include "graph/binding/pipeline_builder.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "core/error.h"
#include "core/interrupts.h"
#include "core/log.h"
#include "core/number_format.h"
#include "core/signal_blocker.h"
#include "dispatch/kernel/kernel.h"

namespace pumice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxCompilerThreads = 8;
constexpr std::chrono::duration<double> kWatchPeriod = std::chrono::milliseconds(50), kMinPeriod = std::chrono::milliseconds(1);
constexpr double kSlowSeconds = 1;

// Returns the time in seconds after which a running compilation is logged.
double read_slow_compile_seconds() {
  const char* const text = std::getenv("PUMICE_SLOW_COMPILE_SECONDS");
  if (!text || !*text) return kSlowSeconds;
  const auto seconds = parse_number(text);
  if (seconds && *seconds >= 0) return *seconds;
  throw Error(std::string("PUMICE_SLOW_COMPILE_SECONDS: expected a number of seconds, or inf; given '") + text + "'");
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class PipelineBuilder {
 public:
  explicit PipelineBuilder(const std::vector<const KernelVariant*>& kernels) : kernels_(kernels) {}

  void run(const CompileProgress& progress) {
    const size_t cores = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::jthread> threads;
    threads.reserve(std::min({kernels_.size(), kMaxCompilerThreads, cores}));
    try {
      start_threads(threads);
      if (threads.empty()) build_pipelines();  // no thread could be created
      report_slow_builds(progress);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      next_ = kernels_.size();
      if (!failure_) failure_ = std::current_exception();
    }
    threads.clear();  // joins the threads
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void start_threads(std::vector<std::jthread>& threads) {
    try {
      const SignalBlocker blocked;
      while (threads.size() < threads.capacity())
        threads.emplace_back([this] {
          set_thread_name("pumice compile");
          build_pipelines();
        });
    } catch (const std::system_error&) {  // use the threads that could be created
    }
  }

  struct RunningBuild {
    const KernelVariant* kernel;
    Clock::time_point begin;
    bool is_logged = false;
  };

  void build_pipelines() {
    std::unique_lock lock(mutex_);
    while (next_ < kernels_.size()) {
      const KernelVariant* const kernel = kernels_[next_++];
      running_builds_.push_back({kernel, Clock::now()});
      lock.unlock();
      std::exception_ptr failure;
      try {
        (void)kernel->pipeline();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      finish_build(*kernel);
      if (!failure) continue;
      // After a failure, start no further build.
      if (!failure_) failure_ = failure;
      next_ = kernels_.size();
    }
    if (running_builds_.empty()) all_done_.notify_one();
  }

  void finish_build(const KernelVariant& kernel) {
    const auto build = std::ranges::find(running_builds_, &kernel, &RunningBuild::kernel);
    if (const double seconds = seconds_since(build->begin); seconds > slow_seconds_)
      log(LogLevel::info, "the driver took " + format_general(seconds) + " s to compile kernel '" + kernel.name() + "'");
    running_builds_.erase(build);
    ++done_;
  }

  bool is_done() const { return next_ == kernels_.size() && running_builds_.empty(); }

  void report_slow_builds(const CompileProgress& progress) {
    std::unique_lock lock(mutex_);
    // With a longer period, kernels slower than `slow_seconds_` but faster than the period would not be reported.
    const auto period = std::clamp(std::chrono::duration<double>(slow_seconds_ / 4), kMinPeriod, kWatchPeriod);
    while (!all_done_.wait_for(lock, period, [this] { return is_done(); })) {
      for (RunningBuild& build : running_builds_) {
        if (build.is_logged || seconds_since(build.begin) < slow_seconds_) continue;
        build.is_logged = true;
        log(LogLevel::info,
            "the driver has been compiling kernel '" + build.kernel->name() + "' for " + format_general(slow_seconds_) + " s");
      }
      const std::string phase = running_builds_.empty() ? "kernels" : "kernel " + running_builds_.front().kernel->name();
      const size_t done = done_;
      lock.unlock();  // released because `progress` may wait for the GIL
      if (progress) progress(phase.c_str(), done, kernels_.size());
      check_interrupts();
      lock.lock();
    }
  }

  const std::vector<const KernelVariant*>& kernels_;
  const double slow_seconds_ = read_slow_compile_seconds();
  std::mutex mutex_;  // guards the members below
  std::condition_variable all_done_;
  size_t next_ = 0, done_ = 0;
  std::vector<RunningBuild> running_builds_;
  std::exception_ptr failure_;
};

}  // namespace

void create_pipelines(const std::vector<const KernelVariant*>& kernels, const CompileProgress& progress) {
  std::vector<const KernelVariant*> missing;
  std::ranges::copy_if(kernels, std::back_inserter(missing), [](const KernelVariant* kernel) { return !kernel->has_pipeline(); });
  PipelineBuilder builds(missing);  // constructed even if no pipeline is missing, to validate the environment variables
  if (!missing.empty()) builds.run(progress);
}

}  // namespace pumice
