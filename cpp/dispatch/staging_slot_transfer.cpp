#include "dispatch/staging_slot_transfer.h"

#include <algorithm>

#include "core/parallel_copy.h"
#include "core/rounding.h"
#include "device/command_buffer.h"
#include "device/host_memory.h"
#include "device/transfer_chunk.h"
#include "dispatch/copy.h"
#include "dispatch/debug_recording.h"

namespace pumice {
namespace {

// Copies between device-accessible ranges and returns the execution's id.
uint64_t submit_copy(const BufferRange& source, const BufferRange& target) {
  CommandBuffer commands(source.buffer->context(), {});
  commands.begin();
  const BufferRegion whole{target.offset, source.bytes};
  commands.scatter(source, *target.buffer, {&whole, 1});
  commands.end();
  return commands.submit();
}

}  // namespace

bool StagingSlotTransfer::is_chunked_copy_worthwhile(const StagingSlot& slot) {
  return slot.needs_copy() && slot.size > choose_chunk_bytes(slot.size);
}

StagingSlotTransfer::StagingSlotTransfer(const StagingSlot& slot, bool to_device) : slot_(slot), chunk_(choose_chunk_bytes(slot.size)) {
  for (size_t chunk = 0; chunk < ceil_div(slot.size, chunk_); ++chunk) {
    const uint64_t begin = chunk_end(chunk), bytes = chunk_end(chunk + 1) - begin;
    const BufferRange host{slot.host, slot.offset + begin, bytes}, device{slot.device, slot.offset + begin, bytes};
    chunks_.push_back(make_recording(context(), to_device ? make_copy_dispatches(host, device) : make_copy_dispatches(device, host)));
  }
}

uint64_t StagingSlotTransfer::chunk_end(size_t count) const {
  return std::min(count * chunk_, slot_.size);
}

void StagingSlotTransfer::write(std::span<const std::byte> source, bool is_source_stable) {
  ids_.clear();
  if (const BufferRange host = is_source_stable ? find_host_buffer(*context(), source) : BufferRange{}; host.buffer) {
    ids_ = {submit_copy(host, slot_.device_range())};
    return;
  }
  ParallelCopy copy({slot_.bytes, slot_.size}, {source.data(), source.size()}, source.size(), chunk_, slot_.host->store_mode());
  copy.allow_copy_until(source.size());
  for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    copy.copy_until(std::min<uint64_t>(chunk_end(chunk + 1), source.size()));
    ids_.push_back(chunks_[chunk]->exec().id());
  }
}

void StagingSlotTransfer::begin_read(std::span<std::byte> target) {
  ids_.clear();
  const BufferRange host = target.empty() ? BufferRange{} : find_host_buffer(*context(), target);
  is_direct_ = host.buffer != nullptr;
  if (is_direct_)
    ids_ = {submit_copy({slot_.device, slot_.offset, host.bytes}, host)};
  else
    for (const auto& chunk : chunks_) ids_.push_back(chunk->exec().id());
}

void StagingSlotTransfer::read(std::span<std::byte> target, const InterruptCallback& interrupted) const {
  if (is_direct_) return context()->wait(last_submission(), {}, interrupted);
  ParallelCopy copy({target.data(), target.size()}, {slot_.bytes, slot_.size}, target.size(), chunk_);
  for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    context()->wait(ids_[chunk], {}, interrupted);
    copy.allow_copy_until(std::min<uint64_t>(chunk_end(chunk + 1), target.size()));
  }
  copy.copy_until(target.size());
}

}  // namespace pumice
