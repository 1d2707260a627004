// Transfers a large slot in chunks: the host copies one chunk while the device transfers another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dispatch/recording.h"
#include "dispatch/staging_slot.h"

namespace pumice {

// The chunk transfers of a slot, recorded once and submitted at each execution. Device-accessible host memory (device/host_memory.h) is not
// copied by the host. Not thread-safe.
class StagingSlotTransfer {
 public:
  // Whether chunked transfer speeds up this slot: it needs a device copy of several chunks.
  static bool is_chunked_copy_worthwhile(const StagingSlot& slot);
  StagingSlotTransfer(const StagingSlot& slot, bool to_device);

  // Copies bytes to the host buffer and submits each chunk as soon as it is copied. `is_source_stable`: the source stays unchanged until
  // the device has read it.
  void write(std::span<const std::byte> source, bool is_source_stable);
  // Submits all chunk transfers from the device, ordered after earlier submissions. `target`: the target of the later read(), so that the
  // device may write to it directly; empty if unknown.
  void begin_read(std::span<std::byte> target);
  // Copies each chunk to the target as soon as it has arrived. `interrupted` as in Context::wait.
  void read(std::span<std::byte> target, const InterruptCallback& interrupted) const;
  uint64_t last_submission() const { return ids_.empty() ? 0 : ids_.back(); }

 private:
  uint64_t chunk_end(size_t count) const;  // end offset of the first `count` chunks
  const std::shared_ptr<Context>& context() const { return slot_.device->context(); }

  StagingSlot slot_;
  uint64_t chunk_;
  std::vector<std::shared_ptr<Recording>> chunks_;
  std::vector<uint64_t> ids_;  // last execution of each chunk transfer; a direct transfer has a single one
  bool is_direct_ = false;     // whether the device writes to the target directly
};

}  // namespace pumice
