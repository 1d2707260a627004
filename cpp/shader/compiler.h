// Compiles one shader from source to SPIR-V, without any cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shader/debug/debug_metadata.h"
#include "shader/preamble/shader_options.h"
#include "shader/source/shader_prefix.h"
#include "shader/source/source_set.h"
#include "shader/spirv/interface.h"

namespace pumice {

struct CompiledShader {
  std::vector<uint32_t> spirv;
  bool guarded = false;
  bool chooses_local_size = false, local_size_must_divide = false;  // same meaning as in ShaderInterface
  std::string missing_local_size_error;
  std::vector<std::string> warnings;
  DebugMetadata debug;
};

// Returns the source text that the engine prepends to a shader. Throws ShaderCompileError for an invalid macro.
ShaderPrefix make_shader_prefix(const SourceSet& sources, const ShaderOptions& options, const Macros& macros);

// Compiles a shader; loads glslang if needed. Throws ShaderCompileError or UnsupportedError.
CompiledShader compile_to_spirv(const SourceSet& sources, const ShaderPrefix& prefix, const ShaderOptions& options,
                                const std::optional<LocalSize>& local_size);

// Disassembles SPIR-V with glslang, loading it if needed.
std::string disassemble_spirv(const std::vector<uint32_t>& spirv);

}  // namespace pumice
