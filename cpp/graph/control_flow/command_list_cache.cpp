#include "graph/control_flow/command_list_cache.h"

namespace pumice {
namespace {

constexpr size_t kMaxRecordings = 256;

}  // namespace

size_t CommandListCache::KeyHash::operator()(const std::vector<uint64_t>& key) const {
  uint64_t hash = 0;
  for (const uint64_t component : key) hash = (hash ^ component) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
  return hash;
}

CommandListCache::CachedRecording* CommandListCache::find_recording() {
  const auto entry = recorded_.find(key_);
  return entry == recorded_.end() ? nullptr : &entry->second;
}

CommandListCache::CachedRecording& CommandListCache::add_recording(std::shared_ptr<BoundProgram> bound) {
  if (recorded_.size() >= kMaxRecordings) recorded_.clear();
  return recorded_.try_emplace(key_, CachedRecording{std::move(bound), CommandList(context_)}).first->second;
}

CommandList& CommandListCache::get_region_recording(const std::shared_ptr<BoundProgram>& bound, std::span<const RoutineValue> inputs,
                                                    std::span<const RoutineValue> outputs) {
  key_.assign(1, reinterpret_cast<uintptr_t>(bound.get()));
  for (const auto values : {inputs, outputs})
    for (const RoutineValue& value : values) key_.push_back(value.range.buffer->id());
  if (CachedRecording* recording = find_recording()) return recording->list;
  const auto& compiled = bound->compiled();
  if (const uint64_t bytes = compiled->plan().temporary_bytes; bytes > 0 && (!arena_ || arena_->bytes() < bytes)) {
    recorded_.clear();  // cached recordings use the old, smaller arena
    arena_ = Buffer::create(context_, bytes);
  }
  std::vector<BufferRange> read, written;
  for (const RoutineValue& value : inputs) read.push_back(value.range);
  for (const RoutineValue& value : outputs) written.push_back(value.range);
  CommandList list(context_);
  record_operator(list, compiled, bound->persistent(), read, written, arena_);
  for (const RoutineValue& value : outputs)
    if (value.is_host_visible() && value.slot->needs_copy()) list.copy(value.slot->device_range(), value.slot->host_range());
  list.commit(options_);
  CachedRecording& recorded = add_recording(bound);
  recorded.list = std::move(list);
  return recorded.list;
}

void CommandListCache::fill_arena(uint32_t word, const InterruptCallback& interrupted) const {
  if (arena_) fill(BufferRange{arena_, 0, arena_->bytes() / sizeof(word) * sizeof(word)}, word, interrupted);
}

CommandList& CommandListCache::get_copy_recording(std::span<const std::pair<BufferRange, BufferRange>> ranges) {
  key_.assign(1, 0);
  for (const auto& [source, target] : ranges)
    key_.insert(key_.end(), {source.buffer->id(), source.offset, target.buffer->id(), target.offset, source.bytes});
  if (CachedRecording* recording = find_recording()) return recording->list;
  CommandList list(context_);
  for (const auto& [source, target] : ranges)
    if (source.bytes > 0) list.copy(source, target);
  list.commit(options_);
  CachedRecording& recorded = add_recording({});
  recorded.list = std::move(list);
  return recorded.list;
}

}  // namespace pumice
