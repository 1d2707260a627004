// Routines as predicated dispatches: the device sets predicate words to skip the branch not taken and the iterations after the end of a
// loop.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/control_flow/routine_analysis.h"
#include "graph/control_flow/routine_value.h"

namespace pumice {

inline constexpr uint32_t kNoWord = UINT32_MAX;
// Predicate words of a loop: whether it continues, trips, rounds, then entries and trips of each inner loop. The words of branches follow.
inline constexpr uint32_t kContinueWord = 0, kTripsWord = 1, kFirstCounterWord = 3;

// A dispatch with its predicate, or a branch kernel (control_flow.comp) whose buffers are bound later.
struct PredicatedDispatch {
  enum class DispatchKind : uint32_t { begin, loop, choice, status, move, split };  // values as in control_flow.comp

  Dispatch dispatch;
  uint32_t word = kNoWord;  // index of the predicate word; kNoWord: always runs
  bool is_branch = false;
  DispatchKind kind = DispatchKind::begin;
  uint32_t target_word = 0, enclosing = kNoWord, to = 0, counter = kNoWord;
  BufferRange condition;
};

// Device memory of predicated dispatches: predicate words, scratch memory and, without conditional rendering, indirect group counts.
class PredicatedCode {
 public:
  // Throws the errors of Region::bind().
  PredicatedCode(const ControlFlowProgram& program, const RoutineAnalysis& analysis, const RecordingOptions& options);
  // Allocates the predicate words and group counts for the items of the first pass of a builder. `status`: host-visible memory, or null.
  void allocate_predicates(const std::vector<PredicatedDispatch>& items, uint32_t words, std::shared_ptr<Buffer> status);
  CommandList record(std::vector<PredicatedDispatch> items) const;

  const ControlFlowProgram& program() const { return program_; }
  const std::vector<const RoutineStep*>& inner_loops() const { return inner_; }
  bool has_loop(size_t routine) const { return has_loop_[routine]; }
  const std::shared_ptr<Buffer>& arena() const { return arena_; }
  const std::shared_ptr<Buffer>& words() const { return words_; }
  // Returns scratch memory i, allocated from `pool` on first use.
  const RoutineValue& get_scratch(size_t i, const TensorDesc& desc, StagingSlotPool* pool);

 private:
  void find_loops();
  Dispatch make_branch_dispatch(const PredicatedDispatch& item) const;

  const ControlFlowProgram& program_;
  RecordingOptions options_;
  std::vector<const RoutineStep*> inner_;
  std::vector<bool> has_loop_;  // for each routine: whether it contains a loop
  std::shared_ptr<Buffer> arena_, words_, status_, records_, counts_;
  std::vector<RoutineValue> scratch_;
  // Index of the record for a predicate word and group counts; indices ascend with the keys.
  std::map<std::array<uint32_t, 4>, uint32_t> record_indices_;
};

// Translates routines into predicated dispatches. Repeating the same calls yields the same scratch memory and predicate words.
class PredicatedCodeBuilder {
 public:
  // `pool`: null once all scratch memory is allocated.
  PredicatedCodeBuilder(PredicatedCode& code, StagingSlotPool* pool) : code_(code), pool_(pool) { reset_indices(); }
  void reset_indices();  // later calls reuse scratch memory and predicate words from the beginning, in order
  uint32_t allocate_words(uint32_t count);
  uint32_t words_used() const { return next_.word; }

  // Adds a routine and returns its outputs: `destinations` if not empty, else scratch memory. `word` is the predicate of the dispatches; an
  // inner loop replaces it with the predicate word of the code after the loop.
  std::vector<RoutineValue> add_routine(size_t routine_index, std::span<const RoutineValue> inputs,
                                        std::span<const RoutineValue> destinations, uint32_t& word);
  // Adds an IF. `operands`: the condition, then the inputs. Both branches write to `targets`, and the device skips one.
  void add_branches(const RoutineStep& step, std::span<const RoutineValue> operands, std::span<const RoutineValue> targets, uint32_t& word);
  // Adds one iteration of a loop, split into segments at inner loops. Each segment has its own predicate word, and only one word
  // is set at a time: first `start`, then the word of each segment in turn, then `start` again or, at the end of the loop, `body` + 1.
  // `counter` counts iterations.
  struct LoopPredicateWords {
    uint32_t start, body, counter;
  };
  void add_loop_iteration(const RoutineStep& step, std::span<const RoutineValue> state, std::span<const RoutineValue> other,
                          std::span<const RoutineValue> invariants, const LoopPredicateWords& predicate_words);
  PredicatedDispatch& add_branch(PredicatedDispatch::DispatchKind kind, uint32_t target_word, const std::string& label);
  void add_copy(const BufferRange& from, const BufferRange& to, uint32_t word);

  std::vector<PredicatedDispatch> items;

 private:
  // Next free indices. A second pass with the same calls gets the same ones.
  struct NextIndices {
    size_t scratch = 0;
    uint32_t word = 0, inner = 0;
  };
  const RoutineValue& allocate_scratch(const TensorDesc& desc);
  std::vector<TensorDesc> infer_result_descs(const RoutineStep& step, std::span<const RoutineValue> operands) const;
  void add_region(const RoutineStep& step, std::span<const RoutineValue> operands, std::span<const RoutineValue> targets, uint32_t word);
  void add_loop(const RoutineStep& step, std::span<const RoutineValue> operands, std::span<const RoutineValue> targets, uint32_t& word);
  void move_predicate(uint32_t word, uint32_t to, const std::string& label, uint32_t counter = kNoWord);

  PredicatedCode& code_;
  StagingSlotPool* pool_;
  NextIndices next_;
};

}  // namespace pumice
