#include "dispatch/kernel/kernel_arguments.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/error.h"
#include "dispatch/kernel/grid_folding.h"
#include "dispatch/kernel/struct_layout_check.h"
#include "shader/debug/invocation_guard.h"

namespace pumice {
namespace {

std::string list_argument_names(const ShaderInterface& interface) {
  std::string text;
  for (const auto& binding : interface.bindings)
    if (!is_debug_binding(binding.name)) text += (text.empty() ? "" : ", ") + binding.name;
  for (const auto& image : interface.images) text += (text.empty() ? "" : ", ") + image.name;
  for (const auto& member : interface.push_constants)
    if (!member.name.starts_with("pumice_threads_")) text += (text.empty() ? "" : ", ") + member.name;
  return text.empty() ? "no arguments" : text;
}

const KernelArgument* find_argument(const KernelArguments& arguments, std::string_view name) {
  const auto entry = std::find_if(arguments.begin(), arguments.end(), [&](const auto& argument) { return argument.first == name; });
  return entry == arguments.end() ? nullptr : &entry->second;
}

bool is_scalar_type_of(ScalarType scalar, DType dtype) {
  return scalar != ScalarType::other && scalar == to_scalar_type(dtype);
}

std::string_view get_scalar_name(ScalarType scalar) {
  return scalar == ScalarType::other ? "a structure" : name(scalar);
}

// Returns the storage mode for arrays declared `sfp`, based on the float tensors among the arguments.
StorageType choose_storage(const Context& context, const KernelArguments& arguments) {
  for (const auto& [name, argument] : arguments) {
    const auto* tensor = std::get_if<TensorArgument>(&argument);
    if (tensor && !tensor->layout && is_16bit_float(tensor->dtype)) return get_storage_type(context.info(), tensor->dtype);
  }
  return StorageType::fp32;
}

// Whether a binding is declared with the storage type: its declaration differs between the fp32 and the 16-bit variant.
bool uses_storage_type(const BindingInterface& fp32_binding, const BindingInterface& packed_binding) {
  return fp32_binding.scalar == ScalarType::float32 &&
         (packed_binding.scalar != fp32_binding.scalar || packed_binding.element_bytes != fp32_binding.element_bytes);
}

std::string describe_argument_kind(const KernelArgument& argument) {
  return std::holds_alternative<TensorArgument>(argument)       ? "an array"
         : std::holds_alternative<PushConstantValues>(argument) ? "numbers"
         : std::holds_alternative<NoBinding>(argument)          ? "None"
                                                                : "an image";
}

struct SelectedVariant {
  std::shared_ptr<const KernelVariant> variant;
  std::vector<bool> storage_typed;  // whether each binding has the storage type, indexed by binding
  DType storage_dtype = DType::float32;
};

// Selects the variant for the dtypes of the arguments. `plain`: the fp32 variant.
SelectedVariant select_variant(Kernel& kernel, std::shared_ptr<const KernelVariant> plain, const Context& context,
                               const KernelArguments& arguments, const Macros& macros, const SpecValues& spec) {
  SelectedVariant result;
  const StorageType storage = choose_storage(context, arguments);
  result.variant = std::move(plain);
  result.storage_typed.assign(result.variant->interface().bindings.size(), false);
  if (storage == StorageType::fp32) return result;
  const auto packed_variant = kernel.get_variant(storage, macros, spec);
  const auto &fp32_bindings = result.variant->interface().bindings, &packed_bindings = packed_variant->interface().bindings;
  bool any = false;
  for (size_t i = 0; i < fp32_bindings.size() && i < packed_bindings.size(); ++i) {
    result.storage_typed[i] = uses_storage_type(fp32_bindings[i], packed_bindings[i]);
    any = any || result.storage_typed[i];
  }
  if (!any) return result;
  result.variant = packed_variant;
  result.storage_dtype = storage == StorageType::fp16 || storage == StorageType::fp16_packed ? DType::float16 : DType::bfloat16;
  kernel.log_packed_storage(context.info(), result.storage_dtype);
  return result;
}

// Returns the bytes that the shader's length() covers: the elements without padding, rounded up to whole words in packed modes.
uint64_t round_up_to_scalar(const TensorArgument& tensor, const BindingInterface& binding) {
  const uint64_t scalar = bytes(binding.scalar);
  return (tensor.bytes + scalar - 1) / scalar * scalar;
}

BufferRange bind_tensor(const SelectedVariant& built, size_t position, const BindingInterface& binding, const KernelArgument& argument,
                        const LaunchLimits& limits) {
  const auto* tensor = std::get_if<TensorArgument>(&argument);
  const auto refuse = [&](const char* rule, const std::string& expected, const std::string& actual) {
    throw BindingError(rule, "argument '" + binding.name + "'", binding.name, expected, actual);
  };
  const auto expected_array = [&] {
    return "an array of " + std::string(built.storage_typed[position] ? name(built.storage_dtype) : get_scalar_name(binding.scalar));
  };
  if (!tensor) refuse("K5", expected_array(), std::string(describe_argument_kind(argument)));
  if (tensor->layout) {
    check_struct_layout(binding, *tensor);
  } else if (built.storage_typed[position]) {
    if (tensor->dtype != built.storage_dtype) refuse("K5", expected_array(), "one of " + std::string(name(tensor->dtype)));
    check_storage_stride(binding, *tensor);
  } else if (!are_raw_struct_bytes(binding, *tensor)) {
    if (binding.scalar != ScalarType::other && !is_scalar_type_of(binding.scalar, tensor->dtype))
      refuse("K5", expected_array(), "one of " + std::string(name(tensor->dtype)));
    check_array_stride(binding, *tensor);
  }
  if (tensor->range.offset % limits.alignment != 0)
    refuse("K7", "a tensor that starts at a multiple of " + std::to_string(limits.alignment) + " bytes; .contiguous() makes one",
           "one that starts at byte " + std::to_string(tensor->range.offset));
  if (tensor->range.bytes > limits.largest)
    refuse("K7", "at most " + std::to_string(limits.largest) + " bytes, this device's maxStorageBufferRange",
           std::to_string(tensor->range.bytes) + " bytes");
  // In packed modes a scalar is a word with two elements.
  const bool is_pair = built.storage_typed[position] && binding.components == 1 && binding.scalar == ScalarType::uint32;
  const uint64_t min_bytes = is_pair ? binding.min_bytes / 2 : binding.min_bytes;
  if (tensor->bytes < min_bytes)
    refuse("K5", "at least the " + std::to_string(min_bytes) + " bytes that its block declares", std::to_string(tensor->bytes) + " bytes");
  const uint64_t element = static_cast<uint64_t>(binding.element_bytes);
  const uint64_t covered_bytes = round_up_to_scalar(*tensor, binding);
  if (covered_bytes > 0 && covered_bytes < element)
    refuse("K5", "at least one element of " + std::to_string(element) + " bytes", std::to_string(tensor->bytes) + " bytes");
  BufferRange range = tensor->range;
  if (!binding.uniform) range.bytes = std::min(range.bytes, covered_bytes);
  return range;
}

std::string format_dimensions(size_t dimensions) {
  return std::to_string(dimensions) + (dimensions == 1 ? " dimension" : " dimensions");
}

// Describes an image declaration, for error messages.
std::string describe_image(const ImageInterface& image) {
  return "an Image" + (image.format.empty() ? "" : " of " + image.format) + " with " + format_dimensions(image.dimensions);
}

std::shared_ptr<Image> bind_image(const Context& context, const ImageInterface& declared, const KernelArgument& argument) {
  const std::string slot = "argument '" + declared.name + "'";
  const auto refuse = [&](const char* rule, const std::string& expected, const std::string& actual) {
    throw BindingError(rule, slot, declared.name, expected, actual);
  };
  const auto* image_argument = std::get_if<std::shared_ptr<Image>>(&argument);
  if (!image_argument)
    refuse("K11", describe_image(declared) + "; create one from an array with pumice.image(array, format)",
           describe_argument_kind(argument));
  const Image& image = **image_argument;
  if (image.closed()) throw StateError("the Image given as '" + declared.name + "' is closed", "L1");
  if (image.context().get() != &context) refuse("M3", "an image of this context", "one of another");
  if (!is_scalar_type_of(declared.scalar, get_shader_dtype(image.format())))
    refuse("K11", "an Image whose texels are " + std::string(get_scalar_name(declared.scalar)) + " in the shader",
           "one of " + std::string(name(image.format())) + ", whose texels are " + std::string(name(get_shader_dtype(image.format()))));
  if (image.dimensions() != declared.dimensions || (!declared.format.empty() && declared.format != name(image.format())))
    refuse("K11", describe_image(declared),
           "one of " + std::string(name(image.format())) + " with " + format_dimensions(image.dimensions()));
  if (!image.sampler_options().normalized && !declared.normalized_for.empty())
    refuse("K11",
           "an Image with normalized coordinates (normalized=True), since the shader samples '" + declared.name + "' with " +
               declared.normalized_for,
           "one with coordinates in texels");
  if (!declared.sampled && !image.supports_storage())
    throw UnsupportedError("'" + declared.name + "' is a storage image, and '" + context.info().name +
                           "' does not support storage images of " + std::string(name(image.format())));
  return *image_argument;
}

void write_push_constant(const PushConstant& member, const Number& number, std::byte* target) {
  if (member.scalar == ScalarType::other)
    throw UnsupportedError("push constant '" + member.name + "' has a type that no number can be converted to");
  const auto bits = encode_number(member.scalar, number);
  if (!bits)
    throw BindingError("K6", "argument '" + member.name + "'", member.name,
                       "a number that " + std::string(get_scalar_name(member.scalar)) + " can hold", to_string(number));
  std::memcpy(target, &*bits, bytes(member.scalar));
}

std::string format_shape(std::span<const uint32_t> shape) {
  if (shape.empty()) return "a number";
  std::string text;
  for (const uint32_t size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text + " numbers";
}

void write_push_constants(const PushConstant& member, const KernelArgument& argument, std::byte* target) {
  const size_t expected_count = size_t{member.components} * member.count;
  const auto* numbers = std::get_if<PushConstantValues>(&argument);
  const auto fits = [&] {
    if (numbers->values.size() != expected_count) return false;
    return numbers->shape.size() == member.shape.size() ? numbers->shape == member.shape : numbers->shape.size() == 1;
  };
  if (!numbers || !fits())
    throw BindingError("K5", "argument '" + member.name + "'", member.name,
                       format_shape(member.shape) + " (" + std::string(get_scalar_name(member.scalar)) + ")",
                       numbers ? format_shape(numbers->shape) : describe_argument_kind(argument));
  const uint32_t stride = member.bytes / std::max(member.count, 1u);
  for (size_t i = 0; i < expected_count; ++i)
    write_push_constant(member, numbers->values[i],
                        target + i / member.components * stride + i % member.components * pumice::bytes(member.scalar));
}

void check_known_names(const ShaderInterface& interface, const KernelArguments& arguments) {
  for (const auto& [name, argument] : arguments) {
    const auto* binding = interface.find_binding(name);
    if (binding && binding->name != name)
      throw BindingError("K4", "argument '" + name + "'", name, "'" + binding->name + "', whose binding it shares", "'" + name + "'");
    if ((!interface.find_binding(name) || is_debug_binding(name)) && !interface.find_image(name) && !interface.find_push_constant(name))
      throw BindingError("K4", "argument '" + name + "'", name, list_argument_names(interface), "'" + name + "'");
  }
}

// Returns placeholder memory for an unused buffer, because Vulkan requires a binding. Throws if the variant uses the buffer.
BufferRange make_placeholder_range(const std::shared_ptr<Context>& context, const BindingInterface& binding) {
  if (binding.used)
    throw BindingError("K3", "argument '" + binding.name + "'", binding.name, "an array: this variant of the kernel uses it", "None");
  constexpr uint64_t kMinBytes = 16;
  const auto buffer = Buffer::create(context, std::max<uint64_t>({binding.min_bytes, binding.element_bytes, kMinBytes}));
  return {buffer, 0, buffer->bytes()};
}

// Returns the largest divisor of `count` that is at most `limit`.
uint32_t find_largest_divisor(uint64_t count, uint32_t limit) {
  uint32_t divisor = limit;
  while (count > 0 && count % divisor != 0) --divisor;
  return divisor;
}

// Chooses a local size for a kernel that does not specify one.
SpecValues choose_local_size(const SpecValues& spec, const LaunchSize& size, bool local_size_must_divide) {
  SpecValues chosen = spec;
  const bool flat = size.count[1] <= 1 && size.count[2] <= 1;
  const auto choose = [&](const char* name, size_t axis, uint32_t invocations) {
    if (local_size_must_divide) invocations = find_largest_divisor(size.count[axis], invocations);
    if (std::none_of(spec.begin(), spec.end(), [&](const auto& entry) { return entry.first == name; }))
      chosen.emplace_back(name, invocations);
  };
  choose("local_size_x", 0, flat ? 64 : 8);
  choose("local_size_y", 1, flat ? 1 : 8);
  choose("local_size_z", 2, 1);
  return chosen;
}

// Returns the number of workgroups on an axis. Throws if the last workgroup would be partial and the kernel does not skip excess
// invocations.
uint64_t count_groups_on_axis(const KernelVariant& variant, const LaunchSize& size, size_t axis) {
  const uint64_t count = size.count[axis], local = size.in_groups ? 1 : variant.local_size()[axis];
  if (variant.interface().local_size_must_divide && count % local != 0)
    throw BindingError("K8", "threads", variant.name(),
                       "a multiple of the local size " + std::to_string(local) + " on axis " + std::to_string(axis) +
                           ", or groups=, since this kernel has no guard: it is a SPIR-V module, or has more than " +
                           std::to_string(kMaxGuardedPushBytes) + " bytes of push constants",
                       std::to_string(count));
  return count == 0 ? 0 : (count - 1) / local + 1;
}

// Sets the group counts, folding a one-dimensional grid that exceeds the device's limit if the shader supports it.
void set_group_counts(Dispatch& dispatch, const LaunchSize& size, const LaunchLimits& limits) {
  std::array<uint64_t, 3> groups{};
  for (size_t axis = 0; axis < 3; ++axis) groups[axis] = count_groups_on_axis(*dispatch.kernel, size, axis);
  const bool is_line = groups[1] == 1 && groups[2] == 1;
  for (size_t axis = 0; axis < 3; ++axis)
    if (const uint64_t limit = limits.groups[axis]; groups[axis] > limit && !(is_line && dispatch.kernel->foldable_grid_axes() == 1))
      throw BindingError("K8", size.in_groups ? "groups" : "threads", dispatch.kernel->name(),
                         "at most " + std::to_string(limit) + " workgroups on axis " + std::to_string(axis), std::to_string(groups[axis]));
  if (!is_line || groups[0] <= limits.groups[0]) {
    for (size_t axis = 0; axis < 3; ++axis) dispatch.groups[axis] = static_cast<uint32_t>(groups[axis]);
    return;
  }
  const KernelLaunch launch = make_launch(dispatch.kernel, groups);
  dispatch.kernel = launch.kernel, dispatch.groups = launch.groups;
}

// Sets group counts that the device reads. Rejects counts that the kernel itself writes, since they would change while it runs.
void set_indirect_counts(Dispatch& dispatch, const BufferRange& counts) {
  const auto& bindings = dispatch.kernel->interface().bindings;
  const auto begin = [](const BufferRange& range) { return range.buffer->memory_offset() + range.offset; };
  for (size_t i = 0; i < bindings.size(); ++i) {
    const BufferRange& range = dispatch.buffers[i];
    if (!range.buffer || bindings[i].access == ResourceAccess::read || range.buffer->memory() != counts.buffer->memory()) continue;
    if (begin(range) < begin(counts) + counts.bytes && begin(counts) < begin(range) + range.bytes)
      throw BindingError("K8", "groups", dispatch.kernel->name(), "a tensor that the kernel does not write",
                         "that of '" + bindings[i].name + "'");
  }
  dispatch.guard = counts;
}

}  // namespace

bool uses_storage_type_for_array(Kernel& kernel, std::string_view array, StorageType storage, const Macros& macros,
                                 const SpecValues& spec) {
  const StorageType other = storage == StorageType::fp32 ? StorageType::fp16_packed : storage;  // any 16-bit mode serves for the comparison
  const auto fp32_variant = kernel.get_variant(StorageType::fp32, macros, spec), packed_variant = kernel.get_variant(other, macros, spec);
  const BindingInterface *fp32_binding = fp32_variant->interface().find_binding(array),
                         *packed_binding = packed_variant->interface().find_binding(array);
  return fp32_binding && packed_binding && uses_storage_type(*fp32_binding, *packed_binding);
}

Dispatch bind_kernel(Kernel& kernel, const KernelArguments& arguments, const LaunchSize& size, const Macros& macros,
                     const SpecValues& spec) {
  const auto first = kernel.get_variant(StorageType::fp32, macros, spec);
  const auto context = first->context();
  const bool chooses = first->interface().chooses_local_size;
  if (chooses && size.in_groups)
    throw BindingError("K8", "groups", kernel.name(), "threads=, or a local size: local_size=, or declared in the shader",
                       "groups= for a shader without a local size");
  const SpecValues constants = chooses ? choose_local_size(spec, size, first->interface().local_size_must_divide) : spec;
  const SelectedVariant built = select_variant(kernel, chooses ? kernel.get_variant(StorageType::fp32, macros, constants) : first, *context,
                                               arguments, macros, constants);
  const ShaderInterface& interface = built.variant->interface();
  check_known_names(interface, arguments);
  Dispatch dispatch;
  dispatch.kernel = built.variant;
  dispatch.label = kernel.name();
  for (size_t i = 0; i < interface.bindings.size(); ++i) {
    const auto& binding = interface.bindings[i];
    if (is_debug_binding(binding.name)) {
      dispatch.buffers.emplace_back();  // the recording binds this buffer
      dispatch.debug = kernel.debug();
      continue;
    }
    const auto* argument = find_argument(arguments, binding.name);
    if (!argument) throw BindingError("K3", "argument '" + binding.name + "'", binding.name, "an array", "nothing");
    if (std::holds_alternative<NoBinding>(*argument)) {
      dispatch.buffers.push_back(make_placeholder_range(context, binding));
      dispatch.exact_bytes.push_back(dispatch.buffers.back().bytes);
      continue;
    }
    dispatch.buffers.push_back(bind_tensor(built, i, binding, *argument, kernel.limits()));
    dispatch.exact_bytes.push_back(std::get<TensorArgument>(*argument).bytes);
  }
  for (const auto& image : interface.images) {
    const auto* argument = find_argument(arguments, image.name);
    if (!argument) throw BindingError("K3", "argument '" + image.name + "'", image.name, describe_image(image), "nothing");
    dispatch.images.push_back(bind_image(*context, image, *argument));
  }
  dispatch.push.resize(interface.push_bytes);
  for (const auto& member : interface.push_constants) {
    if (member.name.starts_with("pumice_threads_")) {
      const size_t axis = static_cast<size_t>(member.name.back() - 'x');
      // an explicit group count means whole workgroups
      uint64_t count = size.in_groups ? size.count[axis] * built.variant->local_size()[axis] : size.count[axis];
      if (size.counts.buffer) count = UINT32_MAX;
      write_push_constant(member, std::min<uint64_t>(count, UINT32_MAX), dispatch.push.data() + member.offset);
      continue;
    }
    const auto* argument = find_argument(arguments, member.name);
    if (!argument)
      throw BindingError("K3", "argument '" + member.name + "'", member.name,
                         "a number (" + std::string(get_scalar_name(member.scalar)) + ")", "nothing");
    write_push_constants(member, *argument, dispatch.push.data() + member.offset);
  }
  if (size.counts.buffer)
    set_indirect_counts(dispatch, size.counts);
  else
    set_group_counts(dispatch, size, kernel.limits());
  return dispatch;
}

}  // namespace pumice
