#include "dispatch/recording.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <numeric>

#include "core/error.h"
#include "core/host_trace.h"
#include "device/command_buffer.h"
#include "dispatch/hazards.h"
#include "dispatch/kernel/loop_watchdog.h"
#include "dispatch/profiler.h"
#include "dispatch/timestamp_layout.h"

namespace pumice {
namespace {

bool has_no_workgroups(const Dispatch& dispatch) {
  return std::find(dispatch.groups.begin(), dispatch.groups.end(), 0u) != dispatch.groups.end();
}

void check_group_counts(const Context& context, std::span<const Dispatch> dispatches) {
  for (size_t axis = 0; axis < 3; ++axis) {
    const uint64_t limit = context.limit("maxComputeWorkGroupCount_" + std::to_string(axis));
    for (const Dispatch& dispatch : dispatches)
      if (dispatch.groups[axis] > limit)
        throw UnsupportedError("kernel '" + dispatch.kernel->name() + "' needs " + std::to_string(dispatch.groups[axis]) +
                               " workgroups on axis " + std::to_string(axis) + "; the device takes " + std::to_string(limit));
  }
}

bool is_same_range(const BufferRange& a, const BufferRange& b) {
  return a.buffer == b.buffer && a.offset == b.offset && a.bytes == b.bytes;
}

class PlainRecording : public Recording, public TimestampedRecording, public std::enable_shared_from_this<PlainRecording> {
 public:
  PlainRecording(std::shared_ptr<Context> context, std::vector<Dispatch> dispatches, const RecordingOptions& options)
      : context_(std::move(context)), dispatches_(std::move(dispatches)), options_(options) {
    std::erase_if(dispatches_, has_no_workgroups);
    collect_buffers();
    collect_images();
    if (std::ranges::any_of(dispatches_, [](const Dispatch& dispatch) { return dispatch.kernel->has_loop_watchdog(); }))
      watchdog_buffer_ = LoopWatchdog::get_for_context(*context_)->get_report_buffer(context_);
    // Prevent another thread's close() from freeing a buffer during recording.
    std::vector<Buffer::UseGuard> uses;
    for (const Buffer* buffer : buffers_) uses.push_back(buffer->acquire());
    find_barriers();
    if (options_.timestamps || options_.total_time)
      stamps_ = options_.timestamps ? make_per_dispatch_layout(dispatches_.size()) : make_whole_run_layout(dispatches_.size());
    commands_ = record(stamps_, false);
  }

  // Keeps the kernels alive while the device runs them. Buffers and images do this themselves.
  ~PlainRecording() override {
    for (CommandBuffer* commands :
         {commands_.get(), fine_.commands[0].get(), fine_.commands[1].get(), whole_.commands[0].get(), whole_.commands[1].get()}) {
      if (!commands || !context_->in_flight(commands->last_submission())) continue;
      auto used = std::make_shared<UsedObjects>();
      for (const Dispatch& dispatch : dispatches_) used->kernels.push_back(dispatch.kernel);
      used->watchdog_buffer = watchdog_buffer_;
      commands->keep_alive(std::move(used));
    }
  }

  Submission exec() override {
    if (const auto profiler = get_current_profiler()) return exec_profiled(*profiler);
    return {shared_from_this(), submit(*commands_)};
  }

  void read(uint64_t& base, ProfiledRun& run) override {
    const auto commands = std::move(run.commands);
    const auto stamps = std::move(run.stamps);
    context_->wait(run.id);
    const std::lock_guard lock(stamps_mutex_);
    // If a later execution outside this profile overwrote the timestamps, they are lost.
    if (commands->last_submission() != run.id) return;
    const std::vector<uint64_t> ticks = commands->ticks();
    if (ticks.empty() || commands->last_submission() != run.id) return;
    if (base == 0) base = ticks[0];
    append_profiled_spans(*stamps, ticks, base, commands->tick_nanoseconds(), run);
  }

  const std::shared_ptr<Context>& context() const override { return context_; }
  size_t dispatch_count() const override { return dispatches_.size(); }
  size_t barrier_count() const override { return barriers_; }
  size_t descriptor_count() const override { return descriptors_; }

  std::optional<double> total_seconds(uint64_t id) override {
    if ((!options_.total_time && !options_.timestamps) || id != last_ || context_->get_last_completed() < id) return {};
    const auto stamps = commands_->timestamps();
    if (stamps.empty()) return {};
    return stamps.back();
  }

  std::vector<DispatchTime> dispatch_times() override {
    const uint64_t id = last_;
    if (!options_.timestamps || id == 0) return {};
    context_->wait(id);
    const auto stamps = commands_->timestamps();
    std::vector<DispatchTime> times;
    for (size_t i = 0; i + 1 < stamps.size(); ++i)
      times.push_back({dispatches_[i].label, stamps[i + 1] - stamps[i], is_cold(id) && was_cold_[i]});
    return times;
  }

  bool is_cold(uint64_t id) override { return id == cold_id_; }
  bool has_run() override {
    return std::ranges::all_of(dispatches_, [](const Dispatch& dispatch) { return dispatch.kernel->pipeline().has_run(); });
  }

 private:
  // Objects that the device may still use after the list has been destroyed.
  struct UsedObjects {
    std::vector<std::shared_ptr<const KernelVariant>> kernels;
    std::shared_ptr<const LoopWatchdog::ReportBuffer> watchdog_buffer;
  };

  void check_resources_open() const {
    for (const Buffer* buffer : buffers_)
      if (buffer->closed()) throw StateError("a Buffer that this list uses is closed", "L1");
    for (const Image* image : images_)
      if (image->closed()) throw StateError("an Image that this list uses is closed", "L1");
  }

  uint64_t submit(CommandBuffer& commands) {
    // check_resources_open() runs under the context's submit lock: open resources stay valid until the submission has finished.
    const uint64_t id = commands.submit([this] { check_resources_open(); });
    last_ = id;
    if (!has_recorded_first_run_.load(std::memory_order_acquire)) std::call_once(first_run_, [this] { record_first_run(); });
    return id;
  }

  // Instrumented recordings of the same dispatches. Two alternate, so that the host can read timestamps of one while the device runs the
  // other.
  struct ProfiledCommands {
    std::shared_ptr<const TimestampLayout> stamps;
    std::array<std::shared_ptr<CommandBuffer>, 2> commands;
    size_t next = 0;
  };

  // Uses the list's own timestamps if it was committed with them, else an instrumented recording.
  Submission exec_profiled(Profiler& profiler) {
    const std::lock_guard lock(profile_mutex_);
    const bool has_own_timestamps = stamps_.count > 0;
    if (has_own_timestamps) profiler.read_timestamps(*this);  // collect now: this submission overwrites its timestamps
    ProfiledCommands* const profiled = has_own_timestamps ? nullptr : &select_profiled_commands(profiler);
    if (!described_) described_ = describe_dispatches(dispatches_, barriers_before_);
    const auto self = shared_from_this();
    ProfiledRun run;
    run.dispatches = described_;
    run.context = context_;
    run.fine = has_own_timestamps || profiled == &fine_ || profiler.level() == ProfileLevel::execution;
    run.commands = has_own_timestamps ? std::shared_ptr<CommandBuffer>(self, commands_.get()) : get_or_record_commands(*profiled);
    run.stamps = has_own_timestamps ? std::shared_ptr<const TimestampLayout>(self, &stamps_) : profiled->stamps;
    run.submitted = get_trace_time_ns();
    const uint64_t id = run.id = submit_with_timestamps(*run.commands);
    add_event({"submit", "", run.submitted, get_trace_time_ns()});
    run.cold = is_cold(id);
    if (profiled) {
      profiled->next = 1 - profiled->next;
      profiled_runs_ += !run.cold;
      profiler.read_timestamps(*this);
    }
    profiler.add(self, std::move(run));
    return {self, id};
  }

  // The lock keeps other threads from reading timestamps during the reset.
  uint64_t submit_with_timestamps(CommandBuffer& commands) {
    if (commands.last_submission() != 0) context_->wait(commands.last_submission());
    const std::lock_guard lock(stamps_mutex_);
    commands.reset_timestamps();
    return submit(commands);
  }

  // Cold executions do not count towards the sampling interval, since their times are not representative.
  ProfiledCommands& select_profiled_commands(const Profiler& profiler) {
    if (profiler.level() == ProfileLevel::execution) return whole_;
    if (fine_level_ != profiler.level()) {
      fine_ = {std::make_shared<TimestampLayout>(plan_timestamps(dispatches_, barriers_before_, profiler.level())), {}, 0};
      fine_level_ = profiler.level();
    }
    if (profiled_by_ != profiler.serial()) profiled_by_ = profiler.serial(), profiled_runs_ = 0;
    return profiled_runs_ % profiler.every() == 0 ? fine_ : whole_;
  }

  std::shared_ptr<CommandBuffer> get_or_record_commands(ProfiledCommands& profiled) {
    if (!profiled.stamps) profiled.stamps = std::make_shared<TimestampLayout>(make_whole_run_layout(dispatches_.size()));
    auto& commands = profiled.commands[profiled.next];
    if (!commands) {
      const HostTraceSpan span("record");
      std::vector<Buffer::UseGuard> uses;  // prevent another thread's close() from freeing a buffer during recording
      for (const Buffer* buffer : buffers_) uses.push_back(buffer->acquire());
      check_resources_open();
      commands = record(*profiled.stamps, true);
    }
    return commands;
  }

  void find_barriers() {
    HazardTracker hazards(find_guard_memories());
    std::vector<MemoryAccess> accesses;
    for (const Dispatch& dispatch : dispatches_) {
      accesses.clear();
      append_accesses(dispatch, accesses);
      barriers_before_.push_back(hazards.add_accesses(accesses));
      barriers_ += barriers_before_.back() != Barrier::none;
    }
  }

  void record_first_run() {
    bool is_cold = false;
    for (const Dispatch& dispatch : dispatches_) is_cold |= was_cold_.emplace_back(dispatch.kernel->pipeline().mark_run());
    if (is_cold) cold_id_ = last_.load();
    has_recorded_first_run_.store(true, std::memory_order_release);
  }

  void collect_buffers() {
    const auto collect = [&](const Dispatch& dispatch, const BufferRange& range) {
      if (!range.buffer) return;
      if (range.buffer->closed()) throw StateError("a Buffer that '" + dispatch.label + "' uses is closed", "L1");
      if (range.buffer->context() != context_)
        throw BindingError("M3", dispatch.label, "buffer", "a buffer of this context", "one of another");
      buffers_.push_back(range.buffer.get());
    };
    for (const auto& dispatch : dispatches_) {
      for (const auto& range : dispatch.buffers) collect(dispatch, range);
      collect(dispatch, dispatch.guard);
    }
    std::sort(buffers_.begin(), buffers_.end());
    buffers_.erase(std::unique(buffers_.begin(), buffers_.end()), buffers_.end());
  }

  void collect_images() {
    for (const auto& dispatch : dispatches_)
      for (const auto& image : dispatch.images) {
        if (image->closed()) throw StateError("an Image that '" + dispatch.label + "' uses is closed", "L1");
        if (image->context() != context_) throw BindingError("M3", dispatch.label, "image", "an image of this context", "one of another");
        images_.push_back(image.get());
      }
    std::sort(images_.begin(), images_.end());
    images_.erase(std::unique(images_.begin(), images_.end()), images_.end());
  }

  CommandBufferSizes compute_sizes(const TimestampLayout& stamps) const {
    CommandBufferSizes sizes;
    for (const auto& dispatch : dispatches_)
      for (const auto& binding : dispatch.kernel->pipeline().bindings()) ++sizes.descriptors[static_cast<size_t>(binding.kind)];
    sizes.sets = static_cast<uint32_t>(dispatches_.size());
    sizes.timestamps = stamps.count;
    sizes.guards = std::ranges::any_of(dispatches_, [](const Dispatch& dispatch) { return dispatch.guard.buffer != nullptr; });
    return sizes;
  }

  // Vulkan has no empty descriptors: an absent binding gets 16 placeholder bytes, an empty binding a
  // single byte, which is less than any element.
  void fill_absent_bindings(std::vector<BufferRange>& ranges) {
    for (auto& range : ranges) {
      if (range.buffer && range.bytes > 0) continue;
      if (!placeholder_) placeholder_ = Buffer::create(context_, 16);
      range = {placeholder_, 0, range.buffer ? 1u : 16u};
    }
  }

  std::vector<uint64_t> find_guard_memories() const {
    std::vector<uint64_t> memories;
    for (const Dispatch& dispatch : dispatches_)
      if (const auto& buffer = dispatch.guard.buffer; buffer && std::ranges::find(memories, buffer->memory()) == memories.end())
        memories.push_back(buffer->memory());
    return memories;
  }

  std::unique_ptr<CommandBuffer> record(const TimestampLayout& stamps, bool host_resets) {
    CommandBufferSizes pool_sizes = compute_sizes(stamps);
    pool_sizes.host_resets = host_resets;
    descriptors_ = std::accumulate(pool_sizes.descriptors.begin(), pool_sizes.descriptors.end(), size_t{0});
    auto commands = std::make_unique<CommandBuffer>(context_, pool_sizes);
    commands->begin();
    check_group_counts(*context_, dispatches_);
    std::vector<std::vector<BufferRange>> ranges;  // one entry per dispatch, with absent bindings filled in
    std::vector<DispatchResources> uses;
    ranges.reserve(dispatches_.size()), uses.reserve(dispatches_.size());
    for (const Dispatch& dispatch : dispatches_) {
      fill_absent_bindings(ranges.emplace_back(dispatch.buffers));
      if (dispatch.kernel->has_loop_watchdog()) ranges.back().push_back(watchdog_buffer_->range());
      uses.push_back({&dispatch.kernel->pipeline(), ranges.back(), dispatch.images});
    }
    commands->write_descriptor_sets(uses);
    record_dispatches(*commands, stamps);
    commands->end();
    return commands;
  }

  void record_dispatches(CommandBuffer& commands, const TimestampLayout& stamps) const {
    uint32_t stamp = 0;
    const auto write = [&](bool enabled) {
      if (enabled) commands.write_timestamp(stamp++);
    };
    write(stamps.count > 0);
    const BufferRange* guard = nullptr;  // guard of the open conditional region
    for (size_t i = 0; i < dispatches_.size(); ++i) {
      const Dispatch& dispatch = dispatches_[i];
      // Consecutive dispatches with the same guard share a conditional region.
      if (guard && !is_same_range(*guard, dispatch.guard)) commands.end_conditional(), guard = nullptr;
      if (barriers_before_[i] != Barrier::none) commands.barrier(barriers_before_[i] == Barrier::guards);
      write(stamps.is_ready_at(i));
      if (!guard && dispatch.guard.bytes == kGuardWord) commands.begin_conditional(*(guard = &dispatch.guard));
      if (dispatch.guard.bytes == kGuardCounts)
        commands.dispatch_indirect(dispatch.kernel->pipeline(), dispatch.push, dispatch.guard);
      else
        commands.dispatch(dispatch.kernel->pipeline(), dispatch.push, dispatch.groups);
      write(stamps.ends_at(i));
    }
    if (guard) commands.end_conditional();
    write(stamp + 1 == stamps.count);  // the final timestamp of a list without dispatches
  }

  std::shared_ptr<Context> context_;
  std::vector<Dispatch> dispatches_;
  RecordingOptions options_;
  std::vector<const Buffer*> buffers_;
  std::vector<const Image*> images_;
  std::shared_ptr<Buffer> placeholder_;
  std::shared_ptr<const LoopWatchdog::ReportBuffer> watchdog_buffer_;  // null if no kernel's loops are monitored
  std::unique_ptr<CommandBuffer> commands_;
  TimestampLayout stamps_;                // timestamps in commands_
  std::vector<Barrier> barriers_before_;  // the barrier before each dispatch
  size_t barriers_ = 0, descriptors_ = 0;
  std::mutex stamps_mutex_;   // held while timestamps are reset and read
  std::mutex profile_mutex_;  // guards the members up to profiled_runs_
  ProfiledCommands fine_, whole_;
  std::optional<ProfileLevel> fine_level_;  // nullopt: fine_ has not been recorded yet
  std::shared_ptr<const std::vector<ProfiledDispatch>> described_;
  uint64_t profiled_by_ = 0, profiled_runs_ = 0;  // serial of the last profile; number of warm executions in it
  std::atomic<uint64_t> last_{0};
  std::once_flag first_run_;
  std::atomic<bool> has_recorded_first_run_{false};  // whether record_first_run() has run
  std::vector<bool> was_cold_;                       // whether each dispatch was cold in the first execution
  std::atomic<uint64_t> cold_id_{0};                 // id of the first execution, if a kernel ran for the first time
};

}  // namespace

std::shared_ptr<Recording> make_plain_recording(std::shared_ptr<Context> context, std::vector<Dispatch> dispatches,
                                                const RecordingOptions& options) {
  return std::make_shared<PlainRecording>(std::move(context), std::move(dispatches), options);
}

bool Submission::done() const {
  return recording_->context()->get_last_completed() >= id_;
}

void Submission::wait(std::optional<double> timeout_seconds, const std::function<void()>& interrupted) const {
  recording_->context()->wait(id_, timeout_seconds, interrupted);
  recording_->collect_messages(id_);
}

std::optional<double> Submission::device_seconds() const {
  return recording_->total_seconds(id_);
}

bool Submission::is_cold() const {
  return recording_->is_cold(id_);
}

}  // namespace pumice
