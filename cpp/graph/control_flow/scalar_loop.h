// A loop on a few 32-bit scalars: one dispatch of a single kernel runs thousands of iterations.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "graph/control_flow/device_loop.h"

namespace pumice {

class ScalarLoop : public DeviceLoop {
 public:
  // Returns null if the step has no macros, or a value has more than one element.
  static std::unique_ptr<ScalarLoop> create(const ControlFlowProgram& program, const RoutineStep& step,
                                            std::span<const RoutineValue> values, const RecordingOptions& options);
  std::string_view kind() const override { return "kernel"; }
  std::vector<BufferRange> input_ranges() const override;
  CommandList& get_begin_command_list() override { return begin_; }
  CommandList& get_round_command_list(size_t iterations) override;
  size_t min_iterations() const override;
  size_t max_iterations() const override;
  BufferRange result(size_t i, uint64_t) const override { return get_word_range(i); }

 private:
  ScalarLoop(const ControlFlowProgram& program, const RoutineStep& step, size_t values, const RecordingOptions& options);
  BufferRange get_word_range(size_t i) const { return {words_, i * sizeof(uint32_t), sizeof(uint32_t)}; }

  std::shared_ptr<Context> context_;
  std::string label_;
  size_t values_;
  RecordingOptions options_;
  std::shared_ptr<const KernelVariant> kernel_;
  std::shared_ptr<Buffer> words_, zeros_;  // words_: values of the loop, trip count, round count
  CommandList begin_;
  std::map<size_t, CommandList> rounds_;  // keyed by number of iterations
};

}  // namespace pumice
