#include "shader/debug/bounds_checks.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "core/error.h"
#include "shader/source/compiler_diagnostics.h"
#include "shader/spirv/access_chains.h"
#include "shader/spirv/declarations.h"
#include "shader/spirv/spirv_module.h"

namespace pumice {
namespace {

using namespace spirv;

constexpr size_t kMaxCodeWords = size_t{1} << 24;  // limit on generated code in words, since zeros are stored element by element

// Returns the index of the pointer operand; nullopt for instructions not handled here.
std::optional<size_t> find_pointer_operand(uint16_t op) {
  if (op == OpStore || op == OpAtomicStore) return 0;
  const bool atomic =
      (op >= OpAtomicExchange && op <= OpAtomicXor) || op == OpAtomicLoad || op == OpAtomicFAdd || op == OpAtomicFMin || op == OpAtomicFMax;
  if (op == OpLoad || atomic) return 2;
  return {};
}

// Returns the index of the first literal operand: the Memory Operands mask of an access.
size_t find_first_literal_operand(const Instruction& instruction) {
  return instruction.op == OpLoad ? 3 : instruction.op == OpStore ? 2 : instruction.size();
}

// Returns whether an instruction converts a storage-only number or extracts it from a structure; no other use of these types is allowed.
bool is_conversion_or_extract(uint16_t op) {
  return (op >= OpConvertFToU && op <= OpFConvert) || op == OpBitcast || op == OpCopyObject || op == OpCopyLogical ||
         op == OpCompositeExtract;
}

// Maps ids in the shader to ids in a generated function.
using IdMap = std::map<uint32_t, uint32_t>;

class BoundsChecker {
 public:
  BoundsChecker(const std::vector<uint32_t>& words, const SourceSet& sources)
      : words_(words),
        sources_(sources),
        module_(words),
        interface_(reflect(words)),
        declarations_(module_, words.at(kBoundWord)),
        chains_(module_, declarations_, interface_),
        capabilities_(interface_.capabilities.begin(), interface_.capabilities.end()),
        void_(declarations_.declare_type(OpTypeVoid, {})),
        uint_(declarations_.declare_type(OpTypeInt, {32, 0})),
        bool_(declarations_.declare_type(OpTypeBool, {})) {
    find_check_functions();
  }

  std::vector<uint32_t> run();
  std::vector<AccessSite> take_sites() { return std::move(sites_); }

 private:
  void find_check_functions();
  bool rewrite_instruction(const Instruction& instruction, std::vector<uint32_t>& body);
  bool rewrite_storage_only_access(const Instruction& instruction, std::vector<uint32_t>& body);
  uint32_t make_access_function(const Instruction& instruction, size_t pointer, const AccessChain& chain,
                                const std::vector<IndexCheck>& checks, std::vector<uint32_t>& arguments);
  uint32_t emit_check_call(const IndexCheck& check, uint32_t access, const AccessChain& chain, const IdMap& local,
                           std::vector<uint32_t>& body);
  uint32_t emit_conversion_to_uint(uint32_t id, uint32_t type, std::vector<uint32_t>& body);
  uint32_t get_constant_id(uint32_t value) { return declarations_.declare_constant(value); }
  AccessSite make_access_site(const AccessChain& chain, const IndexCheck& check, bool writes) const;
  bool is_storage_only(uint32_t type) const;
  uint32_t emit_checks(const Instruction& instruction, const AccessChain& chain, const std::vector<IndexCheck>& checks, const IdMap& local,
                       std::vector<uint32_t>& body);
  uint32_t emit_logical_and(uint32_t first, uint32_t second, std::vector<uint32_t>& body);
  void append_clamped_load(const Instruction& instruction, const AccessChain& chain, const std::vector<IndexCheck>& checks,
                           std::vector<uint32_t>& body);
  void append_storage_only_store(const Instruction& instruction, const AccessChain* chain, const std::vector<IndexCheck>& checks,
                                 std::vector<uint32_t>& body);
  void append_if(uint32_t condition, const std::function<void()>& then, const std::function<void()>& otherwise,
                 std::vector<uint32_t>& body);
  void append_conversion_or_zero(const Instruction& instruction, uint32_t ok, std::vector<uint32_t>& body);
  void append_zero_stores(uint32_t type, uint32_t storage, uint32_t pointer, std::vector<uint32_t>& body);
  uint32_t get_32bit_type(uint32_t type);
  uint32_t append_access_chain(const AccessChain& chain, const IdMap& local, std::vector<uint32_t>& body);
  void fix_phi_parents(std::vector<uint32_t>& body) const;
  static uint32_t map_id(uint32_t id, const IdMap& local) { return local.contains(id) ? local.at(id) : id; }
  uint32_t new_id() { return declarations_.new_id(); }

  const std::vector<uint32_t>& words_;
  const SourceSet& sources_;
  Module module_;
  ShaderInterface interface_;
  Declarations declarations_;
  AccessChains chains_;
  std::set<std::string> capabilities_;
  uint32_t void_, uint_, bool_, in_bounds_ = 0, in_range_ = 0;
  std::unordered_map<uint32_t, std::string> strings_;
  std::string file_;
  uint32_t line_ = 0, block_ = 0;
  std::unordered_map<uint32_t, uint32_t> block_ends_;    // label of a split block -> label of its last part
  std::unordered_map<uint32_t, uint32_t> in_bounds_of_;  // storage-only value -> id of a bool: whether it was read in bounds
  std::vector<uint32_t> functions_;                      // the generated access functions
  std::vector<AccessSite> sites_;
};

void BoundsChecker::find_check_functions() {
  for (const auto& instruction : module_.instructions()) {
    if (instruction.op == OpString) strings_[instruction[0]] = instruction.string_operand(1);
    if (instruction.op != OpName) continue;
    if (instruction.string_operand(1).starts_with("pumice_in_bounds(")) in_bounds_ = instruction[0];
    if (instruction.string_operand(1).starts_with("pumice_in_range(")) in_range_ = instruction[0];
  }
  if (!in_bounds_ || !in_range_) throw ShaderCompileError("the functions that check bounds are missing in the compiled shader");
}

uint32_t BoundsChecker::emit_conversion_to_uint(uint32_t id, uint32_t type, std::vector<uint32_t>& body) {
  if (type == uint_) return id;
  const auto& integer = module_.definition(type);
  const uint32_t result = new_id();
  append(body, integer[1] == 32 ? OpBitcast : integer[2] ? OpSConvert : OpUConvert, {uint_, result, id});
  return result;
}

AccessSite BoundsChecker::make_access_site(const AccessChain& chain, const IndexCheck& check, bool writes) const {
  const auto& integer = module_.definition(declarations_.get_value_type(check.index));
  return {get_display_name(sources_, file_), line_, chains_.format_path(chain, check.level), integer[2] != 0, writes};
}

uint32_t BoundsChecker::emit_check_call(const IndexCheck& check, uint32_t access, const AccessChain& chain, const IdMap& local,
                                        std::vector<uint32_t>& body) {
  const uint32_t index = emit_conversion_to_uint(map_id(check.index, local), declarations_.get_value_type(check.index), body),
                 ok = new_id();
  const uint32_t length = check.count    ? get_constant_id(check.count)
                          : check.length ? emit_conversion_to_uint(check.length, declarations_.get_value_type(check.length), body)
                                         : get_constant_id(UINT32_MAX);
  if (check.uses_bound_range)
    append(body, OpFunctionCall,
           {bool_, ok, in_range_, get_constant_id(access), index,
            get_constant_id(static_cast<uint32_t>(chains_.find_binding_index(chain.variable))), get_constant_id(check.offset),
            get_constant_id(check.stride), get_constant_id(check.scalar), length});
  else
    append(body, OpFunctionCall, {bool_, ok, in_bounds_, get_constant_id(access), index, length});
  return ok;
}

uint32_t BoundsChecker::emit_logical_and(uint32_t first, uint32_t second, std::vector<uint32_t>& body) {
  if (first == 0) return second;
  const uint32_t result = new_id();
  append(body, OpLogicalAnd, {bool_, result, first, second});
  return result;
}

uint32_t BoundsChecker::emit_checks(const Instruction& instruction, const AccessChain& chain, const std::vector<IndexCheck>& checks,
                                    const IdMap& local, std::vector<uint32_t>& body) {
  uint32_t ok = 0;
  for (const auto& check : checks) {
    const uint32_t in_bounds = emit_check_call(check, static_cast<uint32_t>(sites_.size()), chain, local, body);
    sites_.push_back(make_access_site(chain, check, instruction.op != OpLoad && instruction.op != OpAtomicLoad));
    ok = emit_logical_and(ok, in_bounds, body);
  }
  return ok;
}

// Returns whether a type has 8 or 16 bits and no arithmetic in this module: its values may only be loaded, stored and converted.
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

// Returns the 32-bit type that a storage-only scalar or vector converts from.
uint32_t BoundsChecker::get_32bit_type(uint32_t type) {
  const auto& definition = module_.definition(type);
  if (definition.op == OpTypeVector) return declarations_.declare_type(OpTypeVector, {get_32bit_type(definition[1]), definition[2]});
  if (definition.op == OpTypeFloat) return declarations_.declare_type(OpTypeFloat, {32});
  return declarations_.declare_type(OpTypeInt, {32, definition[2]});
}

// Loads a storage-only number. An out-of-bounds access reads element 0; the value is replaced by zero when it is converted or stored.
void BoundsChecker::append_clamped_load(const Instruction& instruction, const AccessChain& chain, const std::vector<IndexCheck>& checks,
                                        std::vector<uint32_t>& body) {
  AccessChain safe = chain;
  uint32_t all = 0;
  for (const auto& check : checks) {
    const uint32_t ok = emit_checks(instruction, chain, {check}, {}, body), index = chain.indices[check.level];
    const uint32_t type = declarations_.get_value_type(index);
    append(body, OpSelect, {type, safe.indices[check.level] = new_id(), ok, index, declarations_.declare_null_constant(type)});
    all = emit_logical_and(all, ok, body);
  }
  std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
  operands[2] = append_access_chain(safe, {}, body);
  append(body, instruction.op, operands);
  in_bounds_of_[instruction[1]] = all;
}

void BoundsChecker::append_if(uint32_t condition, const std::function<void()>& then, const std::function<void()>& otherwise,
                              std::vector<uint32_t>& body) {
  const uint32_t then_label = new_id(), merge = new_id(), else_label = otherwise ? new_id() : merge;
  append(body, OpSelectionMerge, {merge, 0});
  append(body, OpBranchConditional, {condition, then_label, else_label});
  append(body, OpLabel, {then_label});
  then();
  append(body, OpBranch, {merge});
  if (otherwise) {
    append(body, OpLabel, {else_label});
    otherwise();
    append(body, OpBranch, {merge});
  }
  append(body, OpLabel, {merge});
  block_ends_[block_] = merge;
}

// Guards the store in place by splitting its basic block. Without an access chain there is no index to check, but the stored value may come
// from an out-of-bounds read.
void BoundsChecker::append_storage_only_store(const Instruction& instruction, const AccessChain* chain,
                                              const std::vector<IndexCheck>& checks, std::vector<uint32_t>& body) {
  const auto value = in_bounds_of_.find(instruction[1]);
  const auto store = [&] {
    std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
    if (!checks.empty()) operands[0] = append_access_chain(*chain, {}, body);
    if (value == in_bounds_of_.end()) return append(body, instruction.op, operands);
    const uint32_t type = declarations_.get_value_type(instruction[1]);
    const uint32_t storage = module_.definition(declarations_.get_value_type(instruction[0]))[1];
    append_if(
        value->second, [&] { append(body, instruction.op, operands); }, [&] { append_zero_stores(type, storage, operands[0], body); },
        body);
  };
  if (checks.empty()) return store();
  append_if(emit_checks(instruction, *chain, checks, {}, body), store, nullptr, body);
}

// Stores zeros, converted from 32 bits, because a module must not have constants of a storage-only type.
void BoundsChecker::append_zero_stores(uint32_t type, uint32_t storage, uint32_t pointer, std::vector<uint32_t>& body) {
  const auto& definition = module_.definition(type);
  const auto store_member = [&](uint32_t member_type, uint32_t index) {
    const uint32_t inner = new_id();
    append(body, OpAccessChain,
           {declarations_.declare_type(OpTypePointer, {storage, member_type}), inner, pointer, get_constant_id(index)});
    append_zero_stores(member_type, storage, inner, body);
  };
  if (definition.op == OpTypeStruct) {
    for (uint32_t member = 0; member + 1 < definition.size(); ++member) store_member(definition[member + 1], member);
  } else if (definition.op == OpTypeArray || definition.op == OpTypeMatrix) {
    const uint32_t count = definition.op == OpTypeArray ? module_.get_constant_value(definition[2]) : definition[2];
    for (uint32_t i = 0; i < count; ++i) {
      if (body.size() > kMaxCodeWords) throw ShaderCompileError("a store has too many elements for bounds checks");
      store_member(definition[1], i);
    }
  } else if (!is_storage_only(type)) {
    append(body, OpStore, {pointer, declarations_.declare_null_constant(type)});
  } else {
    const auto& scalar = definition.op == OpTypeVector ? module_.definition(definition[1]) : definition;
    const uint16_t convert = scalar.op == OpTypeFloat ? OpFConvert : scalar[2] ? OpSConvert : OpUConvert;
    const uint32_t zero = new_id();
    append(body, convert, {type, zero, declarations_.declare_null_constant(get_32bit_type(type))});
    append(body, OpStore, {pointer, zero});
  }
}

// Converts a storage-only number; yields zero if it was read out of bounds.
void BoundsChecker::append_conversion_or_zero(const Instruction& instruction, uint32_t ok, std::vector<uint32_t>& body) {
  const uint32_t type = instruction[0], value = new_id();
  std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
  operands[1] = value;
  append(body, instruction.op, operands);
  const auto& definition = module_.definition(type);
  if (definition.op == OpTypeVector) {
    const uint32_t is_in_bounds = ok;
    std::vector<uint32_t> words{declarations_.declare_type(OpTypeVector, {bool_, definition[2]}), ok = new_id()};
    words.insert(words.end(), definition[2], is_in_bounds);
    append(body, OpCompositeConstruct, words);
  }
  append(body, OpSelect, {type, instruction[1], ok, value, declarations_.declare_null_constant(type)});
}

// Rewrites an access to or a conversion of a storage-only type; returns false for other instructions.
bool BoundsChecker::rewrite_storage_only_access(const Instruction& instruction, std::vector<uint32_t>& body) {
  if (instruction.op == OpStore) {
    if (!is_storage_only(declarations_.get_value_type(instruction[1]))) return false;
    const AccessChain* chain = chains_.find(instruction[0]);
    const auto checks = chain ? chains_.find_checks(*chain) : std::vector<IndexCheck>{};
    append_storage_only_store(instruction, chain, checks, body);
    return true;
  }
  if (!is_conversion_or_extract(instruction.op)) return false;
  const auto value = in_bounds_of_.find(instruction[2]);
  if (value == in_bounds_of_.end()) return false;
  const uint16_t kind = module_.definition(instruction[0]).op;
  if (is_storage_only(instruction[0]) || kind == OpTypeStruct || kind == OpTypeArray || kind == OpTypeMatrix) {
    in_bounds_of_[instruction[1]] = value->second;
    return false;
  }
  append_conversion_or_zero(instruction, value->second, body);
  return true;
}

uint32_t BoundsChecker::append_access_chain(const AccessChain& chain, const IdMap& local, std::vector<uint32_t>& body) {
  const uint32_t pointer = new_id();
  std::vector<uint32_t> path{chain.pointer_type, pointer, chain.variable};
  for (const uint32_t index : chain.indices) path.push_back(map_id(index, local));
  append(body, OpAccessChain, path);
  return pointer;
}

// Updates the OpPhi parents that refer to split blocks, because these end under another label.
void BoundsChecker::fix_phi_parents(std::vector<uint32_t>& body) const {
  for (size_t at = 0; at < body.size(); at += body[at] >> 16) {
    if ((body[at] & 0xffff) != OpPhi) continue;
    for (size_t parent = at + 4; parent < at + (body[at] >> 16); parent += 2)
      if (const auto end = block_ends_.find(body[parent]); end != block_ends_.end()) body[parent] = end->second;
  }
}

// Generates a function that checks the indices and then performs the access. Appends the ids to pass to it to `arguments`.
uint32_t BoundsChecker::make_access_function(const Instruction& instruction, size_t pointer, const AccessChain& chain,
                                             const std::vector<IndexCheck>& checks, std::vector<uint32_t>& arguments) {
  const bool has_result = pointer != 0;
  const uint32_t result_type = has_result ? instruction[0] : void_;
  IdMap local;
  std::vector<uint32_t> types;
  const auto pass = [&](uint32_t id) {
    if (declarations_.is_global(id) || local.contains(id)) return;
    local[id] = new_id();
    arguments.push_back(id);
    types.push_back(declarations_.get_value_type(id));
  };
  for (const uint32_t index : chain.indices) pass(index);
  for (const auto& check : checks) pass(check.index);
  for (size_t i = pointer + 1; i < find_first_literal_operand(instruction); ++i) pass(instruction[i]);
  const uint32_t function = new_id(), entry = new_id(), then_label = new_id(), merge = new_id();
  std::vector<uint32_t> body;
  std::vector<uint32_t> signature{result_type};
  signature.insert(signature.end(), types.begin(), types.end());
  append(body, OpFunction, {result_type, function, 0, declarations_.declare_type(OpTypeFunction, signature)});
  for (size_t i = 0; i < types.size(); ++i) append(body, OpFunctionParameter, {types[i], local.at(arguments[i])});
  append(body, OpLabel, {entry});
  const uint32_t ok = emit_checks(instruction, chain, checks, local, body);
  append(body, OpSelectionMerge, {merge, 0});
  append(body, OpBranchConditional, {ok, then_label, merge});
  append(body, OpLabel, {then_label});
  const uint32_t target = append_access_chain(chain, local, body), value = has_result ? new_id() : 0;
  std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
  operands[pointer] = target;
  if (has_result) operands[1] = value;
  for (size_t i = pointer + 1; i < find_first_literal_operand(instruction); ++i) operands[i] = map_id(operands[i], local);
  append(body, instruction.op, operands);
  append(body, OpBranch, {merge});
  append(body, OpLabel, {merge});
  if (has_result) {
    const uint32_t result = new_id();
    append(body, OpPhi, {result_type, result, value, then_label, declarations_.declare_null_constant(result_type), entry});
    append(body, OpReturnValue, {result});
  } else {
    append(body, OpReturn, {});
  }
  append(body, OpFunctionEnd, {});
  functions_.insert(functions_.end(), body.begin(), body.end());
  return function;
}

// Replaces an access with a call; returns false if there is nothing to check.
bool BoundsChecker::rewrite_instruction(const Instruction& instruction, std::vector<uint32_t>& body) {
  if (rewrite_storage_only_access(instruction, body)) return true;
  const auto pointer = find_pointer_operand(instruction.op);
  if (!pointer) return false;
  const AccessChain* chain = chains_.find(instruction[*pointer]);
  if (!chain) return false;
  const auto checks = chains_.find_checks(*chain);
  if (checks.empty()) return false;
  if (instruction.op == OpLoad && is_storage_only(instruction[0])) {
    append_clamped_load(instruction, *chain, checks, body);
    return true;
  }
  std::vector<uint32_t> arguments;
  const uint32_t function = make_access_function(instruction, *pointer, *chain, checks, arguments);
  std::vector<uint32_t> call{*pointer ? instruction[0] : void_, *pointer ? instruction[1] : new_id(), function};
  call.insert(call.end(), arguments.begin(), arguments.end());
  append(body, OpFunctionCall, call);
  return true;
}

std::vector<uint32_t> BoundsChecker::run() {
  std::vector<uint32_t> head(words_.begin(), words_.begin() + kHeaderWords), body;
  bool in_function = false;
  for (const auto& instruction : module_.instructions()) {
    in_function = in_function || instruction.op == OpFunction;
    if (instruction.op == OpLabel) block_ = instruction[0];
    if (instruction.op == OpLine) file_ = strings_[instruction[0]], line_ = instruction[1];
    chains_.add_instruction(instruction);
    if (rewrite_instruction(instruction, body)) continue;
    append(in_function ? body : head, instruction.op, {instruction.operands.begin(), instruction.operands.end()});
  }
  fix_phi_parents(body);
  body.insert(body.end(), functions_.begin(), functions_.end());
  return declarations_.assemble_module(std::move(head), body);
}

}  // namespace

void assign_debug_bindings(std::vector<uint32_t>& spirv) {
  const Module module(spirv);
  std::map<uint32_t, bool> is_engine_binding;  // keyed by variable id; only variables with a binding
  uint32_t next = 0;
  for (const auto& instruction : module.instructions()) {
    if (instruction.op != OpVariable) continue;
    const auto binding = module.find_decoration(instruction[1], Binding);
    if (!binding) continue;
    const bool is_engine = module.name(module.definition(instruction[0])[2]).starts_with("pumice_");
    is_engine_binding[instruction[1]] = is_engine;
    if (!is_engine) next = std::max(next, *binding + 1);
  }
  for (const auto& instruction : module.instructions()) {
    if (instruction.op != OpDecorate || instruction[1] != Binding || !is_engine_binding[instruction[0]] || instruction.size() < 3) continue;
    spirv[static_cast<size_t>(&instruction.operands[2] - spirv.data())] = next++;
  }
}

std::vector<AccessSite> add_bounds_checks(std::vector<uint32_t>& spirv, const SourceSet& sources) {
  BoundsChecker checker(spirv, sources);
  spirv = checker.run();
  return checker.take_sites();
}

}  // namespace pumice
