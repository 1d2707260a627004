#include "dispatch/kernel_calls.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/host_trace.h"
#include "device/submission_order.h"
#include "dispatch/copy.h"
#include "dispatch/debugged_recording.h"

namespace pumice {
namespace {

constexpr size_t kMaxCachedCalls = 8;
constexpr uint64_t kMaxCachedBytes = uint64_t{16} << 20;  // maximum bytes per cached call

template <typename T>
void append(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append(std::string& key, const MemoryLayout& layout) {
  append(key, layout.scalar);
  append(key, layout.bytes);
  append(key, layout.axes.size());
  for (const uint32_t size : layout.axes) append(key, size);
  append(key, layout.members.size());
  for (const auto& member : layout.members) {
    key.append(member.name).push_back('\0');
    append(key, member.offset);
    append(key, member.layout);
  }
}

void append(std::string& key, const KernelArguments& arguments) {
  for (const auto& [name, argument] : arguments) {
    key.append(name).push_back('\0');
    const Numbers& numbers = std::get<Numbers>(argument);
    append(key, numbers.shape.size());
    for (const uint32_t size : numbers.shape) append(key, size);
    for (const Number& number : numbers.values) {
      append(key, number.index());
      std::visit([&](auto value) { append(key, value); }, number.value());
    }
  }
}

// Returns the cache key of a recording: everything that it depends on except the bytes in its slots.
std::string make_call_key(const KernelArguments& arguments, std::span<const ArrayArgument> arrays, const LaunchSize& size) {
  std::string key;
  append(key, size.in_groups);
  append(key, size.count);
  for (const ArrayArgument& array : arrays) {
    key.append(array.name).push_back('\0');
    append(key, array.dtype);
    append(key, array.source.size());
    append(key, array.target != nullptr);
    append(key, array.last_axis);
    if (array.layout) append(key, *array.layout);
  }
  append(key, arguments);
  return key;
}

bool are_all_numbers(const KernelArguments& arguments) {
  return std::all_of(arguments.begin(), arguments.end(),
                     [](const auto& argument) { return std::holds_alternative<Numbers>(argument.second); });
}

}  // namespace

// A recording with the slots of its arrays.
struct KernelCalls::Call {
  std::string key;
  std::vector<HostSlot> sources;                 // one per array
  std::vector<std::optional<HostSlot>> targets;  // one per array; set only for arrays that the kernel writes
  std::shared_ptr<Recording> recording;
  uint64_t bytes = 0;
};

KernelCalls::KernelCalls(std::shared_ptr<Context> context, std::shared_ptr<Kernel> kernel, Macros macros, SpecValues spec)
    : context_(std::move(context)), kernel_(std::move(kernel)), macros_(std::move(macros)), spec_(std::move(spec)) {}

KernelCalls::~KernelCalls() = default;

Dispatch KernelCalls::bind(const KernelArguments& arguments, const LaunchSize& size) const {
  return bind_kernel(*kernel_, arguments, size, macros_, spec_);
}

std::shared_ptr<KernelCalls::Call> KernelCalls::take_cached(const std::string& key) {
  const std::lock_guard guard(mutex_);
  const auto call_it = std::find_if(cached_.begin(), cached_.end(), [&](const auto& call) { return call->key == key; });
  if (call_it == cached_.end()) return {};
  // Remove it while it runs, since its slots serve one call at a time.
  auto call = *call_it;
  cached_.erase(call_it);
  return call;
}

void KernelCalls::cache_call(std::shared_ptr<Call> call) {
  const std::lock_guard guard(mutex_);
  cached_.push_front(std::move(call));
  if (cached_.size() > kMaxCachedCalls) cached_.pop_back();
}

std::shared_ptr<KernelCalls::Call> KernelCalls::record(const KernelArguments& arguments, std::span<const ArrayArgument> arrays,
                                                       const LaunchSize& size) const {
  auto call = std::make_shared<Call>();
  KernelArguments all = arguments;
  for (const ArrayArgument& array : arrays) {
    // device copies move whole words
    const uint64_t bytes = (array.source.size() + 3) / 4 * 4;
    const HostSlot& slot = call->sources.emplace_back(make_host_slot(context_, bytes, Heap::upload));
    all.emplace_back(array.name, TensorArgument{array.dtype, slot.device_range(), array.source.size(), array.last_axis, array.layout});
    call->bytes += array.source.size();
  }
  Dispatch dispatch = bind(all, size);
  std::vector<Dispatch> dispatches;
  const auto add = [&](std::vector<Dispatch> more) { std::move(more.begin(), more.end(), std::back_inserter(dispatches)); };
  const auto variant = dispatch.kernel;
  for (const HostSlot& slot : call->sources)
    if (slot.is_copied()) add(make_copy_dispatches(slot.host_range(), slot.device_range()));
  dispatches.push_back(std::move(dispatch));
  call->targets.resize(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    const auto* binding = variant->interface().find_binding(arrays[i].name);
    if (!binding || binding->access == Access::read) continue;
    if (!arrays[i].target)
      throw BindingError("K9", "argument '" + arrays[i].name + "'", arrays[i].name, "a writable array: the kernel writes it",
                         "a read-only one");
    const auto& device = call->sources[i].device;
    call->targets[i] = make_host_slot(context_, device->bytes(), Heap::readback, device);
    if (call->targets[i]->is_copied()) add(make_copy_dispatches(call->targets[i]->device_range(), call->targets[i]->host_range()));
  }
  call->recording = make_recording(context_, std::move(dispatches));
  return call;
}

void KernelCalls::run(const KernelArguments& arguments, std::span<const ArrayArgument> arrays, const LaunchSize& size,
                      std::optional<double> timeout_seconds, const std::function<void()>& interrupted) {
  const HostSpan span("kernel", kernel_->name());
  const bool keeps = are_all_numbers(arguments) && !size.counts.buffer;  // a cached recording would keep tensors and images alive
  std::string key = keeps ? make_call_key(arguments, arrays, size) : std::string();
  auto call = keeps ? take_cached(key) : nullptr;
  if (!call) {
    call = record(arguments, arrays, size);
    call->key = std::move(key);
  }
  for (size_t i = 0; i < arrays.size(); ++i)
    if (!arrays[i].source.empty()) copy_in(call->sources[i].bytes, arrays[i].source, call->sources[i].host->store());
  const auto recording = call->recording;
  const uint64_t id = recording->exec().id();
  // Nothing to wait for: the other API's work waits for this execution.
  if (arrays.empty() && find_submission_order(*context_) && recording->message_logs().empty()) return;
  // If this throws, the call is not cached, since the execution still uses its slots.
  context_->wait(id, timeout_seconds, interrupted);
  for (size_t i = 0; i < arrays.size(); ++i)
    if (call->targets[i]) copy_out(call->targets[i]->bytes, {arrays[i].target, arrays[i].source.size()});
  if (keeps && call->bytes <= kMaxCachedBytes) cache_call(std::move(call));
  // Must be last: an out-of-bounds error is thrown after the results are copied back.
  recording->collect(id);
}

}  // namespace pumice
