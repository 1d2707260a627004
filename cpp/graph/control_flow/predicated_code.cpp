#include "graph/control_flow/predicated_code.h"

#include <algorithm>
#include <utility>

namespace pumice {
PredicatedCode::PredicatedCode(const ControlFlowProgram& program, const RoutineAnalysis& analysis, const RecordingOptions& options)
    : program_(program), options_(options), inner_(analysis.inner) {
  find_loops();
  if (analysis.arena_bytes > 0) arena_ = Buffer::create(program.context, analysis.arena_bytes);
}

// Finds the routines that contain a loop at any depth. A routine usually runs routines of higher index, so the search goes backwards and
// repeats until nothing changes.
void PredicatedCode::find_loops() {
  has_loop_.assign(program_.routines.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = program_.routines.size(); i-- > 0;)
      for (const RoutineStep& step : program_.routines[i].steps) {
        const bool found = step.kind == RoutineStep::StepKind::while_ ||
                           (step.kind == RoutineStep::StepKind::if_ && (has_loop_[step.first] || has_loop_[step.second]));
        if (found && !has_loop_[i]) has_loop_[i] = changed = true;
      }
  }
}

const RoutineValue& PredicatedCode::get_scratch(size_t i, const TensorDesc& desc, StagingSlotPool* pool) {
  if (i == scratch_.size()) {
    RoutineValue value{desc, {}, pool->acquire(desc.bytes(), StagingSlotUse::device), {}};
    value.range = {value.slot->device, 0, desc.bytes()};
    scratch_.push_back(std::move(value));
  }
  return scratch_[i];
}

void PredicatedCode::allocate_predicates(const std::vector<PredicatedDispatch>& items, uint32_t words, std::shared_ptr<Buffer> status) {
  const auto& context = program_.context;
  status_ = std::move(status);
  words_ = Buffer::create(context, words * sizeof(uint32_t));
  // Without VK_EXT_conditional_rendering, the device skips indirect dispatches with a group count of zero. Each combination of predicate
  // word and group counts has one record.
  if (context->feature("conditionalRendering")) return;
  for (const PredicatedDispatch& item : items)
    if (const auto& groups = item.dispatch.groups; !item.is_branch && item.word != kNoWord)
      record_indices_[{item.word, groups[0], groups[1], groups[2]}] = 0;
  std::vector<std::array<uint32_t, 4>> records;
  for (auto& [record, number] : record_indices_) number = static_cast<uint32_t>(records.size()), records.push_back(record);
  const auto bytes = std::as_bytes(std::span(records));
  records_ = Buffer::create(context, bytes.size());
  if (!bytes.empty()) upload({records_, 0, bytes.size()}, bytes);
  counts_ = Buffer::create(context, records.size() * kGuardCounts);
}

Dispatch PredicatedCode::make_branch_dispatch(const PredicatedDispatch& item) const {
  const auto whole = [](const std::shared_ptr<Buffer>& buffer) { return buffer ? BufferRange{buffer, 0, buffer->bytes()} : BufferRange{}; };
  const auto first_record_from = [&](uint32_t word) {  // index of the first record whose predicate word is `word` or higher
    const auto found = record_indices_.lower_bound({word, 0, 0, 0});
    return found == record_indices_.end() ? static_cast<uint32_t>(record_indices_.size()) : found->second;
  };
  const uint32_t words = item.kind == PredicatedDispatch::DispatchKind::choice   ? 2
                         : item.kind == PredicatedDispatch::DispatchKind::status ? 0
                                                                                 : 1;
  // an inner loop moves the active word, so any word may change
  const bool all = !inner_.empty() && item.kind != PredicatedDispatch::DispatchKind::status;
  Dispatch dispatch = item.dispatch;
  dispatch.kernel = program_.context->attachment<KernelLibrary>()->get_variant(program_.context, "control_flow.comp", StorageType::fp32);
  StepBuilder builder(dispatch.kernel);
  const std::map<std::string, BufferRange> ranges{{"condition", item.condition},
                                                  {"words", whole(words_)},
                                                  {"records", whole(records_)},
                                                  {"counts", whole(counts_)},
                                                  {"status", whole(status_)}};
  for (const auto& binding : dispatch.kernel->interface().bindings) {
    builder.bind(binding.name, {});
    dispatch.buffers.push_back(ranges.at(binding.name));
  }
  dispatch.push = builder.set("kind", static_cast<uint32_t>(item.kind))
                      .set("first_word", item.target_word)
                      .set("enclosing", item.enclosing)
                      .set("next_word", item.to)
                      .set("counter", item.counter)
                      .set("first_record", all ? 0 : first_record_from(item.target_word))
                      .set("end_record", all ? static_cast<uint32_t>(record_indices_.size()) : first_record_from(item.target_word + words))
                      .set_workgroups(1)
                      .build()
                      .push;
  return dispatch;
}

CommandList PredicatedCode::record(std::vector<PredicatedDispatch> items) const {
  CommandList list(program_.context);
  for (PredicatedDispatch& item : items) {
    if (item.is_branch) {
      list.dispatch(make_branch_dispatch(item));
      continue;
    }
    const auto& groups = item.dispatch.groups;
    if (item.word != kNoWord && counts_)
      item.dispatch.guard = {counts_, record_indices_.at({item.word, groups[0], groups[1], groups[2]}) * kGuardCounts, kGuardCounts};
    else if (item.word != kNoWord)
      item.dispatch.guard = {words_, item.word * sizeof(uint32_t), kGuardWord};
    list.dispatch(std::move(item.dispatch));
  }
  list.commit(options_);
  return list;
}

}  // namespace pumice
