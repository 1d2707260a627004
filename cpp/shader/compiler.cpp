#include "shader/compiler.h"

#include <algorithm>
#include <cctype>
#include <climits>
#include <memory>

#include "core/error.h"
#include "shader/debug/bounds.h"
#include "shader/debug/debug_text.h"
#include "shader/debug/guard.h"
#include "shader/text/diagnostics.h"
#include "shader/text/glslang_loader.h"
#include "shader/text/limits.h"
#include "shader/text/tokens.h"

namespace pumice {
namespace {

constexpr std::string_view kVersion = "450";

std::string version_text(const SourceSet& sources) {
  const SourceFile& file = sources.files().front();
  const auto& line = file.facts->version;
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
std::string without_version(const SourceFile& file) {
  std::string text = file.text;
  if (!text.ends_with('\n')) text += '\n';  // glslang's preprocessor fails at a string that ends within a line
  const auto& line = file.facts->version;
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

struct IncludeSearch {
  const SourceSet& sources;
  std::string message;  // the reason why the last include was not found
};

bool find_include(void* user, const char* path, const char* includer, PumiceText* name, PumiceText* text) {
  auto& search = *static_cast<IncludeSearch*>(user);
  const SourceSet& sources = search.sources;
  // glslang names the first part of the text, not the user's file, as the outermost includer.
  const size_t from = sources.by_alias(includer).value_or(0);
  const auto file = sources.find(path, from);
  if (!file) {
    search.message = sources.missing(path, from);
    *text = {search.message.data(), search.message.size()};
    return false;
  }
  const SourceFile& found = sources.files()[*file];
  *name = {found.alias.data(), found.alias.size()};
  *text = {found.text.data(), found.text.size()};
  return true;
}

// One run of glslang over the same sources and for the same target. Throws ShaderCompileError with its messages.
class Run {
 public:
  // `debug` has the texts that are compiled, where it is wanted; messages are about the sources as they were given.
  // `depth`: what the texts nest at most.
  Run(const SourceSet& sources, const DebugText& debug, const ShaderOptions& options, size_t depth)
      : sources_(sources), debug_(debug), options_(options), search_{debug.sources(), {}}, stack_bytes_(stack_for(depth)) {}

  std::string preprocess(const std::vector<Part>& parts) {
    const Result result = run(parts, true);
    return std::string(result->text.text, result->text.bytes);
  }

  std::vector<uint32_t> compile(const std::vector<Part>& parts) {
    const Result result = run(parts, false);
    warnings_ = diagnostics(*result).warnings;
    return {result->spirv, result->spirv + result->words};
  }

  std::vector<std::string> take_warnings() { return std::move(warnings_); }

 private:
  // Only what is used takes memory, but all of it is address space, of which a process may have little.
  static size_t stack_for(size_t depth) {
    constexpr size_t kLeast = size_t{4} << 20, kMost = size_t{256} << 20;
    return std::min(kLeast + depth * ((kMost - kLeast) / kMaxSourceDepth), kMost);
  }

  Diagnostics diagnostics(const PumiceGlslangResult& result) const {
    const std::string_view log(result.log.text, result.log.bytes);
    return parse_log(debug_.wanted() ? debug_.translate(log) : std::string(log), sources_);
  }

  Result run(const std::vector<Part>& parts, bool preprocess) {
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
    const PumiceGlslangRequest request{
        texts.data(), bytes.data(), names.data(), static_cast<int>(parts.size()), options_.vulkan_minor, preprocess, options_.debug,
        find_include, &search_,     stack_bytes_};
    Result result(glslang().run(&request), glslang().release);
    if (result && result->missing_bytes == 0) {
      if (!result->ok) throw compile_error(diagnostics(*result).errors);
      return result;
    }
    const size_t missing = result ? result->missing_bytes : stack_bytes_;
    throw OutOfMemoryError(sources_.files().front().name + ": the shader compiler needs some " + std::to_string(missing >> 20) +
                           " MiB of the process's address space, " + std::to_string(stack_bytes_ >> 20) +
                           " MiB of stack for this text, and was refused them");
  }

  const SourceSet& sources_;
  const DebugText& debug_;
  const ShaderOptions& options_;
  IncludeSearch search_;
  size_t stack_bytes_;
  std::vector<std::string> warnings_;
};

void check_extensions(const ShaderOptions& options) {
  std::vector<std::string> missing = missing_extensions(options.storage);
  for (std::string& extension : missing)
    extension = "storage " + std::string(name(options.storage)) + " needs the GLSL extension " + extension + ", which glslang " +
                std::string(glslang_version()) + " lacks";
  if (!missing.empty()) throw UnsupportedError(missing);
}

// Whether a shader may lack a local size. In the compiled shader a local size of 1 looks the same whether it was declared or left out: only
// the text tells.
bool may_lack_local_size(const Interface& interface) {
  const auto& id = interface.local_size_id;
  return interface.local_size == std::array<uint32_t, 3>{1, 1, 1} && !id[0] && !id[1] && !id[2];
}

}  // namespace

ShaderHead shader_head(const SourceSet& sources, const ShaderOptions& options, const Macros& macros) {
  std::string given = macro_text(macros);
  std::vector texts{std::make_shared<const TextFacts>(given)};
  for (const auto& file : sources.files()) texts.push_back(file.facts);
  std::string before = version_text(sources) + preamble(options, texts);
  return {std::move(before), std::move(given)};
}

CompiledShader compile_to_spirv(const SourceSet& sources, const ShaderHead& head, const ShaderOptions& options,
                                const std::optional<LocalSize>& local_size) {
  check_extensions(options);
  const TextSize size = check_size(sources, head);
  DebugText debug(sources, head.macros, options);
  const SourceFile& user = debug.sources().files().front();
  const Part preamble{"<preamble>", head.version_and_preamble}, macros{"<macros>", debug.macros()}, own{user.alias, without_version(user)};
  // Text that is put before the user's own ends with this, so that messages count the user's lines.
  const std::string first_line = "#line 1 \"" + user.alias + "\"\n";
  Run run(sources, debug, options, debug.wanted() ? kMaxSourceDepth : size.depth);
  if (size.may_be_deep) check_parts(run.preprocess({preamble, macros, {"<limits>", first_line}, own}), sources);
  CompiledShader result;
  std::vector<Part> parts{preamble, macros, own};
  if (local_size) {
    if (declares_local_size(run.preprocess({preamble, macros, {"<local size>", first_line}, own})))
      throw compile_error({sources.files().front().name + ": a local size is given and the text declares its own; expected one of them"});
    parts.insert(parts.end() - 1, {"<local size>", declaration(*local_size) + first_line});
  }
  if (debug.wanted()) {
    if (!local_size) parts.insert(parts.end() - 1, {"<debug>", first_line});
    parts = {{"<debug>", debug.rewrite(run.preprocess(parts))}};
  }
  result.spirv = run.compile(parts);
  const Interface plain = reflect(result.spirv);
  if (std::ranges::find(plain.capabilities, "PhysicalStorageBufferAddresses") != plain.capabilities.end())
    throw UnsupportedError("buffer references (GL_EXT_buffer_reference): arrays are bound by name, each in a buffer block of its own");
  // Such a shader is compiled a second time, with a guard: only its SPIR-V tells whether its invocations work together, which forbids one.
  if (options.guard && (local_size || may_lack_local_size(plain))) {
    const Part before{"<guard>", guard_prologue() + first_line}, after{"<guard>", guard_epilogue()};
    std::string text = run.preprocess({preamble, macros, before, own, after});
    const bool is_declared = declares_local_size(text);
    const std::string together = is_declared ? "" : cooperation(result.spirv, text, sources);
    if (!local_size) result.lacks_local_size = together;
    if (!is_declared && together.empty()) {
      if (debug.wanted()) text = debug.rewrite(text);
      result.spirv = run.compile({{"<guard>", guarded_source(text, plain, sources, local_size)}});
      result.guarded = true;
    }
  }
  result.warnings = run.take_warnings();
  if (debug.wanted()) {
    result.debug.formats = debug.formats();
    place_debug_bindings(result.spirv);
    if (options.debug) result.debug.accesses = check_bounds(result.spirv, sources);
  }
  return result;
}

std::string disassembled(const std::vector<uint32_t>& spirv) {
  const Result result(glslang().disassemble(spirv.data(), spirv.size()), glslang().release);
  return {result->text.text, result->text.bytes};
}

}  // namespace pumice
