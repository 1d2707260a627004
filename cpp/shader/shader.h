// A compiled shader and its interface, read from the SPIR-V and never written a second time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shader/debug/debug_table.h"
#include "shader/preamble/scalar_type.h"
#include "shader/preamble/shader_options.h"
#include "shader/spirv/memory_layout.h"

namespace pumice {

enum class Access : uint8_t { read = 1, write = 2, read_write = 3 };

// One buffer: `name` is the name of the block's array member ("x" in `buffer X { float x[]; }`). Access is as declared; the atomic
// scalar stores of the packed modes also read where the shader says `writeonly`.
struct BindingInterface {
  uint32_t binding = 0;
  std::string name;
  std::string block;
  std::vector<std::string> aliases;  // array names of further blocks at the same binding (`sfp x[]` and `sfpvec4 x4[]`)
  Access access = Access::read_write;
  ScalarType scalar = ScalarType::other;       // of the array's elements; vectors and matrices give their scalar
  uint32_t element_bytes = 0;                  // array stride
  uint64_t least_bytes = 0;                    // of what the block declares with a size: a runtime array alone has none
  uint32_t components = 1;                     // 4 for vec4
  bool uniform = false;                        // a uniform buffer, not a storage buffer
  bool is_block = false;                       // bound whole, since it holds more than an array
  std::shared_ptr<const MemoryLayout> layout;  // of one element, or of the block; null where it has more members than can be told
};

// One image, or a texture with its sampler.
struct ImageInterface {
  uint32_t binding = 0;
  std::string name;
  bool sampled = false;  // read through a sampler, else a storage image
  uint32_t dimensions = 2;
  Access access = Access::read_write;
  ScalarType scalar = ScalarType::other;  // of what a shader gets and gives
  std::string format;                     // of a storage image, as declared: "r32f"; empty where it is not
  std::string normalized_for;             // what is used of it that wants normalized coordinates: "an offset"; else empty
};

// A number, vector, matrix or array in the push constants. Members of structures go by dotted names: "lights[1].colour".
struct PushConstant {
  std::string name;
  uint32_t offset = 0;
  ScalarType scalar = ScalarType::other;
  uint32_t components = 1;      // of a vector
  uint32_t count = 1;           // vectors or numbers of an array, columns of a matrix; evenly spread over the bytes
  uint32_t bytes = 0;           // of all
  std::vector<uint32_t> shape;  // of arrays, columns and components, the outermost first
};

struct SpecConstant {
  uint32_t id = 0;
  std::string name;
  ScalarType scalar = ScalarType::other;  // bool is uint32
  bool is_bool = false;
  uint64_t default_bits = 0;
};

// A Vulkan feature that a device must have, and the SPIR-V capability that says so.
struct NeededFeature {
  std::string feature;  // "shaderInt64"; a few are the engine's names for properties: "subgroupArithmetic"
  std::string capability;
};

using LocalSize = std::array<uint32_t, 3>;

// Bytes of variables, without padding.
struct VariableSizes {
  uint64_t shared = 0;      // of a workgroup
  uint64_t invocation = 0;  // of each invocation: local ones of all functions, and global ones
};

struct Interface {
  std::vector<BindingInterface> bindings;  // by binding number
  std::vector<ImageInterface> images;      // by binding number
  std::vector<PushConstant> push_constants;
  uint32_t push_bytes = 0;
  std::vector<SpecConstant> spec_constants;
  LocalSize local_size{1, 1, 1};
  std::array<std::optional<uint32_t>, 3> local_size_id;  // specialization constant id of each axis, where it has one
  VariableSizes variables;                               // unspecialised
  std::vector<std::string> capabilities;                 // SPIR-V capability names needed ("Int64", "StorageBuffer16BitAccess")
  std::vector<NeededFeature> features;                   // what those need of a device
  bool guarded = false;                                  // main() was generated around the user's: see push constants pumice_threads_*
  bool is_sized = false;                                 // the local size was given to compile()

  const BindingInterface* find_binding(std::string_view name) const;
  const PushConstant* find_push_constant(std::string_view name) const;
  const SpecConstant* find_spec_constant(std::string_view name) const;
  const ImageInterface* find_image(std::string_view name) const;
};

// Reads the interface of a compute shader out of SPIR-V. Throws ShaderCompileError for malformed or stripped modules.
Interface reflect(const std::vector<uint32_t>& spirv);

// The sizes of the variables where specialization constants of these ids have these values.
VariableSizes variable_sizes(const std::vector<uint32_t>& spirv, const std::map<uint32_t, uint64_t>& constants);

struct Shader {
  std::string name;
  ShaderOptions options;
  std::string preamble;  // what stood before the shader's own text
  std::vector<uint32_t> spirv;
  Interface interface;
  std::vector<std::string> warnings;
  std::string lacks_local_size;  // why no kernel is made of it: its invocations work together and it has no local size; else empty
  DebugTable debug;

  std::string disassemble() const;  // SPIR-V as text
};

// Files as they were when they were first asked for: all builds of one kernel are of the same text. Thread-safe.
class FileTexts {
 public:
  std::optional<std::string> read(const std::string& path);  // nullopt where there is no such file

 private:
  std::mutex mutex_;
  std::map<std::string, std::optional<std::string>> texts_;
};

// Where the texts of #include lines come from: a file beside the one that includes, `texts`, `folders`, the embedded shaders.
struct Includes {
  std::map<std::string, std::string> texts;  // by path
  std::vector<std::string> folders;          // in this order
  bool on_disk = false;                      // the shader's name is the path of its file
  std::shared_ptr<FileTexts> files = {};     // none: every compile reads the files anew
};

// One compile: looks into the memory and disk caches first, loads glslang only on a miss. Thread-safe.
// No `#version`: 450 is prepended. No local size declared: the workgroup size becomes specialization constants, or is `local_size`, and
// extra invocations are guarded, unless the text uses barriers, shared memory or subgroup operations: that has no guard.
// Throws ShaderCompileError (with the user's own file, line, the line and a caret; a local size both declared and given) or
// UnsupportedError.
std::shared_ptr<const Shader> compile(const std::string& source, const std::string& name, const ShaderOptions& options,
                                      const Macros& macros = {}, const Includes& includes = {},
                                      const std::optional<LocalSize>& local_size = {});

// The files on disk that such a compile reads besides the shader's own, and those that it looked for and that are not there.
std::vector<std::string> included_files(const std::string& source, const std::string& name, const Includes& includes);

// Counts of this process, for tests and reports.
struct CompileCounts {
  uint64_t compiled = 0, from_memory = 0, from_disk = 0;
};
CompileCounts compile_counts();

// Text of a shader embedded in the engine at build time: "conv.comp", "include/tensor.glsl". Throws Error if unknown.
std::string_view embedded_shader(std::string_view path);
std::vector<std::string_view> embedded_shaders();

}  // namespace pumice
