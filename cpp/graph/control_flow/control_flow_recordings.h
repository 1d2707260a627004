// Recordings of regions on given memory: recorded on first use, then replayed.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/control_flow/routine_value.h"
#include "graph/region/bound_program.h"

namespace pumice {

// Recordings of one execution's regions, and the arena that they share. Not thread-safe.
class ControlFlowRecordings {
 public:
  ControlFlowRecordings(std::shared_ptr<Context> context, const RecordingOptions& options)
      : context_(std::move(context)), options_(options) {}
  const RecordingOptions& options() const { return options_; }

  // Returns the list that runs `bound` from `inputs` to `outputs` and copies host-visible outputs to the host.
  CommandList& run(const std::shared_ptr<BoundProgram>& bound, std::span<const RoutineValue> inputs, std::span<const RoutineValue> outputs);
  // Returns the list that copies ranges (pairs of source and target).
  CommandList& copies(std::span<const std::pair<BufferRange, BufferRange>> ranges);
  // Fills the temporary memory of all regions with a word.
  void fill_arena(uint32_t word, const Interrupted& interrupted) const;

 private:
  struct Recorded {
    std::shared_ptr<BoundProgram> bound;  // keeps the address in the key unique
    CommandList list;
  };
  struct Hash {
    size_t operator()(const std::vector<uint64_t>& key) const;
  };
  Recorded* find();  // finds the recording of key_
  Recorded& add(std::shared_ptr<BoundProgram> bound);

  std::shared_ptr<Context> context_;
  RecordingOptions options_;
  std::shared_ptr<Buffer> arena_;  // shared by all regions, since they run one after the other
  std::vector<uint64_t> key_;      // key of the last search
  std::unordered_map<std::vector<uint64_t>, Recorded, Hash> recorded_;
};

}  // namespace pumice
