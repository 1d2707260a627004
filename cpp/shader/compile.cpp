#include <atomic>

#include "core/error.h"
#include "shader/compiler.h"
#include "shader/shader.h"
#include "shader/shader_cache.h"

namespace pumice {
namespace {

// What this process keeps about shaders.
struct ProcessState {
  ShaderMemoryCache cache;
  std::atomic<uint64_t> compiled{0}, from_memory{0}, from_disk{0};
};

ProcessState& state() {
  static auto* const kept = new ProcessState;  // outlives every thread that compiles
  return *kept;
}

std::shared_ptr<const Shader> make_shader(const std::string& name, const ShaderOptions& options, CompiledShader compiled) {
  auto shader = std::make_shared<Shader>();
  shader->name = name;
  shader->options = options;
  shader->interface = reflect(compiled.spirv);
  shader->interface.guarded = compiled.guarded;
  shader->spirv = std::move(compiled.spirv);
  shader->warnings = std::move(compiled.warnings);
  return shader;
}

// None where there is no entry, or one that no compiler of ours wrote.
std::shared_ptr<const Shader> shader_from_disk(const std::string& key, const std::string& name, const ShaderOptions& options) {
  try {
    if (auto cached = read_cached_shader(key)) return make_shader(name, options, std::move(*cached));
  } catch (const Error&) {
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<const Shader> compile(const std::string& source, const std::string& name, const ShaderOptions& options,
                                      const Macros& macros, const IncludeLoader& includes) {
  const SourceSet sources(name, source, includes);
  const ShaderHead head = shader_head(sources, options, macros);
  const std::string key = shader_key(sources, head, options);
  if (auto shader = state().cache.find(key)) {
    ++state().from_memory;
    return shader;
  }
  if (auto shader = shader_from_disk(key, name, options)) {
    ++state().from_disk;
    return state().cache.insert(key, std::move(shader));
  }
  CompiledShader compiled = compile_to_spirv(sources, head, options);
  ++state().compiled;
  write_cached_shader(key, compiled);
  return state().cache.insert(key, make_shader(name, options, std::move(compiled)));
}

CompileCounts compile_counts() {
  return {state().compiled, state().from_memory, state().from_disk};
}

}  // namespace pumice
