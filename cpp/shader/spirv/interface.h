// The interface of a compiled shader: bindings, images, push constants and specialization constants, read from the SPIR-V.
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

enum class Access : uint8_t { read = 1, write = 2, read_write = 3 };

// One buffer. `name` is the instance name of its block ("src" in `buffer A { float data[]; } src`), or the name of the array member of a
// block without an instance name ("x" in `buffer X { float x[]; }`). Access is as declared; the atomic scalar stores of the packed modes
// also read where the shader says `writeonly`.
struct BindingInterface {
  uint32_t binding = 0;
  uint32_t element = 0;  // of an array of blocks, whose elements are buffers named "b[0]", "b[1]", ..
  std::string name;
  std::string block;
  std::string member;                // the array member of a block with an instance name; else empty
  std::vector<std::string> aliases;  // names of further blocks at the same binding (`sfp x[]` and `sfpvec4 x4[]`)
  Access access = Access::read_write;
  ScalarType scalar = ScalarType::other;       // the array's elements; vectors and matrices give their scalar
  uint32_t element_bytes = 0;                  // array stride
  uint64_t least_bytes = 0;                    // bytes that the block declares with a size: a runtime array alone has none
  uint32_t components = 1;                     // 4 for vec4
  bool uniform = false;                        // a uniform buffer, not a storage buffer
  bool used = false;                           // an instruction of the shader names it, or an alias of it
  bool is_block = false;                       // bound whole, since it holds more than an array
  std::shared_ptr<const MemoryLayout> layout;  // one element's, or the block's; null where it has more members than can be told
};

// One image, or a texture with its sampler.
struct ImageInterface {
  uint32_t binding = 0;
  std::string name;
  bool sampled = false;  // read through a sampler, else a storage image
  uint32_t dimensions = 2;
  Access access = Access::read_write;
  ScalarType scalar = ScalarType::other;  // the type that a shader gets and gives
  std::string format;                     // of a storage image, as declared: "r32f"; empty where it is not
  std::string normalized_for;             // what is used of it that wants normalized coordinates: "an offset"; else empty
};

// A number, vector, matrix or array in the push constants. Members of structures go by dotted names: "lights[1].colour".
struct PushConstant {
  std::string name;
  uint32_t offset = 0;
  ScalarType scalar = ScalarType::other;
  uint32_t components = 1;      // components of a vector
  uint32_t count = 1;           // vectors or numbers of an array, columns of a matrix; evenly spread over the bytes
  uint32_t bytes = 0;           // bytes in all
  std::vector<uint32_t> shape;  // sizes of arrays, columns and components, the outermost first
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
  uint64_t shared = 0;      // bytes of a workgroup
  uint64_t invocation = 0;  // bytes of each invocation: local variables of all functions, and global ones
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
  std::vector<NeededFeature> features;                   // features that they need of a device
  bool guarded = false;                                  // main() was generated around the user's: see push constants pumice_threads_*
  bool is_sized = false;                                 // the local size was given to compile()
  bool is_chosen = false;                                // the engine chooses the local size at a call, as specialization constants
  bool must_divide = false;                              // no room for the guard's counts: the local size must divide the threads

  const BindingInterface* find_binding(std::string_view name) const;
  const PushConstant* find_push_constant(std::string_view name) const;
  const SpecConstant* find_spec_constant(std::string_view name) const;
  const ImageInterface* find_image(std::string_view name) const;

  // The name of the argument that a caller means by `given`: "src" for "src.data", and for "data" if no other argument has that name.
  std::string argument_name(const std::string& given) const;
};

// Reads the interface of a compute shader out of SPIR-V. Throws ShaderCompileError for malformed or stripped modules.
Interface reflect(const std::vector<uint32_t>& spirv);

// Throws ShaderCompileError if two arguments have one name, as a call gives arguments by name. GLSL lets a buffer's instance have the name
// of a push constant in a block with an instance name.
void check_argument_names(const Interface& interface);

// The sizes of the variables where specialization constants of these ids have these values.
VariableSizes variable_sizes(const std::vector<uint32_t>& spirv, const std::map<uint32_t, uint64_t>& constants);

}  // namespace pumice
