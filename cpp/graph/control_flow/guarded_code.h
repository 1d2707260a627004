// Routines as dispatches guarded by words that the device sets, so that it skips the branch not taken and iterations after the end of a
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
// Words of a loop: whether it continues, trips, rounds, then entries and trips of each inner loop. The words of branches follow.
inline constexpr uint32_t kContinueWord = 0, kTripsWord = 1, kFirstCounterWord = 3;

// A dispatch of a list, or a branch kernel (control_flow.comp) whose records are bound later.
struct GuardedDispatch {
  enum class Kind : uint32_t { begin, loop, choice, status, move, split };  // numbered as in control_flow.comp

  Dispatch dispatch;
  uint32_t word = kNoWord;  // guards the dispatch
  bool is_branch = false;
  Kind kind = Kind::begin;
  uint32_t target_word = 0, enclosing = kNoWord, to = 0, counter = kNoWord;
  BufferRange condition;
};

// State of guarded code: words, scratch memory and, on devices without conditional rendering, indirect group counts.
class GuardedCode {
 public:
  // Throws as binding a region does.
  GuardedCode(const ControlFlowProgram& program, const RoutineAnalysis& analysis, const RecordingOptions& options);
  // Allocates the words and group counts for the items of a builder's first pass. `status`: host-visible memory, or null.
  void finish(const std::vector<GuardedDispatch>& items, uint32_t words, std::shared_ptr<Buffer> status);
  CommandList record(std::vector<GuardedDispatch> items) const;

  const ControlFlowProgram& program() const { return program_; }
  const std::vector<const RoutineStep*>& inner() const { return inner_; }  // inner loops
  bool has_loop(size_t routine) const { return has_loop_[routine]; }
  const std::shared_ptr<Buffer>& arena() const { return arena_; }
  const std::shared_ptr<Buffer>& words() const { return words_; }
  // Returns scratch memory by index, allocated from `pool` on first use.
  const RoutineValue& scratch(size_t number, const TensorDesc& desc, HostSlotPool* pool);

 private:
  void find_loops();
  Dispatch branch(const GuardedDispatch& item) const;

  const ControlFlowProgram& program_;
  RecordingOptions options_;
  std::vector<const RoutineStep*> inner_;
  std::vector<bool> has_loop_;  // whether each routine has a loop
  std::shared_ptr<Buffer> arena_, words_, status_, records_, counts_;
  std::vector<RoutineValue> scratch_;
  std::map<std::array<uint32_t, 4>, uint32_t> record_of_;  // record index by word and group counts; record indices have the same order
};

// Turns routines on given memory into items. The same sequence of calls gets the same scratch memory and words.
class GuardedCodeBuilder {
 public:
  // pool: null once all scratch memory is allocated.
  GuardedCodeBuilder(GuardedCode& code, HostSlotPool* pool) : code_(code), pool_(pool) { restart(); }
  void restart();  // the next calls reuse the scratch memory and words of the first ones, in order
  uint32_t words(uint32_t count);
  uint32_t words_used() const { return next_.word; }

  // Records a routine and returns its outputs: `destinations` if not empty, else scratch memory. `word` guards the dispatches; an inner
  // loop replaces it with the word that guards what follows.
  std::vector<RoutineValue> run(size_t number, std::span<const RoutineValue> inputs, std::span<const RoutineValue> destinations,
                                uint32_t& word);
  // Records an IF on `operands` (the condition first). Both branches write to `targets`; the device skips one.
  void add_branches(const RoutineStep& step, std::span<const RoutineValue> operands, std::span<const RoutineValue> targets, uint32_t& word);
  // Records one iteration of a loop in parts, split at inner loops. Each part is guarded by its own word; the set word moves from part to
  // part, starting at `start`, and returns there or, at the end of the loop, moves to `body` + 1. `counter` counts iterations.
  struct LoopGuardWords {
    uint32_t start, body, counter;
  };
  void add_loop_iteration(const RoutineStep& step, std::span<const RoutineValue> state, std::span<const RoutineValue> other,
                          std::span<const RoutineValue> invariants, const LoopGuardWords& guard_words);
  GuardedDispatch& add_branch(GuardedDispatch::Kind kind, uint32_t target_word, const std::string& label);
  void copy(const BufferRange& from, const BufferRange& to, uint32_t word);

  std::vector<GuardedDispatch> items;

 private:
  // Next free indices. A second pass with the same calls gets the same indices.
  struct NextIndices {
    size_t scratch = 0;
    uint32_t word = 0, inner = 0;
  };
  const RoutineValue& scratch(const TensorDesc& desc);
  std::vector<TensorDesc> descriptions(const RoutineStep& step, std::span<const RoutineValue> operands) const;
  void run_region(const RoutineStep& step, std::span<const RoutineValue> operands, std::span<const RoutineValue> targets, uint32_t word);
  void run_loop(const RoutineStep& step, std::span<const RoutineValue> operands, std::span<const RoutineValue> targets, uint32_t& word);
  void move_guard(uint32_t word, uint32_t to, const std::string& label, uint32_t counter = kNoWord);

  GuardedCode& code_;
  HostSlotPool* pool_;
  NextIndices next_;
};

}  // namespace pumice
