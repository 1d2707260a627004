#include "shader/guard.h"

#include <algorithm>
#include <optional>

#include "core/error.h"

namespace pumice {
namespace {

// Far from what anyone numbers by hand.
constexpr const char* kLocalSize = "layout(local_size_x_id = 1000000, local_size_y_id = 1000001, local_size_z_id = 1000002) in;\n";
constexpr const char* kMembers = " uint pumice_threads_x; uint pumice_threads_y; uint pumice_threads_z; ";

bool declares_local_size(const std::vector<Token>& tokens) {
  return std::any_of(tokens.begin(), tokens.end(), [](const Token& token) { return token.kind == TokenKind::word && token.text.starts_with("local_size_"); });
}

bool needs_whole_workgroups(const Token& token) {
  return token.kind == TokenKind::word && (token.text == "barrier" || token.text == "shared" || token.text == "groupMemoryBarrier" || token.text == "memoryBarrierShared" ||
                                           token.text.starts_with("subgroup") || token.text.starts_with("gl_Subgroup"));
}

void check(const std::string& source, const std::string& name, const std::vector<Token>& tokens) {
  const auto found = std::find_if(tokens.begin(), tokens.end(), [](const Token& token) { return token.directive == 0 && needs_whole_workgroups(token); });
  if (found == tokens.end()) return;
  throw ShaderCompileError(name + ":" + std::to_string(found->line) + ": error: '" + std::string(found->text) +
                           "' needs a declared workgroup: write layout(local_size_x = ...) in; and check the bounds yourself\n  " + std::string(line_text(source, found->line)));
}

// The user's push constant block: where its members end, and how they are reached ("p.", or "" without an instance name).
struct PushBlock {
  size_t end;
  std::string access;
};

std::optional<PushBlock> find_push_block(const std::vector<Token>& tokens) {
  auto at = std::find_if(tokens.begin(), tokens.end(), [](const Token& token) { return token.text == "push_constant"; });
  at = std::find_if(at, tokens.end(), [](const Token& token) { return token.text == "{"; });
  at = std::find_if(at, tokens.end(), [](const Token& token) { return token.text == "}"; });
  if (at == tokens.end()) return {};
  const auto next = std::next(at);
  const bool named = next != tokens.end() && next->kind == TokenKind::word;
  return PushBlock{at->offset, named ? std::string(next->text) + "." : ""};
}

}  // namespace

Guard make_guard(const std::string& source, const std::string& name, const std::vector<Token>& tokens) {
  if (declares_local_size(tokens)) return {"", source, ""};
  check(source, name, tokens);
  Guard guard{std::string(kLocalSize) + "#define main pumice_user_main\n", source, ""};
  std::string access = "pumice_launch.", block;
  if (const auto found = find_push_block(tokens)) {
    guard.text.insert(found->end, kMembers);
    access = found->access;
  } else {
    block = "layout(push_constant) uniform pumice_launch_block {" + std::string(kMembers) + "} pumice_launch;\n";
  }
  guard.after = "\n#undef main\n" + block + "void main() {\n  if (gl_GlobalInvocationID.x >= " + access + "pumice_threads_x || gl_GlobalInvocationID.y >= " + access +
                "pumice_threads_y || gl_GlobalInvocationID.z >= " + access + "pumice_threads_z) return;\n  pumice_user_main();\n}\n";
  return guard;
}

}  // namespace pumice
