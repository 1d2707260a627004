#include "shader/compiler.h"

#include <algorithm>
#include <cctype>
#include <climits>
#include <memory>

#include "core/error.h"
#include "shader/debug/bounds_checks.h"
#include "shader/debug/debug_instrumentation.h"
#include "shader/debug/thread_guard.h"
#include "shader/spirv/descriptor_sets.h"
#include "shader/source/diagnostics.h"
#include "shader/source/glslang_loader.h"
#include "shader/source/source_limits.h"
#include "shader/source/tokens.h"

namespace pumice {
namespace {

constexpr std::string_view kVersion = "450";

std::string version_text(const SourceSet& sources) {
  const SourceFile& file = sources.files().front();
  const auto& line = file.facts->version;
  if (line.empty()) return "#version " + std::string(kVersion) + "\n";
  const std::string number(line.size() > 1 ? line[1].text : ""), profile(line.size() > 2 ? line[2].text : "");
  const auto is_one_of = [&](std::initializer_list<std::string_view> versions) {
    return std::ranges::find(versions, number) != versions.end();
  };
  const bool is_core = profile.empty() || profile == "core";
  // Versions with compute shaders. Source for an older version, or for OpenGL ES, also compiles as 450.
  if ((is_core && is_one_of({"430", "440", "450"})) || (profile == "es" && is_one_of({"310", "320"})))
    return "#version " + std::string(kVersion) + "\n";
  if (is_core && number == "460") return "#version 460\n";
  throw compile_error({message_at(sources, file.alias, line.front().line, "version",
                                  "expected #version 430 to 460, 310 es, 320 es, or none, given '" + number + " " + profile + "'")});
}

// Returns the user's source with its #version line blanked out; that line now precedes the preamble.
std::string without_version(const SourceFile& file) {
  std::string text = file.text;
  if (!text.ends_with('\n')) text += '\n';  // glslang's preprocessor fails on a string that ends mid-line
  const auto& line = file.facts->version;
  if (line.empty()) return text;
  const size_t hash = text.rfind('#', line.front().offset), end = line.back().offset + line.back().text.size();
  std::replace_if(
      text.begin() + static_cast<ptrdiff_t>(hash), text.begin() + static_cast<ptrdiff_t>(end), [](char c) { return c != '\n'; }, ' ');
  return text;
}

// Checks that it is a name, or a name with parameters: "TILE", "EPILOGUE(x)".
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

// A part of the source that the compiler sees, with its name for messages.
struct Part {
  std::string name, text;
};

using Result = std::unique_ptr<const PumiceGlslangResult, void (*)(const PumiceGlslangResult*)>;

struct IncludeSearch {
  const SourceSet& sources;
  std::string message;  // reason why the last include was not found
};

bool find_include(void* user, const char* path, const char* includer, PumiceText* name, PumiceText* text) {
  auto& search = *static_cast<IncludeSearch*>(user);
  const SourceSet& sources = search.sources;
  // glslang names the first string of the source, not the user's file, as the outermost includer.
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

// Runs glslang over the same sources for the same target. Throws ShaderCompileError with its messages.
class Run {
 public:
  // `debug` has the sources to compile if debugging is on; messages refer to the original sources. `depth`: an upper bound on the nesting.
  Run(const SourceSet& sources, const DebugText& debug, const ShaderOptions& options, size_t depth)
      : sources_(sources), debug_(debug), options_(options), search_{debug.sources(), {}}, stack_bytes_(stack_for(depth)) {}

  std::string preprocess(const std::vector<Part>& parts) {
    const Result result = run(parts, true);
    return std::string(result->text.text, result->text.bytes);
  }

  std::vector<uint32_t> compile(const std::vector<Part>& parts) {
    const Result result = run(parts, false);
    warnings_ = diagnostics(*result).warnings;
    std::vector<uint32_t> spirv(result->spirv, result->spirv + result->words);
    flatten_sets(spirv);
    return spirv;
  }

  std::vector<std::string> take_warnings() { return std::move(warnings_); }

 private:
  // Only touched pages use memory, but the whole stack uses address space, which may be scarce.
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
    const PumiceGlslangRequest request{texts.data(),
                                       bytes.data(),
                                       names.data(),
                                       static_cast<int>(parts.size()),
                                       options_.vulkan_minor,
                                       preprocess,
                                       options_.debug || options_.source_lines,
                                       find_include,
                                       &search_,
                                       stack_bytes_};
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

// Returns whether a shader may lack a local size. In compiled code a declared size of 1 looks like a missing size; only the source shows
// the difference.
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

namespace {

// One compilation of a source, with its parts and its result.
class Compiling {
 public:
  Compiling(const SourceSet& sources, const ShaderHead& head, const ShaderOptions& options, const std::optional<LocalSize>& local_size)
      : sources_(sources),
        options_(options),
        local_size_(local_size),
        size_(check_size(sources, head)),
        debug_(sources, head.macros, options),
        run_(sources, debug_, options, debug_.wanted() ? kMaxSourceDepth : size_.depth),
        user_(debug_.sources().files().front()),
        first_line_("#line 1 \"" + user_.alias + "\"\n"),
        preamble_{"<preamble>", head.version_and_preamble},
        macros_{"<macros>", debug_.macros()},
        own_{user_.alias, without_version(user_)} {}

  CompiledShader run() {
    if (size_.may_be_deep) check_parts(run_.preprocess({preamble_, macros_, {"<limits>", first_line_}, own_}), sources_);
    result_.spirv = run_.compile(parts());
    const Interface plain = reflect(result_.spirv);
    if (std::ranges::find(plain.capabilities, "PhysicalStorageBufferAddresses") != plain.capabilities.end())
      throw UnsupportedError("buffer references (GL_EXT_buffer_reference): arrays are bound by name, each in a buffer block of its own");
    for (const BindingInterface& binding : plain.bindings)
      if (options_.debug && binding.name.ends_with(']'))
        throw UnsupportedError("debug=True: '" + binding.name + "' is an element of an array of blocks, whose indices are not checked");
    if (options_.guard && (local_size_ || options_.guard_declared || may_lack_local_size(plain))) guard(plain);
    result_.warnings = run_.take_warnings();
    if (debug_.wanted()) {
      result_.debug.formats = debug_.formats();
      place_debug_bindings(result_.spirv);
      if (options_.debug) result_.debug.accesses = check_bounds(result_.spirv, sources_);
    }
    return std::move(result_);
  }

 private:
  // Returns the source with a requested local size added. Text inserted before the user's source ends with first_line_, so that messages
  // count the user's lines.
  std::vector<Part> parts() {
    std::vector<Part> parts{preamble_, macros_, own_};
    if (local_size_) {
      if (declares_local_size(run_.preprocess({preamble_, macros_, {"<local size>", first_line_}, own_})))
        throw compile_error(
            {sources_.files().front().name + ": a local size is given and the text declares its own; expected one of them"});
      parts.insert(parts.end() - 1, {"<local size>", declaration(*local_size_) + first_line_});
    }
    if (!debug_.wanted()) return parts;
    if (!local_size_) parts.insert(parts.end() - 1, {"<debug>", first_line_});
    return {{"<debug>", debug_.rewrite(run_.preprocess(parts))}};
  }

  // Compiles the shader again, with a guard. Only the SPIR-V of the first pass shows whether invocations cooperate, which rules out a
  // guard.
  void guard(const Interface& plain) {
    const bool may_lack = may_lack_local_size(plain);
    if (!local_size_ && !may_lack && works_together(result_.spirv)) return;
    std::string text =
        run_.preprocess({preamble_, macros_, {"<guard>", guard_prologue() + first_line_}, own_, {"<guard>", guard_epilogue()}});
    const bool is_declared = declares_local_size(text);
    if (is_declared && !options_.guard_declared) return;
    if (works_together(result_.spirv)) {
      if (!local_size_ && !is_declared) result_.lacks_local_size = cooperation(result_.spirv, text, sources_);
      return;
    }
    result_.must_divide = plain.push_bytes > kMaxGuardedPushBytes;
    if (result_.must_divide && (is_declared || local_size_)) return;
    result_.is_chosen = !is_declared && !local_size_;
    const std::string size = is_declared ? "" : local_size_ ? declaration(*local_size_) : chosen_local_size(plain);
    if (result_.must_divide) {
      result_.spirv = run_.compile(with_declaration(size));
      return;
    }
    if (debug_.wanted()) text = debug_.rewrite(text);
    result_.spirv = run_.compile({{"<guard>", guarded_source(text, plain, sources_, size)}});
    result_.guarded = true;
  }

  std::vector<Part> with_declaration(const std::string& size) {
    std::vector<Part> all{preamble_, macros_, {"<local size>", size + first_line_}, own_};
    if (!debug_.wanted()) return all;
    return {{"<debug>", debug_.rewrite(run_.preprocess(all))}};
  }

  const SourceSet& sources_;
  const ShaderOptions& options_;
  const std::optional<LocalSize>& local_size_;
  const TextSize size_;
  DebugText debug_;
  Run run_;
  const SourceFile& user_;
  const std::string first_line_;
  const Part preamble_, macros_, own_;
  CompiledShader result_;
};

}  // namespace

CompiledShader compile_to_spirv(const SourceSet& sources, const ShaderHead& head, const ShaderOptions& options,
                                const std::optional<LocalSize>& local_size) {
  check_extensions(options);
  return Compiling(sources, head, options, local_size).run();
}

std::string disassembled(const std::vector<uint32_t>& spirv) {
  const Result result(glslang().disassemble(spirv.data(), spirv.size()), glslang().release);
  return {result->text.text, result->text.bytes};
}

}  // namespace pumice
