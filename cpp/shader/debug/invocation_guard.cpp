#include "shader/debug/invocation_guard.h"

#include <algorithm>
#include <array>
#include <optional>

#include "shader/source/compiler_diagnostics.h"
#include "shader/source/glsl_tokens.h"
#include "shader/spirv/spirv.h"

namespace pumice {
namespace {

constexpr std::string_view kUserMain = "pumice_user_main", kInvocation = "pumice_invocation";
constexpr std::string_view kMembers = " uint pumice_threads_x, pumice_threads_y, pumice_threads_z; ";
// Default workgroup size, until the engine specializes it.
constexpr std::string_view kDefaultLocalSize = "64";
// glslang's largest constant_id. The guard allocates ids downwards from it, since users start at 0.
constexpr uint32_t kLastSpecId = 2046;

// A kind of collective operation of a workgroup or subgroup, and a predicate for source words that indicate it.
struct CollectiveKind {
  std::string_view description;
  bool (*matches_word)(std::string_view word);
};

constexpr CollectiveKind kBarrier{"barrier()", [](std::string_view word) { return word == "barrier" || word == "controlBarrier"; }};
constexpr CollectiveKind kShared{"shared memory", [](std::string_view word) { return word == "shared"; }};
constexpr CollectiveKind kSubgroup{"subgroup operations", [](std::string_view word) {
                                     return word.starts_with("subgroup") || word.starts_with("gl_Subgroup") ||
                                            word.starts_with("gl_NumSubgroups") || word.starts_with("coopMat") ||
                                            word.starts_with("coopmat") || word.ends_with("coopmatNV");
                                   }};

bool is_subgroup_capability(uint32_t number) {
  const std::string name = spirv::get_capability(number).name;
  return name.starts_with("GroupNonUniform") || name.starts_with("Subgroup") || name.starts_with("CooperativeMatrix");
}

const CollectiveKind* find_collective(const spirv::Instruction& instruction) {
  if (instruction.op == spirv::OpControlBarrier) return &kBarrier;
  if (instruction.op == spirv::OpVariable && instruction[2] == spirv::kWorkgroup) return &kShared;
  if (instruction.op == spirv::OpCapability && is_subgroup_capability(instruction[0])) return &kSubgroup;
  return nullptr;
}

std::string format_collective_error(const CollectiveKind& found, std::string_view preprocessed, const SourceSet& sources) {
  const std::string text = std::string(found.description) +
                           " without a local size: declare one, such as layout(local_size_x = 64) in; or give local_size= (the engine may "
                           "skip invocations of a workgroup if it chooses the size)";
  const auto lines = map_source_lines(preprocessed);
  for (const Token& token : tokenize(preprocessed)) {
    const auto& location = lines.at(token.line - 1);
    // Source without a file name is part of the preamble.
    if (token.kind == TokenKind::word && found.matches_word(token.text) && !location.file.empty())
      return format_message_at(sources, location.file, location.line, token.text, text);
  }
  return sources.files().front().name + ": " + text;
}

// A push-constant block: layout(push_constant) uniform Name { ... } instance;
struct PushConstantBlock {
  size_t close = 0;      // offset of the closing brace
  std::string instance;  // empty: members have global scope
};

// Parses a declaration from its `push_constant` token; nullopt if it has no block.
std::optional<PushConstantBlock> parse_push_constant_block(const std::vector<Token>& tokens, size_t at) {
  while (at < tokens.size() && tokens[at].text != "{" && tokens[at].text != ";") ++at;
  if (at >= tokens.size() || tokens[at].text == ";") return {};
  while (at < tokens.size() && tokens[at].text != "}") ++at;  // block members have no braces
  if (at + 1 >= tokens.size()) return {};
  PushConstantBlock block{tokens[at].offset, {}};
  if (tokens[at + 1].kind == TokenKind::word) block.instance = tokens[at + 1].text;
  return block;
}

std::optional<PushConstantBlock> find_push_constant_block(std::string_view text, const SourceSet& sources) {
  std::optional<PushConstantBlock> found;
  const auto tokens = tokenize(text);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].directive != 0 || tokens[i].text != "push_constant") continue;
    const auto block = parse_push_constant_block(tokens, i);
    if (block && found)
      throw make_compile_error(
          {sources.files().front().name +
           ": two push constant blocks without a local size: declare one, such as layout(local_size_x = 64) in; (the engine adds the "
           "number of invocations to one block)"});
    if (block) found = block;
  }
  return found;
}

// Returns the highest unused constant ids: three for the local size, one for grid folding.
std::array<uint32_t, 4> find_free_spec_ids(const ShaderInterface& interface) {
  std::array<uint32_t, 4> ids{};
  uint32_t next = kLastSpecId;
  for (auto& id : ids) {
    while (std::ranges::find(interface.spec_constants, next, &SpecConstant::id) != interface.spec_constants.end()) --next;
    id = next--;
  }
  return ids;
}

// Returns whether the grid can be folded: the shader reads only its invocation id, which can be replaced, and no workgroup id.
bool can_fold_grid(std::string_view preprocessed) {
  const auto tokens = tokenize(preprocessed);
  return std::ranges::none_of(tokens,
                              [](const Token& token) { return token.text == "gl_WorkGroupID" || token.text == "gl_NumWorkGroups"; });
}

// Replaces gl_GlobalInvocationID with pumice_invocation.
std::string replace_invocation_id(std::string_view preprocessed) {
  std::string text;
  size_t copied_end = 0;
  for (const Token& token : tokenize(preprocessed)) {
    if (token.kind != TokenKind::word || token.text != "gl_GlobalInvocationID") continue;
    text.append(preprocessed, copied_end, token.offset - copied_end).append(kInvocation);
    copied_end = token.offset + token.text.size();
  }
  return text.append(preprocessed, copied_end);
}

// Declares the invocation id before all other globals, because their initializers may use it.
std::string make_invocation_declaration(const ShaderInterface& interface) {
  return "layout(constant_id = " + std::to_string(find_free_spec_ids(interface)[3]) +
         ") const bool GRID_FOLDED_1 = false;\nuvec3 pumice_invocation_id();\nuvec3 " + std::string(kInvocation) +
         " = pumice_invocation_id();\n";
}

constexpr std::string_view kInvocationFunction = R"(
uvec3 pumice_invocation_id() {
  if (!GRID_FOLDED_1) return gl_GlobalInvocationID;
  uint pumice_group = gl_WorkGroupID.x + gl_NumWorkGroups.x * (gl_WorkGroupID.y + gl_NumWorkGroups.y * gl_WorkGroupID.z);
  if (pumice_group > 0xffffffffu / gl_WorkGroupSize.x) return uvec3(0xffffffffu);
  return uvec3(pumice_group * gl_WorkGroupSize.x, 0u, 0u) + gl_LocalInvocationID;
}
)";

std::string make_guarded_main(const std::string& instance, std::string_view invocation) {
  // Do not use built-in functions: a block member may have the same name.
  const auto is_within = [&](const char* axis) {
    return std::string(invocation) + "." + axis + " < " + (instance.empty() ? "" : instance + ".") + "pumice_threads_" + axis;
  };
  return "void main() {\n  if (" + is_within("x") + " && " + is_within("y") + " && " + is_within("z") + ") " + std::string(kUserMain) +
         "();\n}\n";
}

// Returns the offset after the leading #version and #extension lines, which must come first.
size_t find_offset_after_directives(std::string_view text) {
  size_t at = 0;
  while (text.substr(at).starts_with("#version") || text.substr(at).starts_with("#extension") || text.substr(at).starts_with("\n"))
    at = std::min(text.find('\n', at), text.size() - 1) + 1;
  return at;
}

}  // namespace

bool declares_local_size(std::string_view preprocessed) {
  int depth = 0;  // parenthesis depth within layout(); outside of it, local_size_x may be a variable
  bool is_layout = false;
  for (const Token& token : tokenize(preprocessed)) {
    if (token.directive != 0) continue;
    if (depth > 0 && token.kind == TokenKind::word && token.text.starts_with("local_size_")) return true;
    if (token.text == "(" && (is_layout || depth > 0)) ++depth;
    if (token.text == ")" && depth > 0) --depth;
    is_layout = token.text == "layout";
  }
  return false;
}

bool invocations_cooperate(const std::vector<uint32_t>& spirv) {
  return std::ranges::any_of(spirv::parse_instructions(spirv),
                             [](const auto& instruction) { return find_collective(instruction) != nullptr; });
}

std::string make_guard_error(const std::vector<uint32_t>& spirv, std::string_view preprocessed, const SourceSet& sources) {
  for (const auto& instruction : spirv::parse_instructions(spirv))
    if (const auto* found = find_collective(instruction)) return format_collective_error(*found, preprocessed, sources);
  return {};
}

std::string make_local_size_declaration(const LocalSize& size) {
  return "layout(local_size_x = " + std::to_string(size[0]) + ", local_size_y = " + std::to_string(size[1]) +
         ", local_size_z = " + std::to_string(size[2]) + ") in;\n";
}

std::string make_guard_prologue() {
  return "#define main " + std::string(kUserMain) + "\n";
}
std::string make_guard_epilogue() {
  return "\n#undef main\n#line 1 \"<guard>\"\n";
}

std::string make_spec_constant_local_size(const ShaderInterface& interface) {
  const auto ids = find_free_spec_ids(interface);
  return "layout(local_size_x = " + std::string(kDefaultLocalSize) + ", local_size_x_id = " + std::to_string(ids[0]) +
         ", local_size_y_id = " + std::to_string(ids[1]) + ", local_size_z_id = " + std::to_string(ids[2]) + ") in;\n";
}

std::string make_guarded_source(std::string_view preprocessed, const ShaderInterface& unguarded, const SourceSet& sources,
                                const std::string& declaration) {
  const bool folds_grid = can_fold_grid(preprocessed);
  std::string text = folds_grid ? replace_invocation_id(preprocessed) : std::string(preprocessed);
  const auto block = find_push_constant_block(text, sources);
  if (block)
    text.insert(block->close, kMembers);
  else
    text += "layout(push_constant) uniform pumice_parameter {" + std::string(kMembers) + "} pumice_p;\n";
  if (folds_grid) text += kInvocationFunction;
  text += make_guarded_main(block ? block->instance : "pumice_p", folds_grid ? kInvocation : "gl_GlobalInvocationID");
  text.insert(find_offset_after_directives(text), declaration + (folds_grid ? make_invocation_declaration(unguarded) : ""));
  return text;
}

}  // namespace pumice
