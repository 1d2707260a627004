#include "shader/spirv/loop_limit.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "shader/spirv/declarations.h"
#include "shader/spirv/spirv_module.h"

namespace pumice {
namespace {

using namespace spirv;

constexpr uint64_t kUnknownTripCount = uint64_t{1} << 40;

uint64_t saturating_add(uint64_t a, uint64_t b) {
  return std::min(a + b, kUnknownTripCount);
}
uint64_t saturating_multiply(uint64_t a, uint64_t b) {
  return a != 0 && b > kUnknownTripCount / a ? kUnknownTripCount : std::min(a * b, kUnknownTripCount);
}

// Computes an upper bound on the total loop iterations of an invocation.
class LoopIterationCounter {
 public:
  explicit LoopIterationCounter(std::span<const uint32_t> words) : module_(words), all_(module_.instructions()) {
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].op == OpLabel) labels_[all_[i][0]] = i;
      if (all_[i].op == OpFunction) functions_[all_[i][1]] = i;
      if (all_[i].op == OpEntryPoint) entry_ = all_[i][1];
    }
  }

  uint64_t run() { return count_function_iterations(entry_); }

 private:
  uint64_t count_function_iterations(uint32_t id) {
    const auto found = functions_.find(id);
    if (found == functions_.end()) return kUnknownTripCount;
    const auto [known, is_new] = counts_.emplace(id, kUnknownTripCount);  // recursive functions have an unknown count
    if (!is_new) return known->second;
    size_t end = found->second;
    while (end < all_.size() && all_[end].op != OpFunctionEnd) ++end;
    return counts_[id] = count_range_iterations(found->second, end);
  }

  // Counts the iterations in a range. Loops are sequential or nested; each ends at its merge block.
  uint64_t count_range_iterations(size_t begin, size_t end) {
    uint64_t count = 0;
    for (size_t i = begin; i < end; ++i) {
      if (all_[i].op == OpFunctionCall) count = saturating_add(count, count_function_iterations(all_[i][2]));
      if (all_[i].op != OpLoopMerge) continue;
      const auto merge = labels_.find(all_[i][0]);
      if (merge == labels_.end() || merge->second < i || merge->second > end) return kUnknownTripCount;
      const uint64_t trip_count = match_trip_count(i, merge->second).value_or(kUnknownTripCount);
      count = saturating_add(count, saturating_multiply(trip_count, saturating_add(1, count_range_iterations(i + 1, merge->second))));
      i = merge->second;
    }
    return count;
  }

  std::optional<int64_t> find_constant(uint32_t id) const {
    for (const auto& instruction : all_) {
      if (instruction.op == OpFunction) break;
      if (instruction.op != OpConstant || instruction[1] != id) continue;
      const auto& type = module_.definition(instruction[0]);
      if (type.op != OpTypeInt || type[1] != 32) return {};
      return type[2] ? int64_t{static_cast<int32_t>(instruction[2])} : int64_t{instruction[2]};
    }
    return {};
  }

  // Returns the instruction in [begin, end) with this result.
  const Instruction* find_result_instruction(size_t begin, size_t end, uint32_t id) const {
    for (size_t i = begin; i < end; ++i)
      if (all_[i].op != OpStore && all_[i].op != OpBranch && all_[i].size() > 1 && all_[i][1] == id) return &all_[i];
    return nullptr;
  }

  struct LoopCondition {
    uint32_t variable = 0;
    uint16_t op = 0;
    int64_t bound = 0;
  };

  // Matches `if (!(variable < constant)) break;` at the start of the loop whose OpLoopMerge is at `loop`.
  std::optional<LoopCondition> match_loop_condition(size_t loop, uint32_t merge_label) const {
    size_t i = loop + 1;
    if (all_[i].op == OpBranch) {
      const auto target = labels_.find(all_[i][0]);
      if (target == labels_.end()) return {};
      i = target->second + 1;
    }
    size_t end = i;
    while (end < all_.size() && all_[end].op != OpBranchConditional && all_[end].op != OpBranch && all_[end].op != OpLabel) ++end;
    if (end >= all_.size() || all_[end].op != OpBranchConditional || all_[end][2] != merge_label) return {};
    const auto* compare = find_result_instruction(i, end, all_[end][0]);
    if (!compare || compare->op < OpUGreaterThan || compare->op > OpSLessThanEqual) return {};
    const auto* load = find_result_instruction(i, end, (*compare)[2]);
    const auto bound = find_constant((*compare)[3]);
    if (!load || load->op != OpLoad || !bound) return {};
    return LoopCondition{(*load)[2], compare->op, *bound};
  }

  // Returns the step if the loop's only change to the variable is `variable += constant` in its continue block.
  std::optional<int64_t> match_step(size_t loop, size_t merge, uint32_t variable) const {
    const auto next = labels_.find(all_[loop][1]);
    if (next == labels_.end()) return {};
    std::optional<int64_t> step;
    for (size_t i = loop; i < merge; ++i) {
      const Instruction& instruction = all_[i];
      if (instruction.op == OpLoad && instruction[2] == variable) continue;
      if (instruction.op != OpStore || instruction[0] != variable) {
        if (std::ranges::find(instruction.operands, variable) != instruction.operands.end()) return {};  // unsupported use of the variable
        continue;
      }
      if (step || i < next->second) return {};
      const auto* sum = find_result_instruction(next->second, i, instruction[1]);
      if (!sum || (sum->op != OpIAdd && sum->op != OpISub)) return {};
      const auto* load = find_result_instruction(next->second, i, (*sum)[2]);
      const auto increment = find_constant((*sum)[3]);
      if (!load || load->op != OpLoad || (*load)[2] != variable || !increment) return {};
      step = sum->op == OpISub ? -*increment : *increment;
    }
    return step;
  }

  // Returns the constant that the block before the loop last stores to the variable.
  std::optional<int64_t> match_start(size_t loop, uint32_t variable) const {
    size_t header = loop;
    while (header > 0 && all_[header].op != OpLabel) --header;
    if (header == 0 || all_[header - 1].op != OpBranch || all_[header - 1][0] != all_[header][0]) return {};
    for (size_t i = header; i-- > 0 && all_[i].op != OpLabel;)
      if (all_[i].op == OpStore && all_[i][0] == variable) return find_constant(all_[i][1]);
    return {};
  }

  std::optional<uint64_t> match_trip_count(size_t loop, size_t merge) const {
    const auto test = match_loop_condition(loop, all_[loop][0]);
    if (!test || !is_local(test->variable)) return {};
    const auto start = match_start(loop, test->variable), step = match_step(loop, merge, test->variable);
    if (!start || !step || *step == 0) return {};
    const bool is_increasing =
        test->op == OpULessThan || test->op == OpSLessThan || test->op == OpULessThanEqual || test->op == OpSLessThanEqual;
    if (is_increasing != (*step > 0)) return {};
    const int64_t distance = is_increasing ? test->bound - *start : *start - test->bound;
    return distance < 0 ? 1 : static_cast<uint64_t>(distance / std::abs(*step)) + 2;
  }

  bool is_local(uint32_t variable) const {
    return std::ranges::any_of(all_, [&](const Instruction& instruction) {
      return instruction.op == OpVariable && instruction[1] == variable && instruction[2] == kFunction;
    });
  }

  Module module_;
  const std::vector<Instruction>& all_;
  std::unordered_map<uint32_t, size_t> labels_, functions_;
  std::unordered_map<uint32_t, uint64_t> counts_;
  uint32_t entry_ = 0;
};

// Implements add_loop_watchdog() for one module.
class LoopWatchdogInserter {
 public:
  LoopWatchdogInserter(std::span<const uint32_t> words, uint32_t binding, uint32_t kernel)
      : words_(words),
        module_(words),
        declarations_(module_, words[kBoundWord]),
        binding_(binding),
        kernel_(kernel),
        storage_(words[1] >= kSpirv13 ? kStorageBuffer : kUniform) {}

  std::vector<uint32_t> run() {
    for (const auto& instruction : module_.instructions())
      if (instruction.op == OpEntryPoint) main_ = instruction[1];
    const uint32_t uint_type = declarations_.declare_type(OpTypeInt, {32, 0});
    const uint32_t block = new_id(), block_pointer = new_id(), array = new_id(), array_pointer = new_id();
    append(functions_, OpTypeStruct, {block, uint_type, uint_type});
    append(functions_, OpTypePointer, {block_pointer, storage_, block});
    append(functions_, OpVariable, {block_pointer, variable_, storage_});
    append(functions_, OpTypeArray, {array, uint_type, get_constant_id(2)});
    append(functions_, OpTypePointer, {array_pointer, kFunction, array});
    append_wrapper_main(array_pointer, uint_type);
    std::vector<uint32_t> head = copy_declarations(block);
    return declarations_.assemble_module(std::move(head), functions_);
  }

 private:
  static constexpr uint32_t kSpirv13 = 0x00010300, kSpirv14 = 0x00010400;

  uint32_t new_id() { return declarations_.new_id(); }
  uint32_t get_constant_id(uint32_t value) { return declarations_.declare_constant(value); }

  void append_decorations(std::vector<uint32_t>& head, uint32_t block) const {
    append(head, OpDecorate, {block, storage_ == kStorageBuffer ? Block : BufferBlock});
    for (uint32_t member = 0; member < 2; ++member) append(head, OpMemberDecorate, {block, member, Offset, 4 * member});
    append(head, OpDecorate, {variable_, DescriptorSet, 0});
    append(head, OpDecorate, {variable_, Binding, binding_});
  }

  // Copies the module's declarations, with the new main() as the entry point. Functions go to functions_.
  std::vector<uint32_t> copy_declarations(uint32_t block) {
    std::vector<uint32_t> head(words_.begin(), words_.begin() + kHeaderWords), functions;
    bool in_function = false, is_decorated = false;
    for (const auto& instruction : module_.instructions()) {
      in_function = in_function || instruction.op == OpFunction;
      if (!is_decorated && (is_type_declaration(instruction.op) || instruction.op == OpTypeForwardPointer)) {
        append_decorations(head, block);
        is_decorated = true;
      }
      std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
      if (instruction.op == OpEntryPoint) {
        operands[1] = new_main_;
        if (words_[1] >= kSpirv14) operands.push_back(variable_);
      }
      if ((instruction.op == OpExecutionMode || instruction.op == OpExecutionModeId) && operands[0] == main_) operands[0] = new_main_;
      append(in_function ? functions : head, instruction.op, operands);
    }
    functions_.insert(functions_.end(), functions.begin(), functions.end());
    return head;
  }

  void emit(uint16_t op, const std::vector<uint32_t>& operands) { append(functions_, op, operands); }

  uint32_t emit_result(uint16_t op, uint32_t type, std::vector<uint32_t> operands) {
    const uint32_t id = new_id();
    operands.insert(operands.begin(), {type, id});
    emit(op, operands);
    return id;
  }

  void append_wrapper_main(uint32_t array_pointer, uint32_t uint_type) {
    const uint32_t void_type = declarations_.declare_type(OpTypeVoid, {}), entry = new_id(), counts = new_id();
    const uint32_t word_pointer = declarations_.declare_type(OpTypePointer, {storage_, uint_type});
    const uint32_t local_pointer = declarations_.declare_type(OpTypePointer, {kFunction, uint_type});
    emit(OpFunction, {void_type, new_main_, 0, declarations_.declare_type(OpTypeFunction, {void_type})});
    emit(OpLabel, {entry});
    emit(OpVariable, {array_pointer, counts, kFunction});
    emit_result(OpFunctionCall, void_type, {main_});
    const uint32_t zero = emit_result(OpLoad, uint_type, {emit_result(OpAccessChain, word_pointer, {variable_, get_constant_id(1)})});
    const uint32_t trip_count = emit_result(OpIAdd, uint_type, {zero, get_constant_id(2)});
    const uint32_t count = emit_result(OpAccessChain, local_pointer, {counts, zero});
    append_test_loop(entry, uint_type, trip_count, count);
    append_watchdog_report(word_pointer, uint_type, trip_count, count);
    emit(OpReturn, {});
    emit(OpFunctionEnd, {});
  }

  // Appends: for (uint i = 0; i < trips; ++i) count += 1; The count is in an array, at an index unknown at compile time, so that compilers
  // cannot fold the loop.
  void append_test_loop(uint32_t entry, uint32_t uint_type, uint32_t trip_count, uint32_t count) {
    const uint32_t header = new_id(), test = new_id(), body = new_id(), next = new_id(), merge = new_id(), i = new_id(), i_next = new_id();
    emit(OpStore, {count, get_constant_id(0)});
    emit(OpBranch, {header});
    emit(OpLabel, {header});
    emit(OpPhi, {uint_type, i, get_constant_id(0), entry, i_next, next});
    emit(OpLoopMerge, {merge, next, 0});
    emit(OpBranch, {test});
    emit(OpLabel, {test});
    emit(OpBranchConditional, {emit_result(OpULessThan, declarations_.declare_type(OpTypeBool, {}), {i, trip_count}), body, merge});
    emit(OpLabel, {body});
    const uint32_t before = emit_result(OpLoad, uint_type, {count});
    emit(OpStore, {count, emit_result(OpIAdd, uint_type, {before, get_constant_id(1)})});
    emit(OpBranch, {next});
    emit(OpLabel, {next});
    emit(OpIAdd, {uint_type, i_next, i, get_constant_id(1)});
    emit(OpBranch, {header});
    emit(OpLabel, {merge});
  }

  // Appends: if (count != trips) buffer[0] = kernel;
  void append_watchdog_report(uint32_t word_pointer, uint32_t uint_type, uint32_t trip_count, uint32_t count) {
    const uint32_t ended_label = new_id(), end_label = new_id(), result = emit_result(OpLoad, uint_type, {count});
    const uint32_t is_ended = emit_result(OpINotEqual, declarations_.declare_type(OpTypeBool, {}), {result, trip_count});
    emit(OpSelectionMerge, {end_label, 0});
    emit(OpBranchConditional, {is_ended, ended_label, end_label});
    emit(OpLabel, {ended_label});
    emit(OpStore, {emit_result(OpAccessChain, word_pointer, {variable_, get_constant_id(0)}), get_constant_id(kernel_)});
    emit(OpBranch, {end_label});
    emit(OpLabel, {end_label});
  }

  std::span<const uint32_t> words_;
  Module module_;
  Declarations declarations_;
  uint32_t binding_, kernel_, storage_, main_ = 0;
  uint32_t variable_ = declarations_.new_id(), new_main_ = declarations_.new_id();
  std::vector<uint32_t> functions_;  // begins with the added declarations
};

}  // namespace

bool may_exceed_iterations(std::span<const uint32_t> spirv, uint64_t iterations) {
  return LoopIterationCounter(spirv).run() > iterations;
}

std::vector<uint32_t> add_loop_watchdog(std::span<const uint32_t> spirv, uint32_t binding, uint32_t kernel) {
  return LoopWatchdogInserter(spirv, binding, kernel).run();
}

std::vector<std::pair<std::string, uint32_t>> find_loop_lines(std::span<const uint32_t> spirv) {
  std::unordered_map<uint32_t, std::string> files;
  std::vector<std::pair<std::string, uint32_t>> lines;
  std::pair<std::string, uint32_t> current;
  for (const auto& instruction : parse_instructions(spirv)) {
    if (instruction.op == OpString) files[instruction[0]] = instruction.string_operand(1);
    if (instruction.op == OpLine) current = {files[instruction[0]], instruction[1]};
    if (instruction.op == OpLoopMerge && current.second > 0 && std::ranges::find(lines, current) == lines.end()) lines.push_back(current);
  }
  return lines;
}

}  // namespace pumice
