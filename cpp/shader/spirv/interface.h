// The interface of a compiled shader, reflected from its SPIR-V: bindings, images, push constants, specialization constants.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shader/preamble/scalar_type.h"
#include "shader/spirv/memory_layout.h"

namespace pumice {

enum class ResourceAccess : uint8_t { read = 1, write = 2, read_write = 3 };

// One buffer. `name` is the instance name of its block ("src" in `buffer A { float data[]; } src`), or the array member of a block without
// an instance name ("x" in `buffer X { float x[]; }`). Access is as declared; the atomic scalar stores of the packed modes also read, even
// if the shader declares `writeonly`.
struct BindingInterface {
  uint32_t binding = 0;
  uint32_t element = 0;  // index in an array of blocks, whose elements are buffers named "b[0]", "b[1]", ...
  std::string name;
  std::string block;
  std::string member;                // array member of a block with an instance name; else empty
  std::vector<std::string> aliases;  // names of other blocks at the same binding (`sfp x[]` and `sfpvec4 x4[]`)
  ResourceAccess access = ResourceAccess::read_write;
  ScalarType scalar = ScalarType::other;       // element type of the array; for vectors and matrices their scalar type
  uint32_t element_bytes = 0;                  // array stride
  uint64_t min_bytes = 0;                      // size of the block without its runtime array
  uint32_t components = 1;                     // 4 for vec4
  bool uniform = false;                        // uniform buffer, else storage buffer
  bool used = false;                           // accessed by the shader, directly or through an alias
  bool is_block = false;                       // whether the block is bound as a whole, because it is not just one array
  std::shared_ptr<const MemoryLayout> layout;  // layout of one element, or of the block; null if it has too many members
};

// A storage image, or a texture with its sampler.
struct ImageInterface {
  uint32_t binding = 0;
  std::string name;
  bool sampled = false;  // read through a sampler, else a storage image
  uint32_t dimensions = 2;
  ResourceAccess access = ResourceAccess::read_write;
  ScalarType scalar = ScalarType::other;  // type of a texel in the shader
  std::string format;                     // declared format of a storage image: "r32f"; empty if undeclared
  std::string normalized_for;             // the use that requires normalized coordinates, such as "an offset"; empty if none
};

// A scalar, vector, matrix or array in the push constants. Structure members have dotted names: "lights[1].colour".
struct PushConstant {
  std::string name;
  uint32_t offset = 0;
  ScalarType scalar = ScalarType::other;
  uint32_t components = 1;      // components of a vector
  uint32_t count = 1;           // elements of an array or columns of a matrix, at a uniform stride
  uint32_t bytes = 0;           // total bytes
  std::vector<uint32_t> shape;  // array sizes, columns and components, outermost first
};

struct SpecConstant {
  uint32_t id = 0;
  std::string name;
  ScalarType scalar = ScalarType::other;  // bool constants are uint32
  bool is_bool = false;
  uint64_t default_bits = 0;
};

// A required Vulkan feature, and the SPIR-V capability that requires it.
struct RequiredFeature {
  std::string feature;  // "shaderInt64"; some are the engine's names for properties: "subgroupArithmetic"
  std::string capability;
};

using LocalSize = std::array<uint32_t, 3>;

// Total size of variables, without padding.
struct VariableSizes {
  uint64_t shared = 0;      // bytes per workgroup
  uint64_t invocation = 0;  // bytes per invocation: local variables of all functions, and private globals
};

struct ShaderInterface {
  std::vector<BindingInterface> bindings;  // sorted by binding number
  std::vector<ImageInterface> images;      // sorted by binding number
  std::vector<PushConstant> push_constants;
  uint32_t push_bytes = 0;
  std::vector<SpecConstant> spec_constants;
  LocalSize local_size{1, 1, 1};
  std::array<std::optional<uint32_t>, 3> local_size_id;  // specialization constant id of each axis, if any
  VariableSizes variables;                               // sizes with default specialization constants
  std::vector<std::string> capabilities;                 // required SPIR-V capabilities ("Int64", "StorageBuffer16BitAccess")
  std::vector<RequiredFeature> features;                 // device features required by the capabilities
  bool guarded = false;                                  // main() is wrapped in an invocation guard (see invocation_guard.h)
  bool has_requested_local_size = false;                 // the local size was given to compile()
  bool chooses_local_size = false;                       // the engine chooses the local size for each call, by specialization constants
  bool local_size_must_divide = false;  // no space for the guard's thread counts: the local size must divide the number of threads

  const BindingInterface* find_binding(std::string_view name) const;
  const PushConstant* find_push_constant(std::string_view name) const;
  const SpecConstant* find_spec_constant(std::string_view name) const;
  const ImageInterface* find_image(std::string_view name) const;

  // Resolves an argument name: "src" for "src.data", and for "data" if that is unambiguous.
  std::string resolve_argument_name(const std::string& argument) const;
};

// Reflects a compute shader's interface from SPIR-V. Throws ShaderCompileError for malformed or stripped modules.
ShaderInterface reflect(const std::vector<uint32_t>& spirv);

// Throws ShaderCompileError if two arguments share a name, because calls pass arguments by name. In GLSL, a buffer instance may have the
// same name as a push constant in a block with an instance name.
void check_argument_names(const ShaderInterface& interface);

// Returns the sizes of variables for the given values of specialization constants, keyed by constant id.
VariableSizes compute_variable_sizes(const std::vector<uint32_t>& spirv, const std::map<uint32_t, uint64_t>& constants);

}  // namespace pumice
