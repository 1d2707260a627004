#include "dispatch/kernel/kernel_limits.h"

#include <algorithm>
#include <set>

#include "core/error.h"

namespace pumice {
namespace {

// Maximum bytes of variables per invocation. Vulkan has no such limit, but larger arrays crash drivers or take minutes to compile. At this
// size, lavapipe takes 9 s.
constexpr uint64_t kMaxInvocationBytes = 1 << 16;

// Collects missing features and exceeded limits for the error message.
class RequirementChecker {
 public:
  RequirementChecker(const Context& context, const std::string& kernel) : context_(context), kernel_(kernel) {}

  void require_feature(const RequiredFeature& needed) {
    if (!context_.feature(needed.feature))
      lacks_.push_back("kernel '" + kernel_ + "' needs the feature " + needed.feature + " (" + needed.capability + "), which '" +
                       context_.info().name + "' lacks");
  }
  void require_int64_emulation(const RequiredFeature& needed, const std::set<std::string>& unsupported_int64) {
    if (unsupported_int64.empty() || context_.feature(needed.feature)) return;
    std::string uses;
    for (const auto& use : unsupported_int64) uses += (uses.empty() ? "" : ", ") + use;
    require_feature(needed);
    lacks_.back() += "; the pairs of words that replace it do not support " + uses;
  }
  void require_limit(const std::string& name, uint64_t needed, const std::string& quantity) {
    if (needed > context_.limit(name))
      lacks_.push_back("kernel '" + kernel_ + "' has " + std::to_string(needed) + " " + quantity + "; '" + context_.info().name +
                       "' takes " + std::to_string(context_.limit(name)) + " (" + name + ")");
  }
  void require_limit(uint64_t maximum, uint64_t needed, const std::string& quantity) {
    if (needed > maximum)
      lacks_.push_back("kernel '" + kernel_ + "' has " + std::to_string(needed) + " " + quantity + "; at most " + std::to_string(maximum) +
                       " are supported");
  }
  void throw_if_missing() const {
    if (!lacks_.empty()) throw UnsupportedError(lacks_);
  }

 private:
  const Context& context_;
  const std::string& kernel_;
  std::vector<std::string> lacks_;
};

// Several buffers may have the same binding number, but the number of an image must be unique.
void check_binding_numbers(const Shader& shader) {
  std::set<uint32_t> used_bindings;
  for (const auto& binding : shader.interface.bindings) used_bindings.insert(binding.binding);
  for (const auto& image : shader.interface.images)
    if (!used_bindings.insert(image.binding).second)
      throw UnsupportedError("kernel '" + shader.name + "': image '" + image.name + "' has binding " + std::to_string(image.binding) +
                             ", which is also the binding of another argument");
}

void check_descriptor_limits(RequirementChecker& needs, const ShaderInterface& interface) {
  std::array<uint64_t, kDescriptorKinds> count{};
  for (const auto& binding : interface.bindings) ++count[static_cast<size_t>(get_descriptor_kind(binding))];
  for (const auto& image : interface.images) ++count[static_cast<size_t>(get_descriptor_kind(image))];
  const auto number = [&](DescriptorKind kind) { return count[static_cast<size_t>(kind)]; };
  needs.require_limit("maxPerStageDescriptorStorageBuffers", number(DescriptorKind::storage_buffer), "storage buffers");
  needs.require_limit("maxPerStageDescriptorUniformBuffers", number(DescriptorKind::uniform_buffer), "uniform buffers");
  needs.require_limit("maxPerStageDescriptorStorageImages", number(DescriptorKind::storage_image), "storage images");
  needs.require_limit("maxPerStageDescriptorSampledImages", number(DescriptorKind::sampled_image), "sampled images");
  needs.require_limit("maxPerStageDescriptorSamplers", number(DescriptorKind::sampled_image), "samplers");
  needs.require_limit("maxPerStageResources", interface.bindings.size() + interface.images.size(), "buffers and images");
}

VariableSizes get_variable_sizes(const Shader& shader, const std::vector<SpecializationConstant>& specialization) {
  if (specialization.empty()) return shader.interface.variables;
  std::map<uint32_t, uint64_t> values;
  for (const auto& constant : specialization) values[constant.id] = constant.bits;
  return compute_variable_sizes(shader.spirv, values);
}

}  // namespace

DescriptorKind get_descriptor_kind(const BindingInterface& binding) {
  return binding.uniform ? DescriptorKind::uniform_buffer : DescriptorKind::storage_buffer;
}

DescriptorKind get_descriptor_kind(const ImageInterface& image) {
  return image.sampled ? DescriptorKind::sampled_image : DescriptorKind::storage_image;
}

static void require_local_size(RequirementChecker& needs, const LocalSize& local_size) {
  uint64_t invocations = 1;
  for (size_t axis = 0; axis < 3; ++axis) {
    const std::string letter(1, "xyz"[axis]);
    if (local_size[axis] == 0)
      throw BindingError("K2", "specialization constant", "local_size_" + letter, "a local size of at least 1", "0");
    needs.require_limit("maxComputeWorkGroupSize_" + std::to_string(axis), local_size[axis], "invocations per workgroup on axis " + letter);
    invocations = std::min(invocations * local_size[axis], uint64_t{1} << 32);
  }
  needs.require_limit("maxComputeWorkGroupInvocations", invocations, "invocations per workgroup");
}

void check_local_size(const Context& context, const std::string& name, const LocalSize& local_size) {
  RequirementChecker needs(context, name);
  require_local_size(needs, local_size);
  needs.throw_if_missing();
}

void check_device_requirements(const Context& context, const Shader& shader, const std::vector<SpecializationConstant>& specialization,
                               const LocalSize& local_size, const std::set<std::string>& unsupported_int64) {
  const ShaderInterface& interface = shader.interface;
  check_binding_numbers(shader);
  RequirementChecker needs(context, shader.name);
  for (const auto& feature : interface.features)
    feature.feature == kInt64Feature ? needs.require_int64_emulation(feature, unsupported_int64) : needs.require_feature(feature);
  require_local_size(needs, local_size);
  const VariableSizes variables = get_variable_sizes(shader, specialization);
  needs.require_limit("maxComputeSharedMemorySize", variables.shared, "bytes of shared memory");
  needs.require_limit(kMaxInvocationBytes, variables.invocation, "bytes of variables in each invocation");
  needs.require_limit("maxPushConstantsSize", interface.push_bytes, "bytes of push constants");
  check_descriptor_limits(needs, interface);
  needs.throw_if_missing();
}

}  // namespace pumice
