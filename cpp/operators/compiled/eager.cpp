#include "operators/compiled/eager.h"

#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "dispatch/command_list.h"
#include "dispatch/debug_recording.h"

namespace pumice {
namespace {

// LRU cache of a context's execution plans. It stores no compiled operators, because they own the context.
class PlanCache {
 public:
  // Returns the plan for `key`, compiling it on a miss.
  std::shared_ptr<const ExecutionPlan> get_or_compile(const std::shared_ptr<Context>& context, const std::string& key,
                                                      const std::function<Operator()>& make_operator) {
    if (auto cached = lookup(key)) return cached;
    auto plan = std::make_shared<const ExecutionPlan>(make_operator().compile(context)->plan());
    const std::lock_guard lock(mutex_);
    if (const auto at = entries_.find(key); at != entries_.end()) return at->second->second;  // another thread has added the plan meanwhile
    plans_.emplace_front(key, plan);
    entries_.emplace(key, plans_.begin());
    if (plans_.size() > kMaxCachedPlans) {
      entries_.erase(plans_.back().first);
      plans_.pop_back();
    }
    return plan;
  }

 private:
  static constexpr size_t kMaxCachedPlans = 256;
  using Plans = std::list<std::pair<std::string, std::shared_ptr<const ExecutionPlan>>>;

  std::shared_ptr<const ExecutionPlan> lookup(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(key);
    if (at == entries_.end()) return {};
    plans_.splice(plans_.begin(), plans_, at->second);
    return at->second->second;
  }

  std::mutex mutex_;
  Plans plans_;  // most recently used first
  std::unordered_map<std::string, Plans::iterator> entries_;
};

}  // namespace

void run_eagerly(const std::string& key, const std::function<Operator()>& make_operator, const std::vector<Tensor>& inputs,
                 const Tensor& output, const InterruptCallback& interrupted) {
  const auto& context = output.buffer()->context();
  std::string full_key = key;
  BoundRanges ranges;
  const auto add = [&](const Tensor& tensor) {
    const TensorDesc& desc = tensor.desc();
    full_key += " " + std::string(name(desc.dtype)) + to_string(desc.shape) + to_string(desc.strides);
  };
  for (const Tensor& input : inputs) {
    add(input);
    ranges.inputs.push_back(input.range());
  }
  add(output);
  ranges.outputs = {output.range()};
  const auto plan = context->attachment<PlanCache>()->get_or_compile(context, full_key, make_operator);
  const auto compiled = std::make_shared<const CompiledOperator>(context, *plan);
  const uint64_t temporary = compiled->binding_properties().temporary_bytes;
  if (temporary > 0) ranges.temporary = {Buffer::create(context, temporary), 0, temporary};
  const auto recording = make_recording(context, compiled->lower(ranges));
  recording->exec().wait({}, interrupted);
}

Tensor ensure_aligned(const Tensor& source, const InterruptCallback& interrupted) {
  const TensorDesc& desc = source.desc();
  if (source.byte_offset() % desc.required_alignment() == 0) return source;
  const int64_t num_elements = count_span_elements(desc.shape, desc.strides);
  const Tensor span = Tensor::empty(source.buffer()->context(), desc.dtype, {num_elements});
  const BufferRegion whole{0, span.desc().element_bytes()};
  copy({source.buffer(), source.byte_offset(), whole.bytes}, span.buffer(), {&whole, 1}, interrupted);
  return {desc, span.buffer()};
}

}  // namespace pumice
