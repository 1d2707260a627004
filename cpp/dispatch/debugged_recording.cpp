#include "dispatch/debugged_recording.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "core/error.h"
#include "core/log.h"
#include "dispatch/copy.h"
#include "dispatch/host_slot.h"
#include "dispatch/kernel/messages.h"

namespace pumice {
namespace {

constexpr size_t kMostInFlight = 4;
constexpr uint64_t kMostBytes = UINT32_MAX - 7;  // maximum size of an array; the shader rounds it up to whole words
constexpr size_t kMostErrors = 64;               // maximum number of executions whose errors are kept

BufferRange head_of(const BufferRange& ring) {
  return {ring.buffer, ring.offset, sizeof(RingHead)};
}

// The message ring of one kernel in one execution.
struct Ring {
  std::shared_ptr<const KernelVariant> kernel;
  std::shared_ptr<const DebugSink> sink;
  HostSlot slot;
};

// A recording of the dispatches with its own message rings.
struct Take {
  std::vector<Ring> rings;
  std::shared_ptr<Recording> recording;
  uint64_t id = 0;  // id of its last execution
  bool is_read = true;
};

// The first out-of-bounds access of an execution.
struct KnownError {
  OutOfBoundsError error;
  bool raised = false;
};

class DebuggedRecording : public Recording, public std::enable_shared_from_this<DebuggedRecording> {
 public:
  DebuggedRecording(std::shared_ptr<Context> context, std::vector<Dispatch> dispatches, const RecordingOptions& options)
      : context_(std::move(context)), dispatches_(std::move(dispatches)), options_(options) {
    bind_limits();
    add_take();
  }

  // Reads the messages of the last executions, so that they are not lost with the list. Gives up if an execution does not finish.
  ~DebuggedRecording() override {
    try {
      for (const auto& take : takes_)
        if (!take->is_read) context_->wait(take->id, context_->patience_seconds(), give_up_at_interrupt);
      read_finished();
      for (const auto& [id, known] : errors_)
        if (!known.raised) log(LogLevel::warning, known.error.what());
    } catch (const TimeoutError& error) {
      log(LogLevel::warning, std::string("messages of a list that is dropped are lost: ") + error.what());
    } catch (const Error&) {  // the context is closed
    }
  }

  Submission exec() override {
    const std::lock_guard guard(mutex_);
    Take& take = free_take();
    for (const Ring& ring : take.rings) std::memset(ring.slot.bytes, 0, sizeof(RingHead));
    take.id = take.recording->exec().id();
    take.is_read = false;
    return {shared_from_this(), take.id};
  }

  void collect(uint64_t id) override {
    const std::lock_guard guard(mutex_);
    read_finished();
    if (const auto found = errors_.find(id); found != errors_.end()) {
      found->second.raised = true;
      throw OutOfBoundsError(found->second.error);
    }
  }

  std::optional<OutOfBoundsError> take_error() {
    const std::lock_guard guard(mutex_);
    read_finished();
    std::optional<OutOfBoundsError> first;
    for (auto& [id, known] : errors_)
      if (!std::exchange(known.raised, true) && !first) first.emplace(known.error);
    return first;
  }

  std::vector<std::shared_ptr<MessageLog>> message_logs() const override {
    std::vector<std::shared_ptr<MessageLog>> logs;
    for (const auto& dispatch : dispatches_)
      if (dispatch.debug && std::ranges::find(logs, dispatch.debug->log) == logs.end()) logs.push_back(dispatch.debug->log);
    return logs;
  }

  const std::shared_ptr<Context>& context() const override { return context_; }
  size_t dispatch_count() const override { return takes_.front()->recording->dispatch_count(); }
  size_t barrier_count() const override { return takes_.front()->recording->barrier_count(); }
  size_t descriptor_count() const override { return takes_.front()->recording->descriptor_count(); }

  std::optional<double> total_seconds(uint64_t id) override {
    const std::lock_guard guard(mutex_);
    const auto found = std::ranges::find_if(takes_, [id](const auto& take) { return take->id == id; });
    return found == takes_.end() ? std::nullopt : (*found)->recording->total_seconds(id);
  }

  bool is_cold(uint64_t id) override {
    const std::lock_guard guard(mutex_);
    const auto found = std::ranges::find_if(takes_, [id](const auto& take) { return take->id == id; });
    return found != takes_.end() && (*found)->recording->is_cold(id);
  }

  bool has_run() override {
    const std::lock_guard guard(mutex_);
    return takes_.front()->recording->has_run();
  }

  std::vector<DispatchTime> dispatch_times() override {
    const std::lock_guard guard(mutex_);
    const auto last = std::ranges::max_element(takes_, {}, [](const auto& take) { return take->id; });
    return (*last)->recording->dispatch_times();
  }

 private:
  static size_t position(const Dispatch& dispatch, std::string_view name) {
    const auto& bindings = dispatch.kernel->interface().bindings;
    return static_cast<size_t>(std::ranges::find(bindings, name, &BindingInterface::name) - bindings.begin());
  }

  // Writes the size of each binding in bytes, indexed by binding, for bounds checks in shaders. The sizes never change.
  void bind_limits() {
    const uint64_t alignment = std::max<uint64_t>(context_->limit("minStorageBufferOffsetAlignment"), 4);
    uint64_t bytes = 0;
    const auto size_of = [&](const Dispatch& dispatch) {
      return (std::max<size_t>(dispatch.exact_bytes.size(), 1) * 4 + alignment - 1) / alignment * alignment;
    };
    for (const auto& dispatch : dispatches_)
      if (has_limits(dispatch)) bytes += size_of(dispatch);
    if (bytes == 0) return;
    std::vector<std::byte> limits(bytes);
    const auto buffer = Buffer::create(context_, bytes);
    uint64_t offset = 0;
    for (auto& dispatch : dispatches_) {
      if (!has_limits(dispatch)) continue;
      for (size_t i = 0; i < dispatch.exact_bytes.size(); ++i) {
        const uint32_t most = static_cast<uint32_t>(std::min<uint64_t>(dispatch.exact_bytes[i], kMostBytes));
        std::memcpy(limits.data() + offset + 4 * i, &most, sizeof most);
      }
      dispatch.buffers[position(dispatch, kLimitsName)] = {buffer, offset, std::max<uint64_t>(dispatch.exact_bytes.size() * 4, 4)};
      offset += size_of(dispatch);
    }
    upload({buffer, 0, bytes}, limits);
  }

  static bool has_limits(const Dispatch& dispatch) { return dispatch.debug && dispatch.kernel->interface().find_binding(kLimitsName); }

  // Dispatches of the same kernel share a ring, since they run one after the other.
  Take& add_take() {
    auto take = std::make_unique<Take>();
    std::vector<Dispatch> copies = dispatches_, all;
    std::map<const KernelVariant*, size_t> rings;
    for (auto& dispatch : copies) {
      if (!dispatch.debug) continue;
      const auto [found, is_new] = rings.emplace(dispatch.kernel.get(), take->rings.size());
      if (is_new)
        take->rings.push_back({dispatch.kernel, dispatch.debug, make_host_slot(context_, dispatch.debug->ring_bytes, Heap::readback)});
      dispatch.buffers[position(dispatch, kRingName)] = take->rings[found->second].slot.device_range();
      dispatch.debug = nullptr;
    }
    const auto add = [&](std::vector<Dispatch> more) { std::move(more.begin(), more.end(), std::back_inserter(all)); };
    for (const Ring& ring : take->rings)
      if (ring.slot.is_copied()) add(copy_dispatches(head_of(ring.slot.host_range()), head_of(ring.slot.device_range())));
    add(std::move(copies));
    for (const Ring& ring : take->rings)
      if (ring.slot.is_copied()) add(copy_dispatches(ring.slot.device_range(), ring.slot.host_range()));
    take->recording = make_plain_recording(context_, std::move(all), options_);
    return *takes_.emplace_back(std::move(take));
  }

  Take& free_take() {
    read_finished();
    for (const auto& take : takes_)
      if (take->is_read) return *take;
    if (takes_.size() < kMostInFlight) return add_take();
    Take& oldest = **std::ranges::min_element(takes_, {}, [](const auto& take) { return take->id; });
    context_->wait(oldest.id);
    read(oldest);
    return oldest;
  }

  void read_finished() {
    const uint64_t completed = context_->completed();
    std::vector<Take*> finished;
    for (const auto& take : takes_)
      if (!take->is_read && take->id <= completed) finished.push_back(take.get());
    std::ranges::sort(finished, {}, &Take::id);
    for (Take* take : finished) read(*take);
  }

  void read(Take& take) {
    take.is_read = true;
    for (const Ring& ring : take.rings) {
      const std::span words(reinterpret_cast<const uint32_t*>(ring.slot.bytes), ring.slot.host->bytes() / sizeof(uint32_t));
      const auto error = read_ring(*ring.kernel->shader(), words, *ring.sink->log);
      if (error) errors_.emplace(take.id, KnownError{*error});
    }
    if (errors_.size() > kMostErrors) errors_.erase(errors_.begin());
  }

  std::shared_ptr<Context> context_;
  std::vector<Dispatch> dispatches_;
  RecordingOptions options_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Take>> takes_;
  std::map<uint64_t, KnownError> errors_;  // keyed by execution
};

// The live debugged recordings of a context.
struct Alive {
  std::mutex mutex;
  std::vector<std::weak_ptr<DebuggedRecording>> recordings;
};

}  // namespace

std::shared_ptr<Recording> make_recording(std::shared_ptr<Context> context, std::vector<Dispatch> dispatches,
                                          const RecordingOptions& options) {
  if (std::ranges::none_of(dispatches, [](const Dispatch& dispatch) { return dispatch.debug != nullptr; }))
    return make_plain_recording(std::move(context), std::move(dispatches), options);
  const auto alive = context->attachment<Alive>();
  auto made = std::make_shared<DebuggedRecording>(std::move(context), std::move(dispatches), options);
  const std::lock_guard guard(alive->mutex);
  std::erase_if(alive->recordings, [](const auto& one) { return one.expired(); });
  alive->recordings.push_back(made);
  return made;
}

Collected collect_debugged(Context& context) {
  const auto alive = context.attachment<Alive>();
  std::vector<std::shared_ptr<DebuggedRecording>> recordings;
  {
    const std::lock_guard guard(alive->mutex);
    for (const auto& one : alive->recordings)
      if (auto recording = one.lock()) recordings.push_back(std::move(recording));
  }
  Collected collected;
  for (const auto& recording : recordings) {
    auto error = recording->take_error();
    if (error && !collected.error) collected.error.emplace(std::move(*error));
    for (auto& log : recording->message_logs()) collected.logs.push_back(std::move(log));
  }
  return collected;
}

}  // namespace pumice
