// Command lists of regions for specific buffers: recorded on first use, then replayed.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/control_flow/routine_value.h"
#include "graph/region/bound_program.h"

namespace pumice {

// Command lists for the regions of one lease, and the arena that they share. Not thread-safe.
class CommandListCache {
 public:
  CommandListCache(std::shared_ptr<Context> context, const RecordingOptions& options) : context_(std::move(context)), options_(options) {}
  const RecordingOptions& options() const { return options_; }

  // Returns the command list that runs `bound` from `inputs` to `outputs` and copies host-visible outputs to the host.
  CommandList& get_region_recording(const std::shared_ptr<BoundProgram>& bound, std::span<const RoutineValue> inputs,
                                    std::span<const RoutineValue> outputs);
  // Returns the command list that copies each (source, target) pair of ranges.
  CommandList& get_copy_recording(std::span<const std::pair<BufferRange, BufferRange>> ranges);
  // Fills the arena with a 32-bit word.
  void fill_arena(uint32_t word, const InterruptCallback& interrupted) const;

 private:
  struct CachedRecording {
    std::shared_ptr<BoundProgram> bound;  // keeps the program alive, so that its address in the key stays unique
    CommandList list;
  };
  struct KeyHash {
    size_t operator()(const std::vector<uint64_t>& key) const;
  };
  CachedRecording* find_recording();  // looks up key_; null if not cached
  CachedRecording& add_recording(std::shared_ptr<BoundProgram> bound);

  std::shared_ptr<Context> context_;
  RecordingOptions options_;
  std::shared_ptr<Buffer> arena_;  // shared by all regions, because they run one after the other
  std::vector<uint64_t> key_;      // key of the current lookup
  std::unordered_map<std::vector<uint64_t>, CachedRecording, KeyHash> recorded_;
};

}  // namespace pumice
