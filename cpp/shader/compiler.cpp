#include "shader/compiler.h"

#include <algorithm>
#include <cctype>
#include <climits>
#include <memory>

#include "core/error.h"
#include "shader/debug/bounds_checks.h"
#include "shader/debug/debug_instrumentation.h"
#include "shader/debug/invocation_guard.h"
#include "shader/source/compiler_diagnostics.h"
#include "shader/source/glsl_tokens.h"
#include "shader/source/glslang_loader.h"
#include "shader/source/source_limits.h"
#include "shader/spirv/descriptor_sets.h"

namespace pumice {
namespace {

constexpr std::string_view kVersion = "450";

std::string make_version_directive(const SourceSet& sources) {
  const SourceFile& file = sources.files().front();
  const auto& line = file.scan->version;
  if (line.empty()) return "#version " + std::string(kVersion) + "\n";
  const std::string number(line.size() > 1 ? line[1].text : ""), profile(line.size() > 2 ? line[2].text : "");
  const auto is_one_of = [&](std::initializer_list<std::string_view> versions) {
    return std::ranges::find(versions, number) != versions.end();
  };
  const bool is_core = profile.empty() || profile == "core";
  // These versions have compute shaders. Source for an older version, or for OpenGL ES, also compiles as 450.
  if ((is_core && is_one_of({"430", "440", "450"})) || (profile == "es" && is_one_of({"310", "320"})))
    return "#version " + std::string(kVersion) + "\n";
  if (is_core && number == "460") return "#version 460\n";
  throw make_compile_error(
      {format_message_at(sources, file.alias, line.front().line, "version",
                         "expected #version 430 to 460, 310 es, 320 es, or none, given '" + number + " " + profile + "'")});
}

// Returns the user's source with its #version line blanked out; that line now precedes the preamble.
std::string blank_out_version_directive(const SourceFile& file) {
  std::string text = file.text;
  if (!text.ends_with('\n')) text += '\n';  // glslang's preprocessor fails on a string that ends mid-line
  const auto& line = file.scan->version;
  if (line.empty()) return text;
  const size_t hash = text.rfind('#', line.front().offset), end = line.back().offset + line.back().text.size();
  std::replace_if(
      text.begin() + static_cast<ptrdiff_t>(hash), text.begin() + static_cast<ptrdiff_t>(end), [](char c) { return c != '\n'; }, ' ');
  return text;
}

// Throws ShaderCompileError unless `name` is an identifier, optionally with parameters: "TILE", "EPILOGUE(x)".
void check_macro_name(const std::string& name) {
  const auto tokens = tokenize(name);
  const bool word = !tokens.empty() && tokens[0].kind == TokenKind::word && tokens[0].offset == 0;
  const bool function =
      tokens.size() > 2 && tokens[1].text == "(" && tokens[1].offset == tokens[0].text.size() && tokens.back().text == ")";
  if (!word || (tokens.size() > 1 && !function))
    throw ShaderCompileError("a macro's name is a word, or a word and parameters, such as TILE or EPILOGUE(x): given '" + name + "'");
}

std::string make_macro_definitions(const Macros& macros) {
  std::string text;
  for (const auto& [name, value] : macros) {
    check_macro_name(name);
    text += "#define " + name + " ";
    for (const char c : value) text += c == '\n' ? "\\\n" : std::string(1, c);
    text += "\n";
  }
  return text;
}

// One of the strings that form a source, with the name that compiler messages use for it.
struct SourceString {
  std::string name, text;
};

using GlslangResult = std::unique_ptr<const PumiceGlslangResult, void (*)(const PumiceGlslangResult*)>;

struct IncludeContext {
  const SourceSet& sources;
  std::string message;  // reason why the last include was not found
};

bool find_include(void* user, const char* path, const char* includer, PumiceString* name, PumiceString* text) {
  auto& search = *static_cast<IncludeContext*>(user);
  const SourceSet& sources = search.sources;
  // glslang names the first string of the source, not the user's file, as the outermost includer.
  const size_t from = sources.find_file_by_alias(includer).value_or(0);
  const auto file = sources.find_include(path, from);
  if (!file) {
    search.message = sources.describe_missing_include(path, from);
    *text = {search.message.data(), search.message.size()};
    return false;
  }
  const SourceFile& found = sources.files()[*file];
  *name = {found.alias.data(), found.alias.size()};
  *text = {found.text.data(), found.text.size()};
  return true;
}

// Runs glslang on the sources of one shader. Throws ShaderCompileError with its messages.
class GlslangCompiler {
 public:
  // `debug`: provides the instrumented sources if debugging is on; messages refer to the original sources. `depth`: upper bound on nesting.
  GlslangCompiler(const SourceSet& sources, const DebugInstrumentation& debug, const ShaderOptions& options, size_t depth)
      : sources_(sources), debug_(debug), options_(options), search_{debug.sources(), {}}, stack_bytes_(estimate_stack_bytes(depth)) {}

  std::string preprocess(const std::vector<SourceString>& source_strings) {
    const GlslangResult result = run_glslang(source_strings, true);
    return std::string(result->text.text, result->text.bytes);
  }

  std::vector<uint32_t> compile(const std::vector<SourceString>& source_strings) {
    const GlslangResult result = run_glslang(source_strings, false);
    warnings_ = parse_diagnostics(*result).warnings;
    std::vector<uint32_t> spirv(result->spirv, result->spirv + result->words);
    flatten_descriptor_sets(spirv);
    return spirv;
  }

  std::vector<std::string> take_warnings() { return std::move(warnings_); }

 private:
  // Only touched pages use physical memory, but the whole stack takes address space, which may be limited.
  static size_t estimate_stack_bytes(size_t depth) {
    constexpr size_t kMinBytes = size_t{4} << 20, kMaxBytes = size_t{256} << 20;
    return std::min(kMinBytes + depth * ((kMaxBytes - kMinBytes) / kMaxSourceDepth), kMaxBytes);
  }

  Diagnostics parse_diagnostics(const PumiceGlslangResult& result) const {
    const std::string_view log(result.log.text, result.log.bytes);
    return parse_compiler_log(debug_.is_enabled() ? debug_.translate_compiler_log(log) : std::string(log), sources_);
  }

  GlslangResult run_glslang(const std::vector<SourceString>& source_strings, bool preprocess) {
    std::vector<const char*> strings, names;
    std::vector<int> bytes;
    for (const auto& source_string : source_strings) {
      if (source_string.text.size() > INT_MAX)
        throw ShaderCompileError(sources_.files().front().name + ": a source of " + std::to_string(source_string.text.size()) +
                                 " bytes is too long");
      strings.push_back(source_string.text.data());
      names.push_back(source_string.name.c_str());
      bytes.push_back(static_cast<int>(source_string.text.size()));
    }
    const PumiceGlslangRequest request{strings.data(),
                                       bytes.data(),
                                       names.data(),
                                       static_cast<int>(source_strings.size()),
                                       options_.vulkan_minor,
                                       preprocess,
                                       options_.debug || options_.source_lines,
                                       find_include,
                                       &search_,
                                       stack_bytes_};
    GlslangResult result(get_glslang().run(&request), get_glslang().release);
    if (result && result->missing_bytes == 0) {
      if (!result->ok) throw make_compile_error(parse_diagnostics(*result).errors);
      return result;
    }
    const size_t missing = result ? result->missing_bytes : stack_bytes_;
    throw OutOfMemoryError(sources_.files().front().name + ": the shader compiler needs some " + std::to_string(missing >> 20) +
                           " MiB of the process's address space, " + std::to_string(stack_bytes_ >> 20) +
                           " MiB of stack for this source, and did not get it");
  }

  const SourceSet& sources_;
  const DebugInstrumentation& debug_;
  const ShaderOptions& options_;
  IncludeContext search_;
  size_t stack_bytes_;
  std::vector<std::string> warnings_;
};

void check_extensions(const ShaderOptions& options) {
  std::vector<std::string> missing = find_missing_extensions(options.storage);
  for (std::string& extension : missing)
    extension = "storage " + std::string(name(options.storage)) + " needs the GLSL extension " + extension + ", which glslang " +
                std::string(get_glslang_version()) + " lacks";
  if (!missing.empty()) throw UnsupportedError(missing);
}

// Returns whether a shader may lack a local size. In compiled code a declared size of 1 looks like a missing size; only the source shows
// the difference.
bool may_lack_local_size(const ShaderInterface& interface) {
  const auto& id = interface.local_size_id;
  return interface.local_size == std::array<uint32_t, 3>{1, 1, 1} && !id[0] && !id[1] && !id[2];
}

}  // namespace

ShaderPrefix make_shader_prefix(const SourceSet& sources, const ShaderOptions& options, const Macros& macros) {
  std::string definitions = make_macro_definitions(macros);
  std::vector scans{std::make_shared<const ScannedSource>(definitions)};
  for (const auto& file : sources.files()) scans.push_back(file.scan);
  std::string prefix = make_version_directive(sources) + make_preamble(options, scans);
  return {std::move(prefix), std::move(definitions)};
}

namespace {

// Compiles one source to SPIR-V, with optional local size, invocation guard and debug instrumentation.
class ShaderCompilation {
 public:
  ShaderCompilation(const SourceSet& sources, const ShaderPrefix& prefix, const ShaderOptions& options,
                    const std::optional<LocalSize>& local_size)
      : sources_(sources),
        options_(options),
        local_size_(local_size),
        size_(check_source_size(sources, prefix)),
        debug_(sources, prefix.macros, options),
        compiler_(sources, debug_, options, debug_.is_enabled() ? kMaxSourceDepth : size_.depth),
        user_file_(debug_.sources().files().front()),
        first_line_("#line 1 \"" + user_file_.alias + "\"\n"),
        preamble_{"<preamble>", prefix.version_and_preamble},
        macros_{"<macros>", debug_.macros()},
        user_source_{user_file_.alias, blank_out_version_directive(user_file_)} {}

  CompiledShader run() {
    if (size_.may_be_deep) check_nesting(compiler_.preprocess({preamble_, macros_, {"<limits>", first_line_}, user_source_}), sources_);
    result_.spirv = compiler_.compile(make_source_strings());
    const ShaderInterface unguarded = reflect(result_.spirv);
    if (std::ranges::find(unguarded.capabilities, "PhysicalStorageBufferAddresses") != unguarded.capabilities.end())
      throw UnsupportedError("buffer references (GL_EXT_buffer_reference): arrays are bound by name, each in a buffer block of its own");
    for (const BindingInterface& binding : unguarded.bindings)
      if (options_.debug && binding.name.ends_with(']'))
        throw UnsupportedError("debug=True: '" + binding.name + "' is an element of an array of blocks, whose indices are not checked");
    if (options_.guard && (local_size_ || options_.guard_declared || may_lack_local_size(unguarded))) add_guard(unguarded);
    result_.warnings = compiler_.take_warnings();
    if (debug_.is_enabled()) {
      result_.debug.formats = debug_.formats();
      assign_debug_bindings(result_.spirv);
      if (options_.debug) result_.debug.accesses = add_bounds_checks(result_.spirv, sources_);
    }
    return std::move(result_);
  }

 private:
  // Returns the source strings, with the requested local size. Text inserted before the user's source ends with first_line_, so that line
  // numbers in messages match the user's source.
  std::vector<SourceString> make_source_strings() {
    std::vector<SourceString> source_strings{preamble_, macros_, user_source_};
    if (local_size_) {
      if (declares_local_size(compiler_.preprocess({preamble_, macros_, {"<local size>", first_line_}, user_source_})))
        throw make_compile_error(
            {sources_.files().front().name + ": a local size is given, but the source declares its own; expected only one of them"});
      source_strings.insert(source_strings.end() - 1, {"<local size>", make_local_size_declaration(*local_size_) + first_line_});
    }
    if (!debug_.is_enabled()) return source_strings;
    if (!local_size_) source_strings.insert(source_strings.end() - 1, {"<debug>", first_line_});
    return {{"<debug>", debug_.instrument(compiler_.preprocess(source_strings))}};
  }

  // Recompiles the shader with an invocation guard, unless the SPIR-V of the first pass shows that invocations cooperate.
  void add_guard(const ShaderInterface& unguarded) {
    const bool may_lack = may_lack_local_size(unguarded);
    if (!local_size_ && !may_lack && invocations_cooperate(result_.spirv)) return;
    std::string text = compiler_.preprocess(
        {preamble_, macros_, {"<guard>", make_guard_prologue() + first_line_}, user_source_, {"<guard>", make_guard_epilogue()}});
    const bool is_declared = declares_local_size(text);
    if (is_declared && !options_.guard_declared) return;
    if (invocations_cooperate(result_.spirv)) {
      if (!local_size_ && !is_declared) result_.missing_local_size_error = make_guard_error(result_.spirv, text, sources_);
      return;
    }
    result_.local_size_must_divide = unguarded.push_bytes > kMaxGuardedPushBytes;
    if (result_.local_size_must_divide && (is_declared || local_size_)) return;
    result_.chooses_local_size = !is_declared && !local_size_;
    const std::string size = is_declared   ? ""
                             : local_size_ ? make_local_size_declaration(*local_size_)
                                           : make_spec_constant_local_size(unguarded);
    if (result_.local_size_must_divide) {
      result_.spirv = compiler_.compile(make_local_size_strings(size));
      return;
    }
    if (debug_.is_enabled()) text = debug_.instrument(text);
    result_.spirv = compiler_.compile({{"<guard>", make_guarded_source(text, unguarded, sources_, size)}});
    result_.guarded = true;
  }

  std::vector<SourceString> make_local_size_strings(const std::string& size) {
    std::vector<SourceString> strings{preamble_, macros_, {"<local size>", size + first_line_}, user_source_};
    if (!debug_.is_enabled()) return strings;
    return {{"<debug>", debug_.instrument(compiler_.preprocess(strings))}};
  }

  const SourceSet& sources_;
  const ShaderOptions& options_;
  const std::optional<LocalSize>& local_size_;
  const SourceSize size_;
  DebugInstrumentation debug_;
  GlslangCompiler compiler_;
  const SourceFile& user_file_;
  const std::string first_line_;
  const SourceString preamble_, macros_, user_source_;
  CompiledShader result_;
};

}  // namespace

CompiledShader compile_to_spirv(const SourceSet& sources, const ShaderPrefix& prefix, const ShaderOptions& options,
                                const std::optional<LocalSize>& local_size) {
  check_extensions(options);
  return ShaderCompilation(sources, prefix, options, local_size).run();
}

std::string disassemble_spirv(const std::vector<uint32_t>& spirv) {
  const GlslangResult result(get_glslang().disassemble(spirv.data(), spirv.size()), get_glslang().release);
  return {result->text.text, result->text.bytes};
}

}  // namespace pumice
