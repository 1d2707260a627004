#include "dispatch/kernel_caller.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/host_trace.h"
#include "device/submission_order.h"
#include "dispatch/copy.h"
#include "dispatch/debug_recording.h"

namespace pumice {
namespace {

constexpr size_t kMaxCachedCalls = 8;
constexpr uint64_t kMaxCachedBytes = uint64_t{16} << 20;  // maximum bytes per cached call

template <typename T>
void append_to_key(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_to_key(std::string& key, const MemoryLayout& layout) {
  append_to_key(key, layout.scalar);
  append_to_key(key, layout.bytes);
  append_to_key(key, layout.axes.size());
  for (const uint32_t size : layout.axes) append_to_key(key, size);
  append_to_key(key, layout.members.size());
  for (const auto& member : layout.members) {
    key.append(member.name).push_back('\0');
    append_to_key(key, member.offset);
    append_to_key(key, member.layout);
  }
}

void append_to_key(std::string& key, const KernelArguments& arguments) {
  for (const auto& [name, argument] : arguments) {
    key.append(name).push_back('\0');
    const PushConstantValues& numbers = std::get<PushConstantValues>(argument);
    append_to_key(key, numbers.shape.size());
    for (const uint32_t size : numbers.shape) append_to_key(key, size);
    for (const Number& number : numbers.values) {
      append_to_key(key, number.index());
      std::visit([&](auto value) { append_to_key(key, value); }, number.value());
    }
  }
}

// Returns the cache key of a recording: everything that it depends on, except the data of the arrays.
std::string make_call_key(const KernelArguments& arguments, std::span<const ArrayArgument> arrays, const LaunchSize& size) {
  std::string key;
  append_to_key(key, size.in_groups);
  append_to_key(key, size.count);
  for (const ArrayArgument& array : arrays) {
    key.append(array.name).push_back('\0');
    append_to_key(key, array.dtype);
    append_to_key(key, array.source.size());
    append_to_key(key, array.target != nullptr);
    append_to_key(key, array.last_axis);
    if (array.layout) append_to_key(key, *array.layout);
  }
  append_to_key(key, arguments);
  return key;
}

bool are_all_numbers(const KernelArguments& arguments) {
  return std::all_of(arguments.begin(), arguments.end(),
                     [](const auto& argument) { return std::holds_alternative<PushConstantValues>(argument.second); });
}

}  // namespace

// A recording with the slots of its arrays.
struct KernelCaller::RecordedCall {
  std::string key;
  std::vector<StagingSlot> sources;                 // data of each array
  std::vector<std::optional<StagingSlot>> targets;  // one per array; set only for arrays that the kernel writes
  std::shared_ptr<Recording> recording;
  uint64_t bytes = 0;
};

KernelCaller::KernelCaller(std::shared_ptr<Context> context, std::shared_ptr<Kernel> kernel, Macros macros, SpecValues spec)
    : context_(std::move(context)), kernel_(std::move(kernel)), macros_(std::move(macros)), spec_(std::move(spec)) {}

KernelCaller::~KernelCaller() = default;

Dispatch KernelCaller::bind(const KernelArguments& arguments, const LaunchSize& size) const {
  return bind_kernel(*kernel_, arguments, size, macros_, spec_);
}

std::shared_ptr<KernelCaller::RecordedCall> KernelCaller::take_cached_call(const std::string& key) {
  const std::lock_guard guard(mutex_);
  const auto call_it = std::find_if(cached_.begin(), cached_.end(), [&](const auto& call) { return call->key == key; });
  if (call_it == cached_.end()) return {};
  // Remove it from the cache while it runs, since its buffers serve one call at a time.
  auto call = *call_it;
  cached_.erase(call_it);
  return call;
}

void KernelCaller::cache_call(std::shared_ptr<RecordedCall> call) {
  const std::lock_guard guard(mutex_);
  cached_.push_front(std::move(call));
  if (cached_.size() > kMaxCachedCalls) cached_.pop_back();
}

std::shared_ptr<KernelCaller::RecordedCall> KernelCaller::record_call(const KernelArguments& arguments,
                                                                      std::span<const ArrayArgument> arrays, const LaunchSize& size) const {
  auto call = std::make_shared<RecordedCall>();
  KernelArguments all = arguments;
  for (const ArrayArgument& array : arrays) {
    // device copies transfer whole 32-bit words
    const uint64_t bytes = (array.source.size() + 3) / 4 * 4;
    const StagingSlot& slot = call->sources.emplace_back(make_staging_slot(context_, bytes, Heap::upload));
    all.emplace_back(array.name, TensorArgument{array.dtype, slot.device_range(), array.source.size(), array.last_axis, array.layout});
    call->bytes += array.source.size();
  }
  Dispatch dispatch = bind(all, size);
  std::vector<Dispatch> dispatches;
  const auto add = [&](std::vector<Dispatch> more) { std::move(more.begin(), more.end(), std::back_inserter(dispatches)); };
  const auto variant = dispatch.kernel;
  for (const StagingSlot& slot : call->sources)
    if (slot.needs_copy()) add(make_copy_dispatches(slot.host_range(), slot.device_range()));
  dispatches.push_back(std::move(dispatch));
  call->targets.resize(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    const auto* binding = variant->interface().find_binding(arrays[i].name);
    if (!binding || binding->access == ResourceAccess::read) continue;
    if (!arrays[i].target)
      throw BindingError("K9", "argument '" + arrays[i].name + "'", arrays[i].name, "a writable array: the kernel writes it",
                         "a read-only one");
    const auto& device = call->sources[i].device;
    call->targets[i] = make_staging_slot(context_, device->bytes(), Heap::readback, device);
    if (call->targets[i]->needs_copy()) add(make_copy_dispatches(call->targets[i]->device_range(), call->targets[i]->host_range()));
  }
  call->recording = make_recording(context_, std::move(dispatches));
  return call;
}

void KernelCaller::run(const KernelArguments& arguments, std::span<const ArrayArgument> arrays, const LaunchSize& size,
                       std::optional<double> timeout_seconds, const std::function<void()>& interrupted) {
  const HostTraceSpan span("kernel", kernel_->name());
  const bool keeps = are_all_numbers(arguments) && !size.counts.buffer;  // a cached recording would keep tensors and images alive
  std::string key = keeps ? make_call_key(arguments, arrays, size) : std::string();
  auto call = keeps ? take_cached_call(key) : nullptr;
  if (!call) {
    call = record_call(arguments, arrays, size);
    call->key = std::move(key);
  }
  for (size_t i = 0; i < arrays.size(); ++i)
    if (!arrays[i].source.empty()) copy_to_mapped(call->sources[i].bytes, arrays[i].source, call->sources[i].host->store_mode());
  const auto recording = call->recording;
  const uint64_t id = recording->exec().id();
  // Nothing to wait for: the other API's work waits for this execution.
  if (arrays.empty() && find_submission_order(*context_) && recording->message_logs().empty()) return;
  // If this throws, the call is not cached, since the execution still uses its slots.
  context_->wait(id, timeout_seconds, interrupted);
  for (size_t i = 0; i < arrays.size(); ++i)
    if (call->targets[i]) context_->require_execution("array '" + arrays[i].name + "' of kernel '" + kernel_->name() + "'");
  for (size_t i = 0; i < arrays.size(); ++i)
    if (call->targets[i]) copy_from_mapped(call->targets[i]->bytes, {arrays[i].target, arrays[i].source.size()});
  if (keeps && call->bytes <= kMaxCachedBytes) cache_call(std::move(call));
  // Must be last: an out-of-bounds error is thrown after the results are copied back.
  recording->collect_messages(id);
}

}  // namespace pumice
