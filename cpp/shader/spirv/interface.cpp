#include "shader/spirv/interface.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "shader/spirv/declared_sizes.h"
#include "shader/spirv/image_uses.h"
#include "shader/spirv/spirv_module.h"
#include "shader/spirv/variable_sizes.h"

namespace pumice {
namespace {

using namespace spirv;

constexpr uint32_t kMaxBlocks = 1024;          // maximum number of elements in an array of blocks
constexpr uint32_t kMaxPushMembers = 1 << 17;  // more members than fit in 65,536 bytes, unless array elements overlap

// A buffer or push-constant variable, with its block type.
struct BlockVariable {
  uint32_t id, type, storage_class;
};

std::string format_uint(uint32_t number) {
  return std::to_string(number);
}

// Returns the device property that allows this float control for a width. fp16 rounding may be independent of the other widths.
std::string get_float_control_feature(std::string_view control, uint32_t width) {
  if (control == "RoundingModeRTE" && width == 16) return "roundingModeRTEFloat16";
  return "shader" + std::string(control) + "Float" + format_uint(width);
}

// Returns the pointers through which instructions access memory.
std::set<uint32_t> find_accessed_pointers(const Module& module) {
  std::set<uint32_t> accessed;
  for (const Instruction& instruction : module.instructions()) {
    switch (instruction.op) {
      case OpAccessChain:
      case OpInBoundsAccessChain:
      case OpArrayLength:
      case OpLoad:
      case OpCopyObject:
      case OpImageTexelPointer:
        accessed.insert(instruction[2]);
        break;
      case OpStore:
        accessed.insert(instruction[0]);
        break;
      case OpCopyMemory:
        accessed.insert({instruction[0], instruction[1]});
        break;
      case OpFunctionCall:
        for (size_t k = 3; k < instruction.size(); ++k) accessed.insert(instruction[k]);
        break;
      default:
        break;
    }
  }
  return accessed;
}

// Reflects one module's interface.
class Reflector {
 public:
  explicit Reflector(const std::vector<uint32_t>& words)
      : module_(words), normalized_uses_(find_normalized_coordinate_uses(module_)), accessed_(find_accessed_pointers(module_)) {}

  ShaderInterface run() {
    check_entry_point();
    read_variables();
    read_spec_constants();
    read_local_size();
    read_capabilities();
    const std::map<uint32_t, uint64_t> defaults;
    const VariableSizeEvaluator evaluator(module_, defaults);
    result_.variables = {evaluator.compute_total_bytes(kWorkgroup),
                         evaluator.compute_total_bytes(kPrivate) + evaluator.compute_total_bytes(kFunction)};
    return std::move(result_);
  }

 private:
  void check_entry_point();
  void read_variables();
  void read_variable(const Instruction& variable);
  void add_image(uint32_t id, uint32_t pointer);
  void add_buffer_array(uint32_t id, uint32_t type, uint32_t storage_class);
  void add_buffer(const BlockVariable& variable, std::optional<uint32_t> element = {});
  void check_descriptor_set(uint32_t id, const std::string& name) const;
  void add_push_constants(const BlockVariable& variable);
  void add_members(uint32_t type, const std::string& prefix, uint64_t begin);
  struct MemberShape {
    std::vector<uint32_t> shape;
    uint32_t components = 1;
    ScalarType scalar = ScalarType::other;
    bool has_uniform_stride = true;  // whether all innermost elements have the same stride
  };
  MemberShape compute_member_shape(uint32_t type, uint32_t matrix_stride) const;
  void add_member(const std::string& name, uint64_t offset, uint32_t type, uint32_t matrix_stride);
  BindingInterface reflect_buffer(const BlockVariable& variable) const;
  std::shared_ptr<const MemoryLayout> make_element_layout(uint32_t type) const;
  uint32_t find_array_member(uint32_t type) const;
  uint64_t compute_min_bytes(uint32_t type) const;
  ResourceAccess get_access(const BlockVariable& variable) const;
  bool is_decorated(const BlockVariable& variable, Decoration decoration) const;
  uint32_t count_members(uint32_t type) const { return static_cast<uint32_t>(module_.definition(type).size()) - 1; }
  void read_spec_constants();
  SpecConstant make_spec_constant(const Instruction& instruction, uint32_t id) const;
  void read_local_size();
  bool read_workgroup_size_constant();
  void set_local_size(size_t axis, uint32_t constant_id);
  void read_capabilities();
  void add_feature(const std::string& feature, const std::string& capability);

  Module module_;
  std::map<uint32_t, std::string> normalized_uses_;  // keyed by variable
  std::set<uint32_t> accessed_;
  uint32_t entry_point_ = 0;
  uint32_t num_push_members_ = 0;
  ShaderInterface result_;
};

void Reflector::check_entry_point() {
  for (const auto& instruction : module_.instructions()) {
    if (instruction.op != OpEntryPoint) continue;
    if (instruction[0] != kGlCompute)
      throw ShaderCompileError("expected a compute shader, given SPIR-V of execution model " + format_uint(instruction[0]));
    if (instruction.string_operand(2) == "main") entry_point_ = instruction[1];
  }
  if (entry_point_ == 0) throw ShaderCompileError("malformed SPIR-V: no compute entry point 'main'");
  if (module_.definition(entry_point_).op != OpFunction || module_.instructions().back().op != OpFunctionEnd)
    throw ShaderCompileError("malformed SPIR-V: the function of the entry point is missing or cut off");
}

void Reflector::read_variables() {
  for (const auto& instruction : module_.instructions())
    if (instruction.op == OpVariable) read_variable(instruction);
  std::ranges::sort(result_.bindings, {}, [](const BindingInterface& buffer) { return std::pair(buffer.binding, buffer.element); });
  std::ranges::sort(result_.images, {}, &ImageInterface::binding);
}

void Reflector::read_variable(const Instruction& variable) {
  const uint32_t id = variable[1], storage_class = variable[2];
  if (storage_class == kUniformConstant) return add_image(id, variable[0]);
  if (storage_class != kUniform && storage_class != kStorageBuffer && storage_class != kPushConstant) return;
  const auto& pointer = module_.definition(variable[0]);
  if (pointer.op != OpTypePointer) throw ShaderCompileError("malformed SPIR-V: a variable whose type is not a pointer");
  const uint32_t type = pointer[2];
  if (const auto op = module_.definition(type).op; op == OpTypeArray || op == OpTypeRuntimeArray)
    return add_buffer_array(id, type, storage_class);
  if (module_.definition(type).op != OpTypeStruct || count_members(type) == 0)
    throw ShaderCompileError("malformed SPIR-V: a buffer without members");
  if (storage_class == kPushConstant)
    add_push_constants({id, type, storage_class});
  else
    add_buffer({id, type, storage_class});
}

void Reflector::add_image(uint32_t id, uint32_t pointer) {
  ImageInterface image;
  image.name = module_.name(id);
  const auto& pointer_type = module_.definition(pointer);
  if (pointer_type.op != OpTypePointer) throw ShaderCompileError("malformed SPIR-V: a variable whose type is not a pointer");
  const auto* type = &module_.definition(pointer_type[2]);
  image.sampled = type->op == OpTypeSampledImage;
  if (image.sampled) type = &module_.definition((*type)[1]);
  constexpr uint32_t kStorage = 2;
  // Depth, array and multisample images are not supported.
  const auto is_plain = [](const Instruction& texels) { return texels[3] != 1 && texels[4] == 0 && texels[5] == 0; };
  if (type->op != OpTypeImage || (*type)[2] > 2 || !is_plain(*type) || (!image.sampled && (*type)[6] != kStorage))
    throw UnsupportedError("'" + image.name + "': expected an image or a combined image and sampler, of one to three dimensions");
  image.dimensions = (*type)[2] + 1;
  image.scalar = module_.get_layout((*type)[1]).scalar;
  image.format = get_image_format_name((*type)[7]);
  image.access = image.sampled || module_.has_decoration(id, NonWritable) ? ResourceAccess::read
                 : module_.has_decoration(id, NonReadable)                ? ResourceAccess::write
                                                                          : ResourceAccess::read_write;
  const auto binding = module_.find_decoration(id, Binding);
  if (!binding) throw ShaderCompileError("image '" + image.name + "' has no layout(binding = N)");
  image.binding = *binding;
  check_descriptor_set(id, image.name);
  if (const auto use = normalized_uses_.find(id); use != normalized_uses_.end()) image.normalized_for = use->second;
  result_.images.push_back(std::move(image));
}

// Adds an array of blocks: one buffer per element.
void Reflector::add_buffer_array(uint32_t id, uint32_t type, uint32_t storage_class) {
  const auto& array = module_.definition(type);
  const std::string name = module_.name(id);
  if (array.op == OpTypeRuntimeArray || module_.definition(array[2]).op != OpConstant)
    throw UnsupportedError("'" + name + "' is an array of blocks: expected a length that is a constant number");
  const uint32_t count = module_.get_constant_value(array[2]), block = array[1];
  if (module_.definition(block).op != OpTypeStruct || count_members(block) == 0)
    throw UnsupportedError("'" + name + "' is an array of arrays of blocks: expected an array with one axis");
  if (count > kMaxBlocks)
    throw UnsupportedError("'" + name + "' is an array of " + format_uint(count) + " blocks: expected at most " + format_uint(kMaxBlocks));
  for (uint32_t element = 0; element < count; ++element) add_buffer({id, block, storage_class}, element);
}

// Adds a buffer. Blocks at the same binding become aliases of one buffer.
void Reflector::add_buffer(const BlockVariable& variable, std::optional<uint32_t> element) {
  BindingInterface buffer = reflect_buffer(variable);
  if (element) buffer.element = *element, buffer.name += "[" + format_uint(*element) + "]";
  const auto existing = std::ranges::find_if(
      result_.bindings, [&](const BindingInterface& other) { return other.binding == buffer.binding && other.element == buffer.element; });
  if (existing == result_.bindings.end()) {
    result_.bindings.push_back(std::move(buffer));
    return;
  }
  if (existing->uniform != buffer.uniform)
    throw ShaderCompileError("binding " + format_uint(buffer.binding) + " is both a storage buffer ('" + existing->name +
                             "') and a uniform buffer ('" + buffer.name + "')");
  existing->access = static_cast<ResourceAccess>(static_cast<int>(existing->access) | static_cast<int>(buffer.access));
  existing->used = existing->used || buffer.used;
  existing->min_bytes = std::max(existing->min_bytes, buffer.min_bytes);
  existing->aliases.push_back(buffer.name);
}

BindingInterface Reflector::reflect_buffer(const BlockVariable& variable) const {
  BindingInterface buffer;
  buffer.block = module_.name(variable.type);
  buffer.uniform = variable.storage_class == kUniform && !module_.has_decoration(variable.type, BufferBlock);
  const uint32_t member = find_array_member(variable.type);
  const TypeLayout layout = module_.get_layout(module_.definition(variable.type)[member + 1],
                                               module_.find_member_decoration(variable.type, member, MatrixStride).value_or(0));
  buffer.scalar = layout.scalar;
  buffer.components = layout.components;
  buffer.element_bytes = layout.stride ? layout.stride : layout.bytes;
  buffer.min_bytes = compute_min_bytes(variable.type);
  buffer.is_block = count_members(variable.type) > 1 || (layout.stride == 0 && !layout.runtime_array);
  buffer.layout = buffer.is_block ? module_.get_memory_layout(variable.type) : make_element_layout(variable.type);
  if (!buffer.is_block && buffer.layout && buffer.scalar == ScalarType::other && buffer.layout->scalar != ScalarType::other) {
    buffer.scalar = buffer.layout->scalar;  // nested arrays, and the extension's vec8 structs
    buffer.components = 1;                  // number of scalars without padding
    const auto declared = get_declared_sizes(module_, module_.definition(variable.type)[member + 1]).sizes;
    for (size_t axis = 1; axis < declared.size(); ++axis) buffer.components *= declared[axis];
    if (declared.size() <= 1) buffer.components = static_cast<uint32_t>(buffer.layout->element_count());
  }
  buffer.name = module_.name(variable.id);
  const std::string array = module_.member_name(variable.type, member);
  if (buffer.name.empty())
    buffer.name = array;
  else
    buffer.member = array;
  if (array.empty()) throw ShaderCompileError("a buffer of the shader has no name: the SPIR-V was stripped of its debug names");
  const auto binding = module_.find_decoration(variable.id, Binding);
  if (!binding) throw ShaderCompileError("buffer '" + buffer.name + "' has no layout(binding = N)");
  buffer.binding = *binding;
  check_descriptor_set(variable.id, buffer.name);
  buffer.used = accessed_.contains(variable.id);
  buffer.access = buffer.uniform ? ResourceAccess::read : get_access(variable);
  return buffer;
}

// Returns the element layout of a block that has only an array.
std::shared_ptr<const MemoryLayout> Reflector::make_element_layout(uint32_t type) const {
  const auto array = module_.get_member_layout(type, 0);
  if (!array) return nullptr;
  auto element = std::make_shared<MemoryLayout>(*array);
  element->axes.erase(element->axes.begin());
  return element;
}

void Reflector::check_descriptor_set(uint32_t id, const std::string& name) const {
  if (const uint32_t set = module_.find_decoration(id, DescriptorSet).value_or(0); set != 0)
    throw UnsupportedError("'" + name + "' is in descriptor set " + format_uint(set) + ": expected set 0");
}

// An array sized by a specialization constant may have any length.
uint64_t Reflector::compute_min_bytes(uint32_t type) const {
  uint64_t min_size = 0;
  for (uint32_t member = 0; member < count_members(type); ++member) {
    const uint32_t id = module_.definition(type)[member + 1];
    const auto& definition = module_.definition(id);
    const bool sized = definition.op != OpTypeArray || module_.definition(definition[2]).op == OpConstant;
    const uint32_t bytes = sized ? module_.get_layout(id, module_.find_member_decoration(type, member, MatrixStride).value_or(0)).bytes : 0;
    min_size = std::max(min_size, uint64_t{module_.find_member_decoration(type, member, Offset).value_or(0)} + bytes);
  }
  return min_size;
}

// Returns the array member, which is the last one if a header precedes it.
uint32_t Reflector::find_array_member(uint32_t type) const {
  const uint32_t last = count_members(type) - 1;
  const auto op = module_.definition(module_.definition(type)[last + 1]).op;
  return op == OpTypeRuntimeArray || op == OpTypeArray ? last : 0;
}

bool Reflector::is_decorated(const BlockVariable& variable, Decoration decoration) const {
  if (module_.has_decoration(variable.id, decoration)) return true;
  for (uint32_t member = 0; member < count_members(variable.type); ++member)
    if (!module_.find_member_decoration(variable.type, member, decoration)) return false;
  return true;
}

// `readonly writeonly` counts as read, since only length() can be used.
ResourceAccess Reflector::get_access(const BlockVariable& variable) const {
  if (is_decorated(variable, NonWritable)) return ResourceAccess::read;
  return is_decorated(variable, NonReadable) ? ResourceAccess::write : ResourceAccess::read_write;
}

void Reflector::add_push_constants(const BlockVariable& variable) {
  if (result_.push_bytes != 0) throw ShaderCompileError("two push constant blocks: expected one");
  add_members(variable.type, "", 0);
}

// Adds structure members under their GLSL names: "light.colour", "lights[1].colour".
void Reflector::add_members(uint32_t type, const std::string& prefix, uint64_t begin) {
  const auto& structure = module_.definition(type);
  for (uint32_t member = 0; member < count_members(type); ++member) {
    const std::string name = module_.member_name(type, member);
    const auto offset = module_.find_member_decoration(type, member, Offset);
    if (name.empty() || !offset) throw ShaderCompileError("a push constant has no name or offset: the SPIR-V was stripped or is malformed");
    if (module_.find_member_decoration(type, member, RowMajor))
      throw UnsupportedError("push constant '" + prefix + name + "' is row_major: expected column_major, the default");
    add_member(prefix + name, begin + *offset, structure[member + 1],
               module_.find_member_decoration(type, member, MatrixStride).value_or(0));
  }
}

// Collects the axes of nested arrays and matrices, down to the innermost scalar or vector.
Reflector::MemberShape Reflector::compute_member_shape(uint32_t type, uint32_t matrix_stride) const {
  MemberShape axes;
  std::vector<uint32_t> strides;
  const auto* definition = &module_.definition(type);
  while (definition->op == OpTypeArray || definition->op == OpTypeMatrix) {
    const TypeLayout layout = module_.get_layout(type, matrix_stride);
    const bool is_matrix = definition->op == OpTypeMatrix;
    axes.shape.push_back(is_matrix ? (*definition)[2] : layout.count);
    strides.push_back(is_matrix ? layout.bytes / (*definition)[2] : layout.stride);
    if (is_matrix) axes.has_uniform_stride = axes.has_uniform_stride && module_.definition((*definition)[1]).op == OpTypeVector;
    definition = &module_.definition(type = (*definition)[1]);
  }
  for (size_t i = 1; i < strides.size(); ++i)
    axes.has_uniform_stride = axes.has_uniform_stride && strides[i - 1] == uint64_t{strides[i]} * axes.shape[i];
  axes.has_uniform_stride = axes.has_uniform_stride && definition->op != OpTypeStruct;
  const TypeLayout vector = module_.get_layout(type);
  axes.scalar = vector.scalar;
  axes.components = vector.components;
  return axes;
}

void Reflector::add_member(const std::string& name, uint64_t offset, uint32_t type, uint32_t matrix_stride) {
  if (++num_push_members_ > kMaxPushMembers) throw ShaderCompileError("malformed SPIR-V: push constants overlap");
  const TypeLayout layout = module_.get_layout(type, matrix_stride);
  if (offset + layout.bytes > 65536 || layout.runtime_array) throw ShaderCompileError("push constant '" + name + "' ends past 65536 bytes");
  const auto& definition = module_.definition(type);
  if (definition.op == OpTypeStruct) return add_members(type, name + ".", offset);
  if (definition.op == OpTypeArray && module_.definition(definition[2]).op != OpConstant)
    throw UnsupportedError("push constant '" + name +
                           "' has a length that follows from a specialization constant: expected a constant number");
  if (definition.op == OpTypeArray && (layout.stride == 0 || uint64_t{layout.count} * layout.stride > layout.bytes))
    throw ShaderCompileError("malformed SPIR-V: the array '" + name + "' is larger than its bytes");
  const MemberShape axes = compute_member_shape(type, matrix_stride);
  if (!axes.has_uniform_stride) {
    for (uint32_t i = 0; i < layout.count; ++i)
      add_member(name + "[" + format_uint(i) + "]", offset + uint64_t{i} * layout.stride, definition[1], matrix_stride);
    return;
  }
  PushConstant constant;
  constant.name = name;
  constant.offset = static_cast<uint32_t>(offset);
  constant.scalar = axes.scalar;
  constant.components = axes.components;
  constant.bytes = layout.bytes;
  constant.shape = axes.shape;
  for (const uint32_t size : axes.shape) constant.count *= size;
  if (axes.components > 1) constant.shape.push_back(axes.components);
  result_.push_bytes = std::max(result_.push_bytes, (constant.offset + constant.bytes + 3) & ~uint32_t{3});
  result_.push_constants.push_back(std::move(constant));
}

SpecConstant Reflector::make_spec_constant(const Instruction& instruction, uint32_t id) const {
  SpecConstant constant;
  constant.id = id;
  constant.name = module_.name(instruction[1]);
  if (instruction.op == OpSpecConstant) {
    const TypeLayout layout = module_.get_layout(instruction[0]);
    constant.scalar = layout.scalar;
    constant.default_bits = instruction[2];
    if (layout.bytes == 8) constant.default_bits |= uint64_t{instruction[3]} << 32;
  } else {
    constant.scalar = ScalarType::uint32;
    constant.is_bool = true;
    constant.default_bits = instruction.op == OpSpecConstantTrue ? 1 : 0;
  }
  return constant;
}

// A constant id may occur twice, as a named constant and as a local size; its name is kept.
void Reflector::read_spec_constants() {
  std::map<uint32_t, SpecConstant> constants_by_id;
  for (const auto& instruction : module_.instructions()) {
    if (instruction.op != OpSpecConstant && instruction.op != OpSpecConstantTrue && instruction.op != OpSpecConstantFalse) continue;
    const auto id = module_.find_decoration(instruction[1], SpecId);
    if (!id) continue;
    SpecConstant constant = make_spec_constant(instruction, *id);
    auto& entry = constants_by_id[*id];
    if (entry.name.empty()) entry = std::move(constant);
  }
  for (auto& [id, constant] : constants_by_id) result_.spec_constants.push_back(std::move(constant));
}

void Reflector::set_local_size(size_t axis, uint32_t constant_id) {
  result_.local_size[axis] = module_.get_constant_value(constant_id);
  result_.local_size_id[axis] = module_.find_decoration(constant_id, SpecId);
  if (!result_.local_size_id[axis]) return;
  const auto constant = std::ranges::find(result_.spec_constants, *result_.local_size_id[axis], &SpecConstant::id);
  if (constant != result_.spec_constants.end() && constant->name.empty()) constant->name = std::string("local_size_") + "xyz"[axis];
}

// The constant decorated as the built-in WorkgroupSize overrides the execution mode.
bool Reflector::read_workgroup_size_constant() {
  for (const auto& instruction : module_.instructions()) {
    if (instruction.op != OpSpecConstantComposite && instruction.op != OpConstantComposite) continue;
    if (module_.find_decoration(instruction[1], BuiltIn) != kWorkgroupSize) continue;
    for (size_t axis = 0; axis < 3; ++axis) set_local_size(axis, instruction[2 + axis]);
    return true;
  }
  return false;
}

void Reflector::read_local_size() {
  if (!read_workgroup_size_constant()) {
    for (const auto& instruction : module_.instructions()) {
      const bool literal = instruction.op == OpExecutionMode && instruction.size() > 1 && instruction[1] == kLocalSize;
      const bool constants = instruction.op == OpExecutionModeId && instruction.size() > 1 && instruction[1] == kLocalSizeId;
      if ((!literal && !constants) || instruction[0] != entry_point_) continue;
      for (size_t axis = 0; axis < 3; ++axis) {
        if (constants)
          set_local_size(axis, instruction[2 + axis]);
        else
          result_.local_size[axis] = instruction[2 + axis];
      }
    }
  }
  for (auto& constant : result_.spec_constants)
    if (constant.name.empty()) constant.name = "constant_" + format_uint(constant.id);
  if (std::ranges::find(result_.local_size, uint32_t{0}) != result_.local_size.end())
    throw ShaderCompileError("malformed SPIR-V: a local size of 0");
}

void Reflector::read_capabilities() {
  std::set<std::string> seen_capabilities;
  for (const auto& instruction : module_.instructions()) {
    if (instruction.op == OpCapability) {
      const Capability found = get_capability(instruction[0]);
      if (!seen_capabilities.insert(found.name).second) continue;
      result_.capabilities.push_back(found.name);
      add_feature(found.feature, found.name);
    } else if (instruction.op == OpExecutionMode) {
      if (const auto control = get_float_control_capability(instruction[1]); !control.empty())
        add_feature(get_float_control_feature(control, instruction[2]), std::string(control));
    }
  }
}

void Reflector::add_feature(const std::string& feature, const std::string& capability) {
  if (!feature.empty() && std::ranges::find(result_.features, feature, &RequiredFeature::feature) == result_.features.end())
    result_.features.push_back({feature, capability});
}

}  // namespace

ShaderInterface reflect(const std::vector<uint32_t>& spirv) {
  return Reflector(spirv).run();
}

VariableSizes compute_variable_sizes(const std::vector<uint32_t>& spirv, const std::map<uint32_t, uint64_t>& constants) {
  const Module module(spirv);
  const VariableSizeEvaluator evaluator(module, constants);
  return {evaluator.compute_total_bytes(kWorkgroup), evaluator.compute_total_bytes(kPrivate) + evaluator.compute_total_bytes(kFunction)};
}

}  // namespace pumice
