#include "shader/bounds.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "core/error.h"
#include "shader/diagnostics.h"
#include "shader/spirv_module.h"

namespace pumice {
namespace {

using namespace spirv;

constexpr size_t kHeaderWords = 5, kBoundWord = 3;
constexpr uint16_t kOpString = 7, kOpLine = 8, kOpNoLine = 317, kOpConstantNull = 46, kOpTypeFunction = 33, kOpFunctionParameter = 55,
                   kOpFunctionCall = 57, kOpLoad = 61, kOpStore = 62, kOpAccessChain = 65, kOpInBoundsAccessChain = 66, kOpUConvert = 113,
                   kOpSConvert = 114, kOpBitcast = 124, kOpLogicalAnd = 167, kOpSelect = 169, kOpAtomicLoad = 227, kOpAtomicStore = 228,
                   kOpAtomicExchange = 229, kOpAtomicXor = 242, kOpPhi = 245, kOpSelectionMerge = 247, kOpLabel = 248, kOpBranch = 249,
                   kOpBranchConditional = 250, kOpReturn = 253, kOpReturnValue = 254, kOpAtomicFMin = 5614, kOpAtomicFMax = 5615,
                   kOpAtomicFAdd = 6035;

void append(std::vector<uint32_t>& words, uint16_t op, const std::vector<uint32_t>& operands) {
  words.push_back(static_cast<uint32_t>(operands.size() + 1) << 16 | op);
  words.insert(words.end(), operands.begin(), operands.end());
}

// Where an instruction has its pointer; none where it is not understood here.
std::optional<size_t> pointer_operand(uint16_t op) {
  if (op == kOpStore || op == kOpAtomicStore) return 0;
  const bool atomic = (op >= kOpAtomicExchange && op <= kOpAtomicXor) || op == kOpAtomicLoad || op == kOpAtomicFAdd ||
                      op == kOpAtomicFMin || op == kOpAtomicFMax;
  if (op == kOpLoad || atomic) return 2;
  return {};
}

// Operands of such an instruction that are plain numbers from here on, not ids: the flags of a memory access.
size_t first_literal(const Instruction& instruction) {
  return instruction.op == kOpLoad ? 3 : instruction.op == kOpStore ? 2 : instruction.size();
}

// An index of an access that must be less than a size.
struct Check {
  size_t level = 0;  // which of the indices
  uint32_t index = 0;
  bool of_range = false;  // the size follows from the bytes that are bound
  uint32_t offset = 0, stride = 0;
  uint32_t length = 0;  // id of the array's own length; 0: none
};

struct Chain {
  uint32_t variable = 0;
  std::vector<uint32_t> indices;
  uint32_t pointer_type = 0;
};

// Ids of the shader -> what stands for them in a function that is made here.
using Ids = std::map<uint32_t, uint32_t>;

class BoundsChecker {
 public:
  BoundsChecker(const std::vector<uint32_t>& words, const SourceSet& sources)
      : words_(words), sources_(sources), module_(words), interface_(reflect(words)), next_id_(words.at(kBoundWord)) {
    capabilities_ = {interface_.capabilities.begin(), interface_.capabilities.end()};
    index_ids();
  }

  std::vector<uint32_t> run();
  std::vector<AccessSite> take_sites() { return std::move(sites_); }

 private:
  void index_ids();
  std::optional<Chain> chain_of(const Instruction& instruction) const;
  std::vector<Check> checks_of(const Chain& chain) const;
  bool rewrite(const Instruction& instruction, std::vector<uint32_t>& body);
  uint32_t access_function(const Instruction& instruction, size_t pointer, const Chain& chain, const std::vector<Check>& checks,
                           std::vector<uint32_t>& arguments);
  uint32_t check_call(const Check& check, uint32_t access, const Chain& chain, const Ids& local, std::vector<uint32_t>& body);
  uint32_t as_uint(uint32_t id, uint32_t type, std::vector<uint32_t>& body);
  uint32_t constant(uint32_t value);
  uint32_t function_type(uint32_t result, const std::vector<uint32_t>& parameters);
  uint32_t binding_position(uint32_t variable) const;
  AccessSite site_of(const Chain& chain, const Check& check, bool writes) const;
  bool is_storage_only(uint32_t type) const;
  uint32_t all_checks(const Instruction& instruction, const Chain& chain, const std::vector<Check>& checks, const Ids& local,
                      std::vector<uint32_t>& body);
  void append_clamped_load(const Instruction& instruction, const Chain& chain, const std::vector<Check>& checks,
                           std::vector<uint32_t>& body);
  void append_guarded_store(const Instruction& instruction, const Chain& chain, const std::vector<Check>& checks,
                            std::vector<uint32_t>& body);
  uint32_t append_chain(const Chain& chain, const Ids& local, std::vector<uint32_t>& body);
  void relabel(std::vector<uint32_t>& body) const;
  static uint32_t here(uint32_t id, const Ids& local) { return local.contains(id) ? local.at(id) : id; }
  bool is_global(uint32_t id) const { return global_.contains(id); }
  uint32_t new_id() { return next_id_++; }

  const std::vector<uint32_t>& words_;
  const SourceSet& sources_;
  Module module_;
  Interface interface_;
  uint32_t next_id_;
  std::unordered_map<uint32_t, uint32_t> types_;  // of everything with a result
  std::set<uint32_t> global_;                     // defined outside functions
  std::set<uint32_t> type_ids_;
  std::unordered_map<uint32_t, std::string> strings_;
  std::map<std::vector<uint32_t>, uint32_t> function_types_;
  std::map<uint32_t, uint32_t> constants_;
  std::unordered_map<uint32_t, Chain> chains_;
  uint32_t void_ = 0, uint_ = 0, bool_ = 0, in_bounds_ = 0, in_range_ = 0;
  std::set<std::string> capabilities_;
  std::string file_;
  uint32_t line_ = 0, block_ = 0;
  std::unordered_map<uint32_t, uint32_t> block_ends_;  // of blocks that were split
  std::vector<uint32_t> globals_, functions_;          // made here
  std::vector<AccessSite> sites_;
};

void BoundsChecker::index_ids() {
  bool in_function = false;
  for (const auto& instruction : module_.all()) {
    const uint16_t op = instruction.op;
    in_function = in_function || op == OpFunction;
    if (op >= OpTypeVoid && op <= kOpTypeFunction) {
      type_ids_.insert(instruction[0]);
      global_.insert(instruction[0]);
      if (op == OpTypeVoid) void_ = instruction[0];
      if (op == OpTypeBool) bool_ = instruction[0];
      if (op == OpTypeInt && instruction[1] == 32 && instruction[2] == 0) uint_ = instruction[0];
      if (op == kOpTypeFunction) function_types_[{instruction.operands.begin() + 1, instruction.operands.end()}] = instruction[0];
    } else if (op == kOpString) {
      strings_[instruction[0]] = instruction.text(1);
    } else if (instruction.size() > 1 && type_ids_.contains(instruction[0]) && op != OpName && op != OpMemberName && op != OpDecorate &&
               op != OpMemberDecorate) {
      types_[instruction[1]] = instruction[0];
      if (!in_function) global_.insert(instruction[1]);
    }
    if (op != OpName) continue;
    if (instruction.text(1).starts_with("pumice_in_bounds(")) in_bounds_ = instruction[0];
    if (instruction.text(1).starts_with("pumice_in_range(")) in_range_ = instruction[0];
  }
  if (!in_bounds_ || !in_range_) throw ShaderCompileError("the functions that check bounds are missing in the compiled shader");
}

std::optional<Chain> BoundsChecker::chain_of(const Instruction& instruction) const {
  Chain chain;
  chain.pointer_type = instruction[0];
  if (const auto outer = chains_.find(instruction[2]); outer != chains_.end()) {
    chain.variable = outer->second.variable;
    chain.indices = outer->second.indices;
  } else {
    if (!is_global(instruction[2])) return {};
    const auto& variable = module_.definition(instruction[2]);
    if (variable.op != OpVariable) return {};
    const uint32_t type = module_.definition(variable[0])[2];
    const bool storage = variable[2] == kStorageBuffer || (variable[2] == kUniform && module_.has(type, BufferBlock));
    if (!storage || module_.name(type).starts_with("pumice_")) return {};
    chain.variable = instruction[2];
  }
  chain.indices.insert(chain.indices.end(), instruction.operands.begin() + 3, instruction.operands.end());
  return chain;
}

// The array in the block is checked against what is bound, what lies within its elements against its own length. The compiler has
// checked constant indices of arrays whose length it knows.
std::vector<Check> BoundsChecker::checks_of(const Chain& chain) const {
  std::vector<Check> checks;
  const uint32_t block = module_.definition(module_.definition(chain.variable)[0])[2];
  uint32_t type = block;
  for (size_t level = 0; level < chain.indices.size(); ++level) {
    const auto& definition = module_.definition(type);
    const uint32_t index = chain.indices[level];
    const bool constant = is_global(index) && module_.definition(index).op == OpConstant;
    if (definition.op == OpTypeStruct) {
      type = definition[module_.constant(index) + 1];
      continue;
    }
    const bool array = definition.op == OpTypeArray, run_time = definition.op == OpTypeRuntimeArray;
    Check check;
    check.level = level;
    check.index = index;
    if (array) check.length = definition[2];
    if (level == 1 && (array || run_time)) {
      check.of_range = true;
      check.offset = module_.member_value(block, module_.constant(chain.indices[0]), Offset).value_or(0);
      check.stride = module_.value(type, ArrayStride).value_or(0);
    }
    if ((check.of_range && check.stride > 0) || (array && !constant)) checks.push_back(check);
    type = definition[1];
  }
  return checks;
}

uint32_t BoundsChecker::constant(uint32_t value) {
  uint32_t& id = constants_[value];
  if (id == 0) append(globals_, OpConstant, {uint_, id = new_id(), value});
  return id;
}

uint32_t BoundsChecker::function_type(uint32_t result, const std::vector<uint32_t>& parameters) {
  std::vector<uint32_t> key{result};
  key.insert(key.end(), parameters.begin(), parameters.end());
  uint32_t& id = function_types_[key];
  if (id == 0) {
    key.insert(key.begin(), id = new_id());
    append(globals_, kOpTypeFunction, key);
  }
  return id;
}

uint32_t BoundsChecker::as_uint(uint32_t id, uint32_t type, std::vector<uint32_t>& body) {
  if (type == uint_) return id;
  const auto& integer = module_.definition(type);
  const uint32_t result = new_id();
  append(body, integer[1] == 32 ? kOpBitcast : integer[2] ? kOpSConvert : kOpUConvert, {uint_, result, id});
  return result;
}

uint32_t BoundsChecker::binding_position(uint32_t variable) const {
  const uint32_t number = module_.value(variable, Binding).value_or(0);
  const auto found = std::ranges::find(interface_.bindings, number, &BindingInterface::binding);
  return static_cast<uint32_t>(found - interface_.bindings.begin());
}

AccessSite BoundsChecker::site_of(const Chain& chain, const Check& check, bool writes) const {
  AccessSite site{shown_name(sources_, file_), line_, {}, false, writes};
  uint32_t type = module_.definition(module_.definition(chain.variable)[0])[2];
  for (size_t level = 0; level < check.level; ++level) {
    const auto& definition = module_.definition(type);
    const bool is_member = definition.op == OpTypeStruct;
    const uint32_t member = is_member ? module_.constant(chain.indices[level]) : 0;
    site.buffer += !is_member ? "[]" : (site.buffer.empty() ? "" : ".") + module_.member_name(type, member);
    type = definition[is_member ? member + 1 : 1];
  }
  const auto& integer = module_.definition(types_.at(check.index));
  site.signed_index = integer[2] != 0;
  return site;
}

uint32_t BoundsChecker::check_call(const Check& check, uint32_t access, const Chain& chain, const Ids& local, std::vector<uint32_t>& body) {
  const uint32_t index = as_uint(here(check.index, local), types_.at(check.index), body), ok = new_id();
  const uint32_t length = check.length ? as_uint(check.length, types_.at(check.length), body) : constant(UINT32_MAX);
  if (check.of_range)
    append(body, kOpFunctionCall,
           {bool_, ok, in_range_, constant(access), index, constant(binding_position(chain.variable)), constant(check.offset),
            constant(check.stride), length});
  else
    append(body, kOpFunctionCall, {bool_, ok, in_bounds_, constant(access), index, length});
  return ok;
}

uint32_t BoundsChecker::all_checks(const Instruction& instruction, const Chain& chain, const std::vector<Check>& checks, const Ids& local,
                                   std::vector<uint32_t>& body) {
  uint32_t ok = 0;
  for (const auto& check : checks) {
    const uint32_t one = check_call(check, static_cast<uint32_t>(sites_.size()), chain, local, body);
    sites_.push_back(site_of(chain, check, instruction.op != kOpLoad && instruction.op != kOpAtomicLoad));
    const uint32_t before = ok;
    ok = before ? new_id() : one;
    if (before) append(body, kOpLogicalAnd, {bool_, ok, before, one});
  }
  return ok;
}

// Numbers of 8 and 16 bits without arithmetic of their own may be loaded, stored and converted, nothing else.
bool BoundsChecker::is_storage_only(uint32_t type) const {
  const auto& definition = module_.definition(type);
  switch (definition.op) {
    case OpTypeFloat:
    case OpTypeInt: {
      const bool is_float = definition.op == OpTypeFloat;
      if (definition[1] > 16) return false;
      return !capabilities_.contains(is_float ? "Float16" : definition[1] == 16 ? "Int16" : "Int8");
    }
    case OpTypeVector:
    case OpTypeMatrix:
    case OpTypeArray:
      return is_storage_only(definition[1]);
    case OpTypeStruct:
      for (size_t member = 1; member < definition.size(); ++member)
        if (is_storage_only(definition[member])) return true;
      return false;
    default:
      return false;
  }
}

// Such a read takes the first element instead of one out of bounds.
void BoundsChecker::append_clamped_load(const Instruction& instruction, const Chain& chain, const std::vector<Check>& checks,
                                        std::vector<uint32_t>& body) {
  Chain safe = chain;
  for (const auto& check : checks) {
    const uint32_t ok = all_checks(instruction, chain, {check}, {}, body), type = types_.at(check.index), zero = new_id();
    append(globals_, kOpConstantNull, {type, zero});
    append(body, kOpSelect, {type, safe.indices[check.level] = new_id(), ok, check.index, zero});
  }
  std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
  operands[2] = append_chain(safe, {}, body);
  append(body, instruction.op, operands);
}

// Such a write stays in its function, whose block it splits.
void BoundsChecker::append_guarded_store(const Instruction& instruction, const Chain& chain, const std::vector<Check>& checks,
                                         std::vector<uint32_t>& body) {
  const uint32_t ok = all_checks(instruction, chain, checks, {}, body), inside = new_id(), merge = new_id();
  append(body, kOpSelectionMerge, {merge, 0});
  append(body, kOpBranchConditional, {ok, inside, merge});
  append(body, kOpLabel, {inside});
  std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
  operands[0] = append_chain(chain, {}, body);
  append(body, instruction.op, operands);
  append(body, kOpBranch, {merge});
  append(body, kOpLabel, {merge});
  block_ends_[block_] = merge;
}

uint32_t BoundsChecker::append_chain(const Chain& chain, const Ids& local, std::vector<uint32_t>& body) {
  const uint32_t pointer = new_id();
  std::vector<uint32_t> path{chain.pointer_type, pointer, chain.variable};
  for (const uint32_t index : chain.indices) path.push_back(here(index, local));
  append(body, kOpAccessChain, path);
  return pointer;
}

// Blocks that were split end under another label, which those after them name.
void BoundsChecker::relabel(std::vector<uint32_t>& body) const {
  for (size_t at = 0; at < body.size(); at += body[at] >> 16) {
    if ((body[at] & 0xffff) != kOpPhi) continue;
    for (size_t parent = at + 4; parent < at + (body[at] >> 16); parent += 2)
      if (const auto end = block_ends_.find(body[parent]); end != block_ends_.end()) body[parent] = end->second;
  }
}

// A function that checks, and then does what the instruction does. `arguments`: the ids that it is called with.
uint32_t BoundsChecker::access_function(const Instruction& instruction, size_t pointer, const Chain& chain,
                                        const std::vector<Check>& checks, std::vector<uint32_t>& arguments) {
  const bool has_result = pointer != 0;
  const uint32_t result_type = has_result ? instruction[0] : void_;
  Ids local;
  std::vector<uint32_t> types;
  const auto pass = [&](uint32_t id) {
    if (is_global(id) || local.contains(id)) return;
    local[id] = new_id();
    arguments.push_back(id);
    types.push_back(types_.at(id));
  };
  for (const uint32_t index : chain.indices) pass(index);
  for (size_t i = pointer + 1; i < first_literal(instruction); ++i) pass(instruction[i]);
  const uint32_t function = new_id(), entry = new_id(), inside = new_id(), merge = new_id();
  std::vector<uint32_t> body;
  append(body, OpFunction, {result_type, function, 0, function_type(result_type, types)});
  for (size_t i = 0; i < types.size(); ++i) append(body, kOpFunctionParameter, {types[i], local.at(arguments[i])});
  append(body, kOpLabel, {entry});
  const uint32_t ok = all_checks(instruction, chain, checks, local, body);
  append(body, kOpSelectionMerge, {merge, 0});
  append(body, kOpBranchConditional, {ok, inside, merge});
  append(body, kOpLabel, {inside});
  const uint32_t target = append_chain(chain, local, body), value = has_result ? new_id() : 0;
  std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
  operands[pointer] = target;
  if (has_result) operands[1] = value;
  for (size_t i = pointer + 1; i < first_literal(instruction); ++i) operands[i] = here(operands[i], local);
  append(body, instruction.op, operands);
  append(body, kOpBranch, {merge});
  append(body, kOpLabel, {merge});
  if (has_result) {
    const uint32_t nothing = new_id(), result = new_id();
    append(globals_, kOpConstantNull, {result_type, nothing});
    append(body, kOpPhi, {result_type, result, value, inside, nothing, entry});
    append(body, kOpReturnValue, {result});
  } else {
    append(body, kOpReturn, {});
  }
  append(body, OpFunctionEnd, {});
  functions_.insert(functions_.end(), body.begin(), body.end());
  return function;
}

// Puts a call in place of an access; false where there is nothing to check.
bool BoundsChecker::rewrite(const Instruction& instruction, std::vector<uint32_t>& body) {
  const auto pointer = pointer_operand(instruction.op);
  if (!pointer) return false;
  const auto chain = chains_.find(instruction[*pointer]);
  if (chain == chains_.end()) return false;
  const auto checks = checks_of(chain->second);
  if (checks.empty()) return false;
  if (instruction.op == kOpLoad && is_storage_only(instruction[0])) {
    append_clamped_load(instruction, chain->second, checks, body);
    return true;
  }
  if (instruction.op == kOpStore && is_storage_only(types_.at(instruction[1]))) {
    append_guarded_store(instruction, chain->second, checks, body);
    return true;
  }
  std::vector<uint32_t> arguments;
  const uint32_t function = access_function(instruction, *pointer, chain->second, checks, arguments);
  std::vector<uint32_t> call{*pointer ? instruction[0] : void_, *pointer ? instruction[1] : new_id(), function};
  call.insert(call.end(), arguments.begin(), arguments.end());
  append(body, kOpFunctionCall, call);
  return true;
}

std::vector<uint32_t> BoundsChecker::run() {
  std::vector<uint32_t> head(words_.begin(), words_.begin() + kHeaderWords), body;
  bool in_function = false;
  for (const auto& instruction : module_.all()) {
    in_function = in_function || instruction.op == OpFunction;
    if (instruction.op == kOpLabel) block_ = instruction[0];
    if (instruction.op == kOpLine) file_ = strings_[instruction[0]], line_ = instruction[1];
    if (instruction.op == kOpAccessChain || instruction.op == kOpInBoundsAccessChain)
      if (auto chain = chain_of(instruction)) chains_[instruction[1]] = std::move(*chain);
    if (rewrite(instruction, body)) continue;
    append(in_function ? body : head, instruction.op, {instruction.operands.begin(), instruction.operands.end()});
  }
  relabel(body);
  head.insert(head.end(), globals_.begin(), globals_.end());
  head.insert(head.end(), body.begin(), body.end());
  head.insert(head.end(), functions_.begin(), functions_.end());
  head[kBoundWord] = next_id_;
  return head;
}

}  // namespace

void place_debug_bindings(std::vector<uint32_t>& spirv) {
  const Module module(spirv);
  std::map<uint32_t, bool> is_ours;  // variables with a binding
  uint32_t next = 0;
  for (const auto& instruction : module.all()) {
    if (instruction.op != OpVariable) continue;
    const auto binding = module.value(instruction[1], Binding);
    if (!binding) continue;
    const bool ours = module.name(module.definition(instruction[0])[2]).starts_with("pumice_");
    is_ours[instruction[1]] = ours;
    if (!ours) next = std::max(next, *binding + 1);
  }
  for (const auto& instruction : module.all()) {
    if (instruction.op != OpDecorate || instruction[1] != Binding || !is_ours[instruction[0]]) continue;
    spirv[static_cast<size_t>(&instruction.operands[2] - spirv.data())] = next++;
  }
}

std::vector<AccessSite> check_bounds(std::vector<uint32_t>& spirv, const SourceSet& sources) {
  BoundsChecker checker(spirv, sources);
  spirv = checker.run();
  return checker.take_sites();
}

}  // namespace pumice
