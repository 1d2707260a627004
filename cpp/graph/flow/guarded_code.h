// Routines as dispatches behind words that the device sets: what an IF excludes and a loop has left is skipped.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/flow/flow_survey.h"
#include "graph/flow/flow_values.h"

namespace pumice {

inline constexpr uint32_t kNoWord = UINT32_MAX;
// The words of a loop: whether it goes on; trips; rounds; then for each loop inside its entries and trips. The words of branches follow.
inline constexpr uint32_t kGoesOn = 0, kTrips = 1, kCounters = 3;

// A dispatch of a list, or a branch kernel (branch.comp) to which its records are not yet bound.
struct GuardedItem {
  enum class Kind : uint32_t { begin, loop, choice, status, move, split };  // as the kernel knows them

  Dispatch dispatch;
  uint32_t word = kNoWord;  // the word that guards it
  bool is_branch = false;
  Kind kind = Kind::begin;
  uint32_t own = 0, enclosing = kNoWord, to = 0, counter = kNoWord;
  BufferRange condition;
};

// Memory and facts of guarded code: words, scratch memory, and, on devices where a word cannot skip a dispatch, the group counts that do.
class GuardedCode {
 public:
  // Throws what binding a region throws.
  GuardedCode(const FlowProgram& program, const FlowSurvey& survey, const RecordingOptions& options);
  // Makes the words and group counts that the items of a builder's first pass need. `status`: memory that the host sees, or none.
  void finish(const std::vector<GuardedItem>& items, uint32_t words, std::shared_ptr<Buffer> status);
  CommandList record(std::vector<GuardedItem> items) const;

  const FlowProgram& program() const { return program_; }
  const std::vector<const RoutineStep*>& inner() const { return inner_; }  // loops inside
  bool has_loop(size_t routine) const { return has_loop_[routine]; }
  const std::shared_ptr<Buffer>& arena() const { return arena_; }
  const std::shared_ptr<Buffer>& words() const { return words_; }
  // Scratch memory by number. The first time it is taken from `pool`.
  const FlowValue& scratch(size_t number, const TensorDesc& desc, HostSlotPool* pool);

 private:
  void find_loops();
  Dispatch branch(const GuardedItem& item) const;

  const FlowProgram& program_;
  RecordingOptions options_;
  std::vector<const RoutineStep*> inner_;
  std::vector<bool> has_loop_;  // by routine
  std::shared_ptr<Buffer> arena_, words_, status_, records_, counts_;
  std::vector<FlowValue> scratch_;
  std::map<std::array<uint32_t, 4>, uint32_t> record_of_;  // by word and group counts, in this order
};

// Turns routines on given memory into items. The same calls take the same scratch memory and words.
class CodeBuilder {
 public:
  // pool: null once all scratch memory has been taken.
  CodeBuilder(GuardedCode& code, HostSlotPool* pool) : code_(code), pool_(pool) { restart(); }
  void restart();  // the next calls take what the first ones took
  uint32_t words(uint32_t count);
  uint32_t words_taken() const { return next_.word; }

  // Records a routine and returns its outputs: `wanted`, or scratch memory where that is empty. `word` guards the dispatches; a loop inside
  // replaces it by the word of what follows.
  std::vector<FlowValue> run(size_t number, std::span<const FlowValue> inputs, std::span<const FlowValue> wanted, uint32_t& word);
  // Records an IF on `given`, the condition first. Both branches write to `made`; the device skips one of them.
  void choose(const RoutineStep& step, std::span<const FlowValue> given, std::span<const FlowValue> made, uint32_t& word);
  // Records one iteration of a loop in parts. The word that is set moves from part to part: from `start` back to it, or to `body` + 1 where
  // the loop is over; `counter` counts iterations.
  struct LoopWords {
    uint32_t start, body, counter;
  };
  void part(const RoutineStep& step, std::span<const FlowValue> state, std::span<const FlowValue> other,
            std::span<const FlowValue> invariants, const LoopWords& own);
  GuardedItem& add_branch(GuardedItem::Kind kind, uint32_t own, const std::string& label);
  void copy(const BufferRange& from, const BufferRange& to, uint32_t word);

  std::vector<GuardedItem> items;

 private:
  // The numbers that the next requests get. A second pass with the same calls gets the same numbers.
  struct Place {
    size_t scratch = 0;
    uint32_t word = 0, inner = 0;
  };
  const FlowValue& scratch(const TensorDesc& desc);
  std::vector<TensorDesc> descriptions(const RoutineStep& step, std::span<const FlowValue> given) const;
  void run_region(const RoutineStep& step, std::span<const FlowValue> given, std::span<const FlowValue> made, uint32_t word);
  void run_loop(const RoutineStep& step, std::span<const FlowValue> given, std::span<const FlowValue> made, uint32_t& word);
  void hand_on(uint32_t word, uint32_t to, const std::string& label, uint32_t counter = kNoWord);

  GuardedCode& code_;
  HostSlotPool* pool_;
  Place next_;
};

}  // namespace pumice
