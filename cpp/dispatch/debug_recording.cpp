#include "dispatch/debug_recording.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "core/error.h"
#include "core/log.h"
#include "dispatch/copy.h"
#include "dispatch/kernel/debug_messages.h"
#include "dispatch/staging_slot.h"

namespace pumice {
namespace {

constexpr size_t kMaxInFlight = 4;
constexpr uint64_t kMaxArrayBytes =
    UINT32_MAX - 7;                // maximum array size in bounds checks; shaders round it up to whole words without overflow
constexpr size_t kMaxErrors = 64;  // maximum number of executions whose errors are kept

BufferRange get_ring_header_range(const BufferRange& ring) {
  return {ring.buffer, ring.offset, sizeof(RingBufferHeader)};
}

// The message ring of one kernel in one execution.
struct MessageRing {
  std::shared_ptr<const KernelVariant> kernel;
  std::shared_ptr<const DebugMessageSink> sink;
  StagingSlot slot;
};

// One of several recordings of the same dispatches, so that each execution in flight has its own message rings.
struct RecordingWithMessageRings {
  std::vector<MessageRing> rings;
  std::shared_ptr<Recording> recording;
  uint64_t id = 0;  // id of its last execution
  bool is_read = true;
};

// The first out-of-bounds access of an execution.
struct UnreportedAccessError {
  OutOfBoundsError error;
  bool raised = false;
};

class DebugRecording : public Recording, public std::enable_shared_from_this<DebugRecording> {
 public:
  DebugRecording(std::shared_ptr<Context> context, std::vector<Dispatch> dispatches, const RecordingOptions& options)
      : context_(std::move(context)), dispatches_(std::move(dispatches)), options_(options) {
    bind_buffer_sizes();
    add_recording();
  }

  // Reads the messages of the last executions before the rings are freed. Gives up if an execution does not finish.
  ~DebugRecording() override {
    try {
      for (const auto& slot : recordings_)
        if (!slot->is_read) context_->wait(slot->id, context_->patience_seconds(), throw_if_interrupted);
      read_finished_messages();
      for (const auto& [id, access_error] : errors_)
        if (!access_error.raised) log(LogLevel::warning, access_error.error.what());
    } catch (const TimeoutError& error) {
      log(LogLevel::warning, std::string("messages of a destroyed list are lost: ") + error.what());
    } catch (const Error&) {  // the context is already closed
    }
  }

  Submission exec() override {
    const std::lock_guard guard(mutex_);
    RecordingWithMessageRings& slot = acquire_idle_recording();
    for (const MessageRing& ring : slot.rings) std::memset(ring.slot.bytes, 0, sizeof(RingBufferHeader));
    slot.id = slot.recording->exec().id();
    slot.is_read = false;
    return {shared_from_this(), slot.id};
  }

  void collect_messages(uint64_t id) override {
    const std::lock_guard guard(mutex_);
    read_finished_messages();
    if (const auto entry = errors_.find(id); entry != errors_.end()) {
      entry->second.raised = true;
      throw OutOfBoundsError(entry->second.error);
    }
  }

  std::optional<OutOfBoundsError> take_error() {
    const std::lock_guard guard(mutex_);
    read_finished_messages();
    std::optional<OutOfBoundsError> first;
    for (auto& [id, access_error] : errors_)
      if (!std::exchange(access_error.raised, true) && !first) first.emplace(access_error.error);
    return first;
  }

  std::vector<std::shared_ptr<MessageLog>> message_logs() const override {
    std::vector<std::shared_ptr<MessageLog>> logs;
    for (const auto& dispatch : dispatches_)
      if (dispatch.debug && std::ranges::find(logs, dispatch.debug->log) == logs.end()) logs.push_back(dispatch.debug->log);
    return logs;
  }

  const std::shared_ptr<Context>& context() const override { return context_; }
  size_t dispatch_count() const override { return recordings_.front()->recording->dispatch_count(); }
  size_t barrier_count() const override { return recordings_.front()->recording->barrier_count(); }
  size_t descriptor_count() const override { return recordings_.front()->recording->descriptor_count(); }

  std::optional<double> total_seconds(uint64_t id) override {
    const std::lock_guard guard(mutex_);
    const auto entry = std::ranges::find_if(recordings_, [id](const auto& slot) { return slot->id == id; });
    return entry == recordings_.end() ? std::nullopt : (*entry)->recording->total_seconds(id);
  }

  bool is_cold(uint64_t id) override {
    const std::lock_guard guard(mutex_);
    const auto entry = std::ranges::find_if(recordings_, [id](const auto& slot) { return slot->id == id; });
    return entry != recordings_.end() && (*entry)->recording->is_cold(id);
  }

  bool has_run() override {
    const std::lock_guard guard(mutex_);
    return recordings_.front()->recording->has_run();
  }

  std::vector<DispatchTime> dispatch_times() override {
    const std::lock_guard guard(mutex_);
    const auto last = std::ranges::max_element(recordings_, {}, [](const auto& slot) { return slot->id; });
    return (*last)->recording->dispatch_times();
  }

 private:
  static size_t find_binding_index(const Dispatch& dispatch, std::string_view name) {
    const auto& bindings = dispatch.kernel->interface().bindings;
    return static_cast<size_t>(std::ranges::find(bindings, name, &BindingInterface::name) - bindings.begin());
  }

  // Writes the size of each binding in bytes, indexed by binding, for bounds checks in shaders. The sizes never change.
  void bind_buffer_sizes() {
    const uint64_t alignment = std::max<uint64_t>(context_->limit("minStorageBufferOffsetAlignment"), 4);
    uint64_t bytes = 0;
    const auto size_of = [&](const Dispatch& dispatch) {
      return (std::max<size_t>(dispatch.exact_bytes.size(), 1) * 4 + alignment - 1) / alignment * alignment;
    };
    for (const auto& dispatch : dispatches_)
      if (needs_buffer_sizes(dispatch)) bytes += size_of(dispatch);
    if (bytes == 0) return;
    std::vector<std::byte> limits(bytes);
    const auto buffer = Buffer::create(context_, bytes);
    uint64_t offset = 0;
    for (auto& dispatch : dispatches_) {
      if (!needs_buffer_sizes(dispatch)) continue;
      for (size_t i = 0; i < dispatch.exact_bytes.size(); ++i) {
        const uint32_t accessible_bytes = static_cast<uint32_t>(std::min<uint64_t>(dispatch.exact_bytes[i], kMaxArrayBytes));
        std::memcpy(limits.data() + offset + 4 * i, &accessible_bytes, sizeof accessible_bytes);
      }
      dispatch.buffers[find_binding_index(dispatch, kBufferSizesName)] = {buffer, offset,
                                                                          std::max<uint64_t>(dispatch.exact_bytes.size() * 4, 4)};
      offset += size_of(dispatch);
    }
    upload({buffer, 0, bytes}, limits);
  }

  static bool needs_buffer_sizes(const Dispatch& dispatch) {
    return dispatch.debug && dispatch.kernel->interface().find_binding(kBufferSizesName);
  }

  // Dispatches of the same kernel share a ring, since they run one after the other.
  RecordingWithMessageRings& add_recording() {
    auto slot = std::make_unique<RecordingWithMessageRings>();
    std::vector<Dispatch> copies = dispatches_, all;
    std::map<const KernelVariant*, size_t> rings;
    for (auto& dispatch : copies) {
      if (!dispatch.debug) continue;
      const auto [entry, is_new] = rings.emplace(dispatch.kernel.get(), slot->rings.size());
      if (is_new)
        slot->rings.push_back({dispatch.kernel, dispatch.debug, make_staging_slot(context_, dispatch.debug->ring_bytes, Heap::readback)});
      dispatch.buffers[find_binding_index(dispatch, kRingBufferName)] = slot->rings[entry->second].slot.device_range();
      dispatch.debug = nullptr;
    }
    const auto add = [&](std::vector<Dispatch> more) { std::move(more.begin(), more.end(), std::back_inserter(all)); };
    for (const MessageRing& ring : slot->rings)
      if (ring.slot.needs_copy())
        add(make_copy_dispatches(get_ring_header_range(ring.slot.host_range()), get_ring_header_range(ring.slot.device_range())));
    add(std::move(copies));
    for (const MessageRing& ring : slot->rings)
      if (ring.slot.needs_copy()) add(make_copy_dispatches(ring.slot.device_range(), ring.slot.host_range()));
    slot->recording = make_plain_recording(context_, std::move(all), options_);
    return *recordings_.emplace_back(std::move(slot));
  }

  RecordingWithMessageRings& acquire_idle_recording() {
    read_finished_messages();
    for (const auto& slot : recordings_)
      if (slot->is_read) return *slot;
    if (recordings_.size() < kMaxInFlight) return add_recording();
    RecordingWithMessageRings& oldest = **std::ranges::min_element(recordings_, {}, [](const auto& slot) { return slot->id; });
    context_->wait(oldest.id);
    read_messages(oldest);
    return oldest;
  }

  void read_finished_messages() {
    const uint64_t completed = context_->get_last_completed();
    std::vector<RecordingWithMessageRings*> finished;
    for (const auto& slot : recordings_)
      if (!slot->is_read && slot->id <= completed) finished.push_back(slot.get());
    std::ranges::sort(finished, {}, &RecordingWithMessageRings::id);
    for (RecordingWithMessageRings* slot : finished) read_messages(*slot);
  }

  void read_messages(RecordingWithMessageRings& slot) {
    slot.is_read = true;
    if (context_->compile_only()) return;  // nothing cleared the rings
    for (const MessageRing& ring : slot.rings) {
      const std::span words(reinterpret_cast<const uint32_t*>(ring.slot.bytes), ring.slot.host->bytes() / sizeof(uint32_t));
      const auto error = read_message_ring(*ring.kernel->shader(), words, *ring.sink->log);
      if (error) errors_.emplace(slot.id, UnreportedAccessError{*error});
    }
    if (errors_.size() > kMaxErrors) errors_.erase(errors_.begin());
  }

  std::shared_ptr<Context> context_;
  std::vector<Dispatch> dispatches_;
  RecordingOptions options_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<RecordingWithMessageRings>> recordings_;
  std::map<uint64_t, UnreportedAccessError> errors_;  // keyed by execution
};

// The live debugged recordings of a context.
struct LiveRecordings {
  std::mutex mutex;
  std::vector<std::weak_ptr<DebugRecording>> recordings;
};

}  // namespace

std::shared_ptr<Recording> make_recording(std::shared_ptr<Context> context, std::vector<Dispatch> dispatches,
                                          const RecordingOptions& options) {
  if (std::ranges::none_of(dispatches, [](const Dispatch& dispatch) { return dispatch.debug != nullptr; }))
    return make_plain_recording(std::move(context), std::move(dispatches), options);
  const auto live = context->attachment<LiveRecordings>();
  auto result = std::make_shared<DebugRecording>(std::move(context), std::move(dispatches), options);
  const std::lock_guard guard(live->mutex);
  std::erase_if(live->recordings, [](const auto& weak) { return weak.expired(); });
  live->recordings.push_back(result);
  return result;
}

DebugMessages collect_debug_messages(Context& context) {
  const auto live = context.attachment<LiveRecordings>();
  std::vector<std::shared_ptr<DebugRecording>> recordings;
  {
    const std::lock_guard guard(live->mutex);
    for (const auto& weak : live->recordings)
      if (auto recording = weak.lock()) recordings.push_back(std::move(recording));
  }
  DebugMessages collected;
  for (const auto& recording : recordings) {
    auto error = recording->take_error();
    if (error && !collected.error) collected.error.emplace(std::move(*error));
    for (auto& log : recording->message_logs()) collected.logs.push_back(std::move(log));
  }
  return collected;
}

}  // namespace pumice
