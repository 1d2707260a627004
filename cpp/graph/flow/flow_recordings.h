// Regions on given memory: recorded on first use, then replayed.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/flow/flow_values.h"
#include "graph/region/bound_program.h"

namespace pumice {

// The recordings of the regions of one execution, with the arena that they share. Not thread-safe.
class FlowRecordings {
 public:
  FlowRecordings(std::shared_ptr<Context> context, const RecordingOptions& options) : context_(std::move(context)), options_(options) {}
  const RecordingOptions& options() const { return options_; }

  // The list that runs `bound` from `inputs` to `outputs`, and brings those that the host sees to it.
  CommandList& run(const std::shared_ptr<BoundProgram>& bound, std::span<const FlowValue> inputs, std::span<const FlowValue> outputs);
  // The list that copies ranges: pairs of source and target.
  CommandList& copies(std::span<const std::pair<BufferRange, BufferRange>> ranges);
  // Repeats a word over the temporary memory of all regions.
  void fill_arena(uint32_t word, const Interrupted& interrupted) const;

 private:
  struct Recorded {
    std::shared_ptr<BoundProgram> bound;  // kept alive: no other program gets its address, which is in the key
    CommandList list;
  };
  struct Hash {
    size_t operator()(const std::vector<uint64_t>& key) const;
  };
  Recorded* find();  // by key_
  Recorded& add(std::shared_ptr<BoundProgram> bound);

  std::shared_ptr<Context> context_;
  RecordingOptions options_;
  std::shared_ptr<Buffer> arena_;  // the arena of all regions, which follow one another
  std::vector<uint64_t> key_;      // the key of the last search
  std::unordered_map<std::vector<uint64_t>, Recorded, Hash> recorded_;
};

}  // namespace pumice
