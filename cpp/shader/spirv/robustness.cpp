#include "shader/spirv/robustness.h"

#include <algorithm>
#include <cstdlib>
#include <unordered_map>

#include "shader/spirv/declarations.h"
#include "shader/spirv/spirv_module.h"

namespace pumice {
namespace {

using namespace spirv;

constexpr uint64_t kMaxUnrolledInstructions = 1 << 14;  // maximum number of instructions, since some drivers compile in quadratic time
constexpr uint64_t kMaxTripCount = uint64_t{1} << 40;

bool is_local(uint32_t storage) {
  return storage == kWorkgroup || storage == kPrivate || storage == kFunction;
}

class LocalIndexClamper {
 public:
  explicit LocalIndexClamper(std::span<const uint32_t> words)
      : words_(words), module_(words), declarations_(module_, words[kBoundWord]), bool_(declarations_.declare_type(OpTypeBool, {})) {}

  std::vector<uint32_t> run() {
    std::vector<uint32_t> head(words_.begin(), words_.begin() + kHeaderWords), body;
    bool in_function = false;
    for (const auto& instruction : module_.instructions()) {
      in_function = in_function || instruction.op == OpFunction;
      std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
      if (instruction.op == OpAccessChain || instruction.op == OpInBoundsAccessChain) clamp_indices(instruction[2], operands, body);
      append(in_function ? body : head, instruction.op, operands);
    }
    return declarations_.assemble_module(std::move(head), body);
  }

 private:
  void clamp_indices(uint32_t base, std::vector<uint32_t>& chain, std::vector<uint32_t>& body) {
    const auto& pointer = module_.definition(declarations_.get_value_type(base));
    if (!is_local(pointer[1])) return;
    uint32_t type = pointer[2];
    for (size_t i = 3; i < chain.size(); ++i) {
      const auto& definition = module_.definition(type);
      if (definition.op == OpTypeStruct) {
        type = definition[module_.get_constant_value(chain[i]) + 1];
        continue;
      }
      if (definition.op == OpTypeArray || definition.op == OpTypeVector || definition.op == OpTypeMatrix)
        chain[i] =
            clamp_index(chain[i], definition.op == OpTypeArray ? definition[2] : declarations_.declare_constant(definition[2]), body);
      else if (definition.op != OpTypeRuntimeArray)
        return;  // the type is opaque, such as a cooperative matrix
      type = definition[1];
    }
  }

  // Replaces an out-of-range index with 0. Constant indices are skipped, because the compiler has checked them.
  uint32_t clamp_index(uint32_t index, uint32_t length, std::vector<uint32_t>& body) {
    if (declarations_.is_global(index) && module_.definition(index).op == OpConstant) return index;
    uint32_t type = declarations_.get_value_type(index);
    if (const auto& integer = module_.definition(type); integer[1] != 32) {
      const uint32_t uint_type = declarations_.declare_type(OpTypeInt, {32, 0}), converted = new_id();
      append(body, integer[2] ? OpSConvert : OpUConvert, {uint_type, converted, index});
      type = uint_type, index = converted;
    }
    const uint32_t ok = new_id(), clamped_index = new_id();
    append(body, OpULessThan, {bool_, ok, index, length});
    append(body, OpSelect, {type, clamped_index, ok, index, declarations_.declare_null_constant(type)});
    return clamped_index;
  }

  uint32_t new_id() { return declarations_.new_id(); }

  std::span<const uint32_t> words_;
  Module module_;
  Declarations declarations_;
  uint32_t bool_;
};

// Estimates unrolled loop sizes. Overestimates are safe: dropping an Unroll hint costs little.
class UnrollLimiter {
 public:
  explicit UnrollLimiter(std::span<const uint32_t> words) : words_(words), module_(words) { find_loops(); }

  std::vector<uint32_t> run(std::vector<std::string>& warnings) {
    std::vector<uint32_t> result(words_.begin(), words_.end());
    for (size_t i = 0; i < loops_.size(); ++i) {  // outer loops first
      if (!loops_[i].is_hinted || compute_unrolled_size(i) <= kMaxUnrolledInstructions) continue;
      loops_[i].is_hinted = false;
      result[static_cast<size_t>(&module_.instructions()[loops_[i].begin].operands[2] - words_.data())] &= ~kUnroll;
      warnings.push_back("the unroll hint of a loop of up to " + std::to_string(loops_[i].trip_count) +
                         " iterations is dropped: unrolled, it would be " + std::to_string(compute_unrolled_size(i, true)) +
                         " instructions");
    }
    return result;
  }

 private:
  struct SpirvLoop {
    size_t begin = 0, end = 0;  // indices of its OpLoopMerge and of the merge block's label
    uint64_t trip_count = 1;
    bool is_hinted = false;
  };

  void find_loops() {
    const auto& all = module_.instructions();
    std::unordered_map<uint32_t, size_t> labels;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].op == OpLabel) labels[all[i][0]] = i;
      if (all[i].op == OpConstant || all[i].op == OpSpecConstant) constants_[all[i][1]] = &all[i];
    }
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].op != OpLoopMerge) continue;
      const auto merge = labels.find(all[i][0]);
      if (merge == labels.end() || merge->second < i) continue;
      loops_.push_back({i, merge->second, 1, (all[i][2] & kUnroll) != 0});
    }
    for (size_t k = 0; k < loops_.size(); ++k) loops_[k].trip_count = estimate_trip_count(k);
  }

  // Returns the largest constant that the loop variable starts from or is compared with.
  uint64_t estimate_trip_count(size_t k) const {
    const auto& all = module_.instructions();
    const SpirvLoop& loop = loops_[k];
    uint64_t trip_count = 1;
    size_t header = loop.begin;
    while (header > 0 && all[header].op != OpLabel) --header;
    for (size_t i = header; i-- > 0 && all[i].op != OpLabel;)  // find the block before the loop
      if (all[i].op == OpStore) trip_count = std::max(trip_count, get_constant_magnitude(all[i][1]));
    size_t next = k + 1;
    for (size_t i = header; i < loop.end; ++i) {
      while (next < loops_.size() && loops_[next].end <= i) ++next;
      if (next < loops_.size() && i > loops_[next].begin && i < loops_[next].end) {
        i = loops_[next].end - 1;
        continue;
      }
      if (!is_comparison(all[i].op)) continue;
      for (const size_t operand : {2, 3}) trip_count = std::max(trip_count, get_constant_magnitude(all[i][operand]));
    }
    return trip_count;
  }

  static bool is_comparison(uint16_t op) { return op >= OpIEqual && op <= OpSLessThanEqual; }

  // Returns the magnitude of an integer constant; 0 for anything else.
  uint64_t get_constant_magnitude(uint32_t id) const {
    const auto found = constants_.find(id);
    if (found == constants_.end()) return 0;
    const Instruction* const constant = found->second;
    const auto& type = module_.definition((*constant)[0]);
    if (type.op != OpTypeInt || type[1] > 32) return type.op == OpTypeInt ? kMaxTripCount : 0;
    const auto value = (*constant)[2];
    return type[2] ? static_cast<uint64_t>(std::abs(static_cast<int64_t>(static_cast<int32_t>(value)))) : value;
  }

  // Returns the number of instructions of the loop unrolled as hinted, including its inner loops.
  uint64_t compute_unrolled_size(size_t k, bool hinted = false) const {
    const SpirvLoop& loop = loops_[k];
    uint64_t num_instructions = loop.end - loop.begin;
    for (size_t inner = k + 1; inner < loops_.size() && loops_[inner].begin < loop.end;) {
      num_instructions += compute_unrolled_size(inner) - (loops_[inner].end - loops_[inner].begin);
      const size_t end = loops_[inner].end;
      while (inner < loops_.size() && loops_[inner].begin < end) ++inner;
    }
    const uint64_t trip_count = hinted || loop.is_hinted ? loop.trip_count : 1;
    return num_instructions > kMaxTripCount / trip_count ? kMaxTripCount : num_instructions * trip_count;
  }

  std::span<const uint32_t> words_;
  Module module_;
  std::unordered_map<uint32_t, const Instruction*> constants_;
  std::vector<SpirvLoop> loops_;
};

}  // namespace

std::vector<uint32_t> clamp_local_indices(std::span<const uint32_t> spirv) {
  return LocalIndexClamper(spirv).run();
}

std::vector<uint32_t> limit_unrolling(std::span<const uint32_t> spirv, std::vector<std::string>& warnings) {
  return UnrollLimiter(spirv).run(warnings);
}

}  // namespace pumice
