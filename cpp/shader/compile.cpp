#include <algorithm>
#include <atomic>

#include "core/error.h"
#include "core/files/hash.h"
#include "core/host_trace.h"
#include "shader/compiler.h"
#include "shader/shader.h"
#include "shader/shader_cache.h"
#include "shader/source/compiler_diagnostics.h"
#include "shader/spirv/descriptor_sets.h"
#include "shader/spirv/loop_limit.h"

namespace pumice {
namespace {

// The shader cache of this process, and counts of compilations and cache hits.
struct ShaderCacheState {
  ShaderMemoryCache cache;
  std::atomic<uint64_t> compiled{0}, from_memory{0}, from_disk{0};
};

ShaderCacheState& get_shader_cache_state() {
  static auto* const instance = new ShaderCacheState;  // never destroyed: a thread may still compile at exit
  return *instance;
}

std::shared_ptr<const Shader> make_shader(const std::string& key, const std::string& name, const ShaderOptions& options,
                                          const ShaderPrefix& prefix, const std::optional<LocalSize>& local_size, CompiledShader compiled) {
  auto shader = std::make_shared<Shader>();
  shader->name = name;
  shader->key = key;
  shader->options = options;
  shader->preamble = prefix.version_and_preamble;
  shader->interface = reflect(compiled.spirv);
  shader->interface.guarded = compiled.guarded;
  shader->interface.chooses_local_size = compiled.chooses_local_size;
  shader->interface.local_size_must_divide = compiled.local_size_must_divide;
  shader->interface.has_requested_local_size = local_size.has_value();
  shader->missing_local_size_error = std::move(compiled.missing_local_size_error);
  shader->spirv = std::move(compiled.spirv);
  shader->warnings = std::move(compiled.warnings);
  shader->debug = std::move(compiled.debug);
  return shader;
}

// Returns the shader with these options recorded. An option that the source ignores does not change the compiled code, so it is shared.
std::shared_ptr<const Shader> copy_with_options(std::shared_ptr<const Shader> shader, const ShaderOptions& options) {
  if (shader->options == options) return shader;
  auto copy = std::make_shared<Shader>(*shader);
  copy->options = options;
  return copy;
}

// Loads a shader from the disk cache; returns null if the entry is missing or invalid.
std::shared_ptr<const Shader> load_shader_from_disk(const std::string& key, const std::string& name, const ShaderOptions& options,
                                                    const ShaderPrefix& prefix, const std::optional<LocalSize>& local_size) {
  try {
    if (auto cached = read_cached_shader(key)) return make_shader(key, name, options, prefix, local_size, std::move(*cached));
  } catch (const Error&) {
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<const Shader> compile(const std::string& source, const std::string& name, const ShaderOptions& options,
                                      const Macros& macros, const IncludeSearchPath& includes, const std::optional<LocalSize>& local_size) {
  HostTraceSpan span("compile", name);
  check_options(options);
  if (local_size && std::ranges::find(*local_size, 0u) != local_size->end())
    throw BindingError("K2", "local_size", "", "one to three positive integers", "0");
  const SourceSet sources(name, source, includes);
  const ShaderPrefix prefix = make_shader_prefix(sources, options, macros);
  const std::string key = compute_shader_key(sources, prefix, options, local_size);
  if (auto shader = get_shader_cache_state().cache.find(key)) {
    ++get_shader_cache_state().from_memory;
    span.rename("shader from memory");
    return copy_with_options(std::move(shader), options);
  }
  if (auto shader = load_shader_from_disk(key, name, options, prefix, local_size)) {
    ++get_shader_cache_state().from_disk;
    span.rename("shader from disk");
    return copy_with_options(get_shader_cache_state().cache.insert(key, std::move(shader)), options);
  }
  CompiledShader compiled = compile_to_spirv(sources, prefix, options, local_size);
  ++get_shader_cache_state().compiled;
  write_cached_shader(key, compiled);
  return copy_with_options(
      get_shader_cache_state().cache.insert(key, make_shader(key, name, options, prefix, local_size, std::move(compiled))), options);
}

std::shared_ptr<const Shader> shader_from_spirv(const std::vector<uint32_t>& spirv, const std::string& name, const ShaderOptions& options) {
  auto shader = std::make_shared<Shader>();
  shader->name = name;
  shader->key = Sha256().add_field("spirv").add_bytes(std::as_bytes(std::span(spirv))).hex();
  shader->options = options;
  shader->spirv = spirv;
  flatten_descriptor_sets(shader->spirv);
  shader->interface = reflect(shader->spirv);
  shader->interface.local_size_must_divide =
      true;  // a module of another compiler has no guard, so extra invocations may write out of bounds
  return shader;
}

std::string find_loop_locations(const std::string& source, const std::string& name, ShaderOptions options, const Macros& macros,
                                const IncludeSearchPath& includes, const std::optional<LocalSize>& local_size) try {
  options.source_lines = true;
  const SourceSet sources(name, source, includes);
  std::string text;
  for (const auto& [file, line] :
       find_loop_lines(compile_to_spirv(sources, make_shader_prefix(sources, options, macros), options, local_size).spirv))
    text += (text.empty() ? "" : ", ") + get_display_name(sources, file) + ":" + std::to_string(line);
  return text;
} catch (const Error&) {  // for example because an included file has changed
  return {};
}

std::vector<std::string> find_included_files(const std::string& source, const std::string& name, const IncludeSearchPath& includes) {
  return SourceSet(name, source, includes).list_searched_files();
}

std::string Shader::disassemble() const {
  return disassemble_spirv(spirv);
}

CompileCounts get_compile_counts() {
  return {get_shader_cache_state().compiled, get_shader_cache_state().from_memory, get_shader_cache_state().from_disk};
}

}  // namespace pumice
