#include "graph/control_flow/control_flow_recordings.h"

namespace pumice {
namespace {

constexpr size_t kMostFlowRecordings = 256;

}  // namespace

size_t FlowRecordings::Hash::operator()(const std::vector<uint64_t>& key) const {
  uint64_t hash = 0;
  for (const uint64_t part : key) hash = (hash ^ part) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
  return hash;
}

FlowRecordings::Recorded* FlowRecordings::find() {
  const auto found = recorded_.find(key_);
  return found == recorded_.end() ? nullptr : &found->second;
}

FlowRecordings::Recorded& FlowRecordings::add(std::shared_ptr<BoundProgram> bound) {
  if (recorded_.size() >= kMostFlowRecordings) recorded_.clear();
  return recorded_.try_emplace(key_, Recorded{std::move(bound), CommandList(context_)}).first->second;
}

CommandList& FlowRecordings::run(const std::shared_ptr<BoundProgram>& bound, std::span<const FlowValue> inputs,
                                 std::span<const FlowValue> outputs) {
  key_.assign(1, reinterpret_cast<uintptr_t>(bound.get()));
  for (const auto values : {inputs, outputs})
    for (const FlowValue& value : values) key_.push_back(value.range.buffer->id());
  if (Recorded* known = find()) return known->list;
  const auto& compiled = bound->compiled();
  if (const uint64_t bytes = compiled->plan().temporary_bytes; bytes > 0 && (!arena_ || arena_->bytes() < bytes)) {
    recorded_.clear();  // they use the old, smaller arena
    arena_ = Buffer::create(context_, bytes);
  }
  std::vector<BufferRange> read, made;
  for (const FlowValue& value : inputs) read.push_back(value.range);
  for (const FlowValue& value : outputs) made.push_back(value.range);
  CommandList list(context_);
  dispatch_on(list, compiled, bound->persistent(), read, made, arena_);
  for (const FlowValue& value : outputs)
    if (value.host_visible() && value.slot->is_copied()) list.copy(value.slot->device_range(), value.slot->host_range());
  list.commit(options_);
  Recorded& recorded = add(bound);
  recorded.list = std::move(list);
  return recorded.list;
}

void FlowRecordings::fill_arena(uint32_t word, const Interrupted& interrupted) const {
  if (arena_) fill(BufferRange{arena_, 0, arena_->bytes() / sizeof(word) * sizeof(word)}, word, interrupted);
}

CommandList& FlowRecordings::copies(std::span<const std::pair<BufferRange, BufferRange>> ranges) {
  key_.assign(1, 0);
  for (const auto& [source, target] : ranges)
    key_.insert(key_.end(), {source.buffer->id(), source.offset, target.buffer->id(), target.offset, source.bytes});
  if (Recorded* known = find()) return known->list;
  CommandList list(context_);
  for (const auto& [source, target] : ranges)
    if (source.bytes > 0) list.copy(source, target);
  list.commit(options_);
  Recorded& recorded = add({});
  recorded.list = std::move(list);
  return recorded.list;
}

}  // namespace pumice
