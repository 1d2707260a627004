#include "graph/control_flow/scalar_loop.h"

#include <algorithm>

#include "core/error.h"

namespace pumice {
namespace {

constexpr size_t kMinSteps = 4096, kMaxSteps = 32768;  // lavapipe (Mesa 22.3.6) silently ends a loop after 65,535 iterations

}  // namespace

ScalarLoop::ScalarLoop(const ControlFlowProgram& program, const RoutineStep& step, size_t values, const RecordingOptions& options)
    : context_(program.context),
      label_(step.node),
      values_(values),
      options_(options),
      kernel_(context_->attachment<KernelLibrary>()->get_variant(context_, "scalar_loop.comp", StorageType::fp32, *step.scalar)),
      words_(Buffer::create(context_, (values + 2) * sizeof(uint32_t))),
      zeros_(Buffer::create(context_, 2 * sizeof(uint32_t))),
      begin_(context_) {
  fill({zeros_, 0, zeros_->bytes()}, 0);
  begin_.copy({zeros_, 0, zeros_->bytes()}, {words_, values * sizeof(uint32_t), zeros_->bytes()});
  begin_.commit(options);
  allocate_status(context_, 0);
}

std::unique_ptr<ScalarLoop> ScalarLoop::create(const ControlFlowProgram& program, const RoutineStep& step,
                                               std::span<const RoutineValue> values, const RecordingOptions& options) {
  if (!step.scalar || !std::ranges::all_of(values, [](const RoutineValue& value) { return value.desc.shape == Shape{1}; })) return {};
  return std::unique_ptr<ScalarLoop>(new ScalarLoop(program, step, values.size(), options));
}

size_t ScalarLoop::min_iterations() const {
  return kMinSteps;
}
size_t ScalarLoop::max_iterations() const {
  return kMaxSteps;
}

std::vector<BufferRange> ScalarLoop::input_ranges() const {
  std::vector<BufferRange> ranges;
  for (size_t i = 0; i < values_; ++i) ranges.push_back(get_word_range(i));
  return ranges;
}

CommandList& ScalarLoop::get_round_command_list(size_t iterations) {
  const auto found = rounds_.find(iterations);
  if (found != rounds_.end()) return found->second;
  Step step = StepBuilder(kernel_).bind("words", {}).bind("status", {}).set("steps", iterations).set_workgroups(1).build();
  Dispatch dispatch;
  dispatch.kernel = kernel_;
  dispatch.push = std::move(step.push);
  dispatch.label = label_;
  for (const auto& binding : kernel_->interface().bindings) {
    const auto& buffer = binding.name == "words" ? words_ : status_buffer_;
    dispatch.buffers.push_back({buffer, 0, buffer->bytes()});
  }
  CommandList list(context_);
  list.dispatch(std::move(dispatch));
  list.commit(options_);
  return rounds_.try_emplace(iterations, std::move(list)).first->second;
}

}  // namespace pumice
