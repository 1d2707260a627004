// Compiles one shader from text to SPIR-V, without any cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shader/debug/debug_table.h"
#include "shader/preamble/shader_options.h"
#include "shader/spirv/interface.h"
#include "shader/text/shader_head.h"
#include "shader/text/source_set.h"

namespace pumice {

struct CompiledShader {
  std::vector<uint32_t> spirv;
  bool guarded = false;
  bool is_chosen = false, must_divide = false;  // as in Interface
  std::string lacks_local_size;
  std::vector<std::string> warnings;
  DebugTable debug;
};

// The texts before a shader's own. Throws ShaderCompileError for a macro that is none.
ShaderHead shader_head(const SourceSet& sources, const ShaderOptions& options, const Macros& macros);

// Compiles a shader; loads glslang for it. Throws ShaderCompileError or UnsupportedError.
CompiledShader compile_to_spirv(const SourceSet& sources, const ShaderHead& head, const ShaderOptions& options,
                                const std::optional<LocalSize>& local_size);

// SPIR-V as text. glslang writes it, so this loads glslang.
std::string disassembled(const std::vector<uint32_t>& spirv);

}  // namespace pumice
