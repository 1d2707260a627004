// From a shader's text to its SPIR-V: the cache, the parts of the source, glslang, and messages in the user's own lines.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "core/error.h"
#include "core/hash.h"
#include "shader/embedded_shaders.h"
#include "shader/glslang_loader.h"
#include "shader/guard.h"
#include "shader/shader.h"
#include "shader/shader_cache.h"
#include "shader/tokens.h"

namespace pumice {
namespace {

constexpr size_t kMaxIncludeDepth = 32, kMaxIncludes = 256;

// The texts of all includes, by the path they are asked for; found before compiling, because the cache key depends on them.
class Includes {
 public:
  Includes(const IncludeLoader& loader, const std::string& source) : loader_(loader) { scan(source, 0); }
  const std::map<std::string, std::string>& texts() const { return texts_; }

 private:
  void scan(const std::string& source, size_t depth) {
    if (depth > kMaxIncludeDepth) throw ShaderCompileError("#include is nested more than " + std::to_string(kMaxIncludeDepth) + " deep");
    for (const auto& line : directives(tokenize(source), "include")) {
      if (line.size() < 2 || line[1].kind != TokenKind::string || line[1].text.size() < 2) continue;  // glslang says what is wrong
      const std::string path(line[1].text.substr(1, line[1].text.size() - 2));
      if (texts_.contains(path)) continue;
      if (texts_.size() >= kMaxIncludes) throw ShaderCompileError("more than " + std::to_string(kMaxIncludes) + " files are included");
      auto text = loader_ ? loader_(path) : std::nullopt;
      if (!text) continue;
      const auto added = texts_.emplace(path, std::move(*text)).first;
      scan(added->second, depth + 1);
    }
  }

  const IncludeLoader& loader_;
  std::map<std::string, std::string> texts_;
};

bool find_include(void* user, const char* path, const char*, PumiceText* name, PumiceText* text) {
  const auto& texts = static_cast<const Includes*>(user)->texts();
  const auto found = texts.find(path);
  if (found == texts.end()) return false;
  *name = {found->first.data(), found->first.size()};
  *text = {found->second.data(), found->second.size()};
  return true;
}

// The text with its #version line blanked, and that version.
struct Versioned {
  std::string text;
  std::string version = "450";
};

Versioned take_version(const std::string& source, const std::vector<Token>& tokens) {
  Versioned result{source};
  const auto lines = directives(tokens, "version");
  if (lines.empty()) return result;
  if (lines[0].size() > 1) result.version = lines[0][1].text;
  const size_t begin = source.rfind('#', lines[0][0].offset), end = std::min(source.find('\n', lines[0][0].offset), source.size());
  std::fill(result.text.begin() + static_cast<std::ptrdiff_t>(begin), result.text.begin() + static_cast<std::ptrdiff_t>(end), ' ');
  return result;
}

std::string macro_text(const Macros& macros) {
  std::string text;
  for (const auto& [macro, value] : macros) {
    if (macro.find('\n') != std::string::npos || value.find('\n') != std::string::npos) throw ShaderCompileError("macro '" + macro + "': the definition has more than one line");
    text += "#define " + macro + " " + value + "\n";
  }
  return text;
}

std::string key_of(const std::string& source, const ShaderOptions& options, const Macros& macros, const Includes& includes) {
  Sha256 hash;
  hash.field("pumice shader 1").field(glslang_version()).field(preamble(options)).field(static_cast<uint64_t>(options.vulkan_minor));
  for (const auto& [macro, value] : macros) hash.field(macro).field(value);
  hash.field(source);
  for (const auto& [path, text] : includes.texts()) hash.field(path).field(text);
  return hash.hex();
}

struct Message {
  bool is_error;
  std::string text;
};

// "ERROR: name:12: 'x' : undeclared identifier" -> "name:12: error: 'x' : undeclared identifier", the line and a caret.
Message readable(std::string_view line, const std::string& name, const std::string& source) {
  const bool is_error = line.starts_with("ERROR: ");
  std::string_view rest = line.substr(line.find(": ") + 2);
  const std::string prefix = name + ":";
  if (!rest.starts_with(prefix)) return {is_error, std::string(rest)};
  rest.remove_prefix(prefix.size());
  const size_t digits = rest.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos || rest[digits] != ':') return {is_error, std::string(line)};
  const size_t number = std::stoul(std::string(rest.substr(0, digits)));
  const std::string_view said = rest.substr(digits + 1);
  const std::string_view shown = line_text(source, number);
  std::string text = name + ":" + std::to_string(number);
  size_t column = std::string_view::npos;
  if (const size_t open = said.find('\''), close = said.find('\'', open + 1); open != std::string_view::npos && close != std::string_view::npos && close > open + 1)
    column = shown.find(said.substr(open + 1, close - open - 1));
  if (column != std::string_view::npos) text += ":" + std::to_string(column + 1);
  text += (is_error ? ": error:" : ": warning:") + std::string(said);
  if (!shown.empty()) text += "\n  " + std::string(shown);
  if (column != std::string_view::npos) text += "\n  " + std::string(column, ' ') + "^";
  return {is_error, std::move(text)};
}

std::vector<Message> messages_of(const PumiceText& log, const std::string& name, const std::string& source) {
  std::vector<Message> messages;
  std::string_view rest(log.text, log.bytes);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const bool summary = line.find("compilation errors.") != std::string_view::npos;
    if ((line.starts_with("ERROR: ") || line.starts_with("WARNING: ")) && !summary) messages.push_back(readable(line, name, source));
  }
  return messages;
}

std::shared_ptr<const Shader> compile_now(const std::string& source, const std::string& name, const ShaderOptions& options, const Macros& macros, const Includes& includes) {
  const auto tokens = tokenize(source);
  const Versioned versioned = take_version(source, tokens);
  const Guard guard = make_guard(versioned.text, name, tokens);
  const std::string before = "#version " + versioned.version + "\n" + preamble(options) + macro_text(macros) + guard.before;
  const char* texts[] = {before.data(), guard.text.data(), guard.after.data()};
  const int bytes[] = {static_cast<int>(before.size()), static_cast<int>(guard.text.size()), static_cast<int>(guard.after.size())};
  const char* names[] = {"preamble", name.c_str(), "guard"};
  PumiceGlslangRequest request{};
  request.texts = texts;
  request.bytes = bytes;
  request.names = names;
  request.count = 3;
  request.vulkan_minor = options.vulkan_minor;
  request.include = find_include;
  request.user = const_cast<Includes*>(&includes);
  const std::unique_ptr<const PumiceGlslangResult, void (*)(const PumiceGlslangResult*)> result(glslang().run(&request), glslang().release);
  if (!result) throw Error("out of memory in the shader compiler");
  auto shader = std::make_shared<Shader>();
  shader->name = name;
  std::string errors;
  for (auto& message : messages_of(result->log, name, source)) {
    if (message.is_error) errors += (errors.empty() ? "" : "\n") + message.text;
    else shader->warnings.push_back(std::move(message.text));
  }
  if (!result->ok) throw ShaderCompileError(errors.empty() ? name + ": " + std::string(result->log.text, result->log.bytes) : errors);
  shader->spirv.assign(result->spirv, result->spirv + result->words);
  shader->interface = reflect(shader->spirv);
  return shader;
}

}  // namespace

std::shared_ptr<const Shader> compile(const std::string& source, const std::string& name, const ShaderOptions& options, const Macros& macros, const IncludeLoader& loader) {
  const Includes includes(loader, source);
  const std::string key = key_of(source, options, macros, includes);
  auto& cache = ShaderCache::instance();
  if (auto found = cache.find(key, name)) return found;
  return cache.add(key, compile_now(source, name, options, macros, includes));
}

CompileCounts compile_counts() { return ShaderCache::instance().counts(); }

}  // namespace pumice
