#include "shader/compiler.h"

#include <algorithm>
#include <climits>
#include <memory>

#include "core/error.h"
#include "shader/diagnostics.h"
#include "shader/glslang_loader.h"
#include "shader/guard.h"
#include "shader/tokens.h"

namespace pumice {
namespace {

constexpr std::string_view kVersion = "450";

// The tokens of a leading `#version` line, from `version` on; empty where there is none.
std::vector<Token> version_line(std::string_view source) {
  const auto lines = directives(tokenize(source), "version");
  return lines.empty() ? std::vector<Token>{} : lines.front();
}

std::string version_text(const SourceSet& sources) {
  const SourceFile& file = sources.files().front();
  const auto line = version_line(file.text);
  if (line.empty()) return "#version " + std::string(kVersion) + "\n";
  const std::string number(line.size() > 1 ? line[1].text : ""), profile(line.size() > 2 ? line[2].text : "");
  const bool known = number.size() == 3 && number >= kVersion && number.find_first_not_of("0123456789") == std::string::npos &&
                     (profile.empty() || profile == "core");
  if (!known)
    throw compile_error({message_at(sources, file.alias, line.front().line, "version",
                                    "expected #version 450 or 460, or none, given '" + number + " " + profile + "'")});
  return "#version " + number + " " + profile + "\n";
}

// The user's text with its #version line, which now stands before the preamble, blanked out.
std::string without_version(std::string text) {
  if (!text.ends_with('\n')) text += '\n';  // glslang's preprocessor fails at a string that ends within a line
  const auto line = version_line(text);
  if (line.empty()) return text;
  const size_t hash = text.rfind('#', line.front().offset), end = line.back().offset + line.back().text.size();
  std::replace_if(
      text.begin() + static_cast<ptrdiff_t>(hash), text.begin() + static_cast<ptrdiff_t>(end), [](char c) { return c != '\n'; }, ' ');
  return text;
}

// A name, or a name with parameters: "TILE", "EPILOGUE(x)".
void check_macro(const std::string& name) {
  const auto tokens = tokenize(name);
  const bool word = !tokens.empty() && tokens[0].kind == TokenKind::word && tokens[0].offset == 0;
  const bool function =
      tokens.size() > 2 && tokens[1].text == "(" && tokens[1].offset == tokens[0].text.size() && tokens.back().text == ")";
  if (!word || (tokens.size() > 1 && !function))
    throw ShaderCompileError("a macro's name is a word, or a word and parameters, as TILE or EPILOGUE(x): given '" + name + "'");
}

std::string macro_text(const Macros& macros) {
  std::string text;
  for (const auto& [name, value] : macros) {
    check_macro(name);
    text += "#define " + name + " ";
    for (const char c : value) text += c == '\n' ? "\\\n" : std::string(1, c);
    text += "\n";
  }
  return text;
}

// A part of the text that the compiler sees, under the name that its messages use.
struct Part {
  std::string name, text;
};

using Result = std::unique_ptr<const PumiceGlslangResult, void (*)(const PumiceGlslangResult*)>;

bool find_include(void* user, const char* path, const char* includer, PumiceText* name, PumiceText* text) {
  const auto& sources = *static_cast<const SourceSet*>(user);
  // glslang names the first part of the text, not the user's file, as the outermost includer.
  const auto file = sources.find(path, sources.by_alias(includer).value_or(0));
  if (!file) return false;
  const SourceFile& found = sources.files()[*file];
  *name = {found.alias.data(), found.alias.size()};
  *text = {found.text.data(), found.text.size()};
  return true;
}

// One run of glslang over the same sources and for the same target. Throws ShaderCompileError with its messages.
class Run {
 public:
  Run(const SourceSet& sources, int vulkan_minor) : sources_(sources), vulkan_minor_(vulkan_minor) {}

  std::string preprocess(const std::vector<Part>& parts) {
    const Result result = run(parts, true);
    return std::string(result->text.text, result->text.bytes);
  }

  std::vector<uint32_t> compile(const std::vector<Part>& parts) {
    const Result result = run(parts, false);
    warnings_ = parse_log({result->log.text, result->log.bytes}, sources_).warnings;
    return {result->spirv, result->spirv + result->words};
  }

  std::vector<std::string> take_warnings() { return std::move(warnings_); }

 private:
  Result run(const std::vector<Part>& parts, bool preprocess) const {
    std::vector<const char*> texts, names;
    std::vector<int> bytes;
    for (const auto& part : parts) {
      if (part.text.size() > INT_MAX)
        throw ShaderCompileError(sources_.files().front().name + ": a source of " + std::to_string(part.text.size()) +
                                 " bytes is too long");
      texts.push_back(part.text.data());
      names.push_back(part.name.c_str());
      bytes.push_back(static_cast<int>(part.text.size()));
    }
    const PumiceGlslangRequest request{texts.data(),  bytes.data(), names.data(), static_cast<int>(parts.size()),
                                       vulkan_minor_, preprocess,   find_include, const_cast<SourceSet*>(&sources_)};
    Result result(glslang().run(&request), glslang().release);
    if (!result->ok) throw compile_error(parse_log({result->log.text, result->log.bytes}, sources_).errors);
    return result;
  }

  const SourceSet& sources_;
  int vulkan_minor_;
  std::vector<std::string> warnings_;
};

void check_extensions(const ShaderOptions& options) {
  std::vector<std::string> missing = missing_extensions(options.storage);
  for (std::string& extension : missing)
    extension = "storage " + std::string(name(options.storage)) + " needs the GLSL extension " + extension + ", which glslang " +
                std::string(glslang_version()) + " lacks";
  if (!missing.empty()) throw UnsupportedError(missing);
}

// In the plain shader a local size of 1 may be declared or left out: only the text tells.
bool may_lack_local_size(const Interface& interface) {
  const auto& id = interface.local_size_id;
  return interface.local_size == std::array<uint32_t, 3>{1, 1, 1} && !id[0] && !id[1] && !id[2];
}

}  // namespace

ShaderHead shader_head(const SourceSet& sources, const ShaderOptions& options, const Macros& macros) {
  std::string given = macro_text(macros);
  std::vector<std::string_view> texts{given};
  for (const auto& file : sources.files()) texts.emplace_back(file.text);
  std::string before = version_text(sources) + preamble(options, texts);
  return {std::move(before), std::move(given)};
}

CompiledShader compile_to_spirv(const SourceSet& sources, const ShaderHead& head, const ShaderOptions& options) {
  check_extensions(options);
  const SourceFile& user = sources.files().front();
  const Part preamble{"<preamble>", head.version_and_preamble}, macros{"<macros>", head.macros},
      own{user.alias, without_version(user.text)};
  Run run(sources, options.vulkan_minor);
  CompiledShader result;
  result.spirv = run.compile({preamble, macros, own});
  const Interface plain = reflect(result.spirv);
  if (may_lack_local_size(plain)) {
    const Part before{"<guard>", guard_prologue() + "#line 1 \"" + user.alias + "\"\n"}, after{"<guard>", guard_epilogue()};
    const std::string text = run.preprocess({preamble, macros, before, own, after});
    if (!declares_local_size(text)) {
      refuse_cooperation(result.spirv, text, sources);
      result.spirv = run.compile({{"<guard>", guarded_source(text, plain, sources)}});
      result.guarded = true;
    }
  }
  result.warnings = run.take_warnings();
  return result;
}

}  // namespace pumice
