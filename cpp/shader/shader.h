// A compiled shader and its interface, read from the SPIR-V and never written a second time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shader/debug/debug_table.h"
#include "shader/preamble/shader_options.h"
#include "shader/spirv/interface.h"
#include "shader/text/source_set.h"

namespace pumice {

struct Shader {
  std::string name;
  std::string key;  // a hash of all that the code was made of
  ShaderOptions options;
  std::string preamble;  // the text that stood before the shader's own
  std::vector<uint32_t> spirv;
  Interface interface;
  std::vector<std::string> warnings;
  std::string lacks_local_size;  // why no kernel is made of it: its invocations work together and it has no local size; else empty
  DebugTable debug;

  std::string disassemble() const;  // SPIR-V as text
};

// Compiles a shader: looks into the memory and disk caches first, loads glslang only on a miss. Thread-safe. A text without `#version` is
// of version 450. Where it declares no local size, the workgroup size becomes specialization constants, or is `local_size`, and extra
// invocations are guarded, unless the text uses barriers, shared memory or subgroup operations, whose invocations must all run. Throws
// ShaderCompileError (with the user's own file, line, the line and a caret; a local size both declared and given) or UnsupportedError.
std::shared_ptr<const Shader> compile(const std::string& source, const std::string& name, const ShaderOptions& options,
                                      const Macros& macros = {}, const Includes& includes = {},
                                      const std::optional<LocalSize>& local_size = {});

// The shader of a module that another compiler made. Throws ShaderCompileError where it is malformed or has no names for its arguments.
std::shared_ptr<const Shader> shader_of(const std::vector<uint32_t>& spirv, const std::string& name, const ShaderOptions& options);

// The places of a shader's loops, "kernel:6, kernel:9"; empty where they are not found.
std::string loop_places(const std::string& source, const std::string& name, ShaderOptions options, const Macros& macros,
                        const Includes& includes, const std::optional<LocalSize>& local_size);

// The files on disk that compile() reads besides the shader's own, and those that it looked for and that are not there.
std::vector<std::string> included_files(const std::string& source, const std::string& name, const Includes& includes);

// Counts of how this process came by its shaders, for tests and reports.
struct CompileCounts {
  uint64_t compiled = 0, from_memory = 0, from_disk = 0;
};
CompileCounts compile_counts();

}  // namespace pumice
