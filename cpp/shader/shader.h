// A compiled shader and its interface, which is always reflected from the SPIR-V.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shader/debug/debug_table.h"
#include "shader/preamble/shader_options.h"
#include "shader/source/source_set.h"
#include "shader/spirv/interface.h"

namespace pumice {

struct Shader {
  std::string name;
  std::string key;  // hash of everything that the code was compiled from
  ShaderOptions options;
  std::string preamble;  // text prepended to the source
  std::vector<uint32_t> spirv;
  Interface interface;
  std::vector<std::string> warnings;
  std::string
      missing_local_size_error;  // why it cannot become a kernel: its invocations cooperate, but it has no local size; empty if it can
  DebugTable debug;

  std::string disassemble() const;  // SPIR-V disassembly
};

// Compiles a shader. Checks the memory and disk caches first and loads glslang only on a miss. Thread-safe. Source without `#version` is
// compiled as version 450. If it declares no local size, the workgroup size is `local_size` or given by specialization constants, and a
// guard skips extra invocations. A shader with barriers, shared memory or subgroup operations gets no guard, because all of its invocations
// must run. Throws ShaderCompileError (with the user's file, line number, source line and a caret; also if a local size is both declared
// and given) or UnsupportedError.
std::shared_ptr<const Shader> compile(const std::string& source, const std::string& name, const ShaderOptions& options,
                                      const Macros& macros = {}, const Includes& includes = {},
                                      const std::optional<LocalSize>& local_size = {});

// Returns the shader of a module that another compiler produced. Throws ShaderCompileError if it is malformed or lacks argument names.
std::shared_ptr<const Shader> shader_from_spirv(const std::vector<uint32_t>& spirv, const std::string& name, const ShaderOptions& options);

// Returns the locations of a shader's loops, "kernel:6, kernel:9"; empty if unknown.
std::string find_loop_locations(const std::string& source, const std::string& name, ShaderOptions options, const Macros& macros,
                                const Includes& includes, const std::optional<LocalSize>& local_size);

// Returns the files on disk that compile() reads besides the shader itself, including those that it looked for and did not find.
std::vector<std::string> included_files(const std::string& source, const std::string& name, const Includes& includes);

// Counts how this process obtained its shaders, for tests and reports.
struct CompileCounts {
  uint64_t compiled = 0, from_memory = 0, from_disk = 0;
};
CompileCounts compile_counts();

}  // namespace pumice
