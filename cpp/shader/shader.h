// A compiled shader and its interface, which is always reflected from the SPIR-V.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shader/debug/debug_metadata.h"
#include "shader/preamble/shader_options.h"
#include "shader/source/source_set.h"
#include "shader/spirv/interface.h"

namespace pumice {

struct Shader {
  std::string name;
  std::string key;  // hash of all compilation inputs
  ShaderOptions options;
  std::string preamble;  // source text that the engine prepends
  std::vector<uint32_t> spirv;
  ShaderInterface interface;
  std::vector<std::string> warnings;
  std::string missing_local_size_error;  // error for use as a kernel: invocations cooperate without a local size; else empty
  DebugMetadata debug;

  std::string disassemble() const;  // SPIR-V disassembly
};

// Compiles a shader. Checks the memory and disk caches first and loads glslang only on a miss. Thread-safe. Source without `#version` is
// compiled as version 450. If it declares no local size, the workgroup size is `local_size` or given by specialization constants, and a
// guard skips extra invocations. A shader with barriers, shared memory or subgroup operations gets no guard, because all of its invocations
// must run. Throws ShaderCompileError (with the user's file, line number, source line and a caret; also if a local size is both declared
// and given) or UnsupportedError.
std::shared_ptr<const Shader> compile(const std::string& source, const std::string& name, const ShaderOptions& options,
                                      const Macros& macros = {}, const IncludeSearchPath& includes = {},
                                      const std::optional<LocalSize>& local_size = {});

// Makes a shader from a SPIR-V module that another compiler produced. Throws ShaderCompileError if it is malformed or lacks argument names.
std::shared_ptr<const Shader> shader_from_spirv(const std::vector<uint32_t>& spirv, const std::string& name, const ShaderOptions& options);

// Returns the locations of a shader's loops, "kernel:6, kernel:9"; empty if unknown.
std::string find_loop_locations(const std::string& source, const std::string& name, ShaderOptions options, const Macros& macros,
                                const IncludeSearchPath& includes, const std::optional<LocalSize>& local_size);

// Returns the paths of all files that compile() would include, found or not.
std::vector<std::string> find_included_files(const std::string& source, const std::string& name, const IncludeSearchPath& includes);

// Number of shaders that this process compiled, or loaded from each cache.
struct CompileCounts {
  uint64_t compiled = 0, from_memory = 0, from_disk = 0;
};
CompileCounts get_compile_counts();

}  // namespace pumice
