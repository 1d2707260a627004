#include "dispatch/kernel/kernel_limits.h"

#include <algorithm>
#include <set>

#include "core/error.h"

namespace pumice {
namespace {

// Vulkan has no such limit, but larger arrays crash drivers or take minutes to compile. At this size, lavapipe takes 9 s.
constexpr uint64_t kMaxInvocationBytes = 1 << 16;

// Collects missing features and exceeded limits for the error message.
class Needs {
 public:
  Needs(const Context& context, const std::string& kernel) : context_(context), kernel_(kernel) {}

  void feature(const RequiredFeature& needed) {
    if (!context_.feature(needed.feature))
      lacks_.push_back("kernel '" + kernel_ + "' needs the feature " + needed.feature + " (" + needed.capability + "), which '" +
                       context_.info().name + "' lacks");
  }
  void pairs(const RequiredFeature& needed, const std::set<std::string>& unpaired) {
    if (unpaired.empty() || context_.feature(needed.feature)) return;
    std::string uses;
    for (const auto& use : unpaired) uses += (uses.empty() ? "" : ", ") + use;
    feature(needed);
    lacks_.back() += "; pairs of words, which stand for it, cannot be used for " + uses;
  }
  void limit(const std::string& name, uint64_t needed, const std::string& quantity) {
    if (needed > context_.limit(name))
      lacks_.push_back("kernel '" + kernel_ + "' has " + std::to_string(needed) + " " + quantity + "; '" + context_.info().name +
                       "' takes " + std::to_string(context_.limit(name)) + " (" + name + ")");
  }
  void limit(uint64_t maximum, uint64_t needed, const std::string& quantity) {
    if (needed > maximum)
      lacks_.push_back("kernel '" + kernel_ + "' has " + std::to_string(needed) + " " + quantity + "; at most " + std::to_string(maximum) +
                       " are taken");
  }
  void raise() const {
    if (!lacks_.empty()) throw UnsupportedError(lacks_);
  }

 private:
  const Context& context_;
  const std::string& kernel_;
  std::vector<std::string> lacks_;
};

// Buffers that share a binding number count as one; an image needs a number of its own.
void check_numbers(const Shader& shader) {
  std::set<uint32_t> used_bindings;
  for (const auto& binding : shader.interface.bindings) used_bindings.insert(binding.binding);
  for (const auto& image : shader.interface.images)
    if (!used_bindings.insert(image.binding).second)
      throw UnsupportedError("kernel '" + shader.name + "': image '" + image.name + "' has binding " + std::to_string(image.binding) +
                             ", which another argument has");
}

void count_descriptors(Needs& needs, const Interface& interface) {
  std::array<uint64_t, kDescriptorKinds> count{};
  for (const auto& binding : interface.bindings) ++count[static_cast<size_t>(kind_of(binding))];
  for (const auto& image : interface.images) ++count[static_cast<size_t>(kind_of(image))];
  const auto number = [&](DescriptorKind kind) { return count[static_cast<size_t>(kind)]; };
  needs.limit("maxPerStageDescriptorStorageBuffers", number(DescriptorKind::storage_buffer), "storage buffers");
  needs.limit("maxPerStageDescriptorUniformBuffers", number(DescriptorKind::uniform_buffer), "uniform buffers");
  needs.limit("maxPerStageDescriptorStorageImages", number(DescriptorKind::storage_image), "storage images");
  needs.limit("maxPerStageDescriptorSampledImages", number(DescriptorKind::sampled_image), "sampled images");
  needs.limit("maxPerStageDescriptorSamplers", number(DescriptorKind::sampled_image), "samplers");
  needs.limit("maxPerStageResources", interface.bindings.size() + interface.images.size(), "buffers and images");
}

VariableSizes variables_of(const Shader& shader, const std::vector<Specialization>& specialization) {
  if (specialization.empty()) return shader.interface.variables;
  std::map<uint32_t, uint64_t> values;
  for (const auto& constant : specialization) values[constant.id] = constant.bits;
  return variable_sizes(shader.spirv, values);
}

}  // namespace

DescriptorKind kind_of(const BindingInterface& binding) {
  return binding.uniform ? DescriptorKind::uniform_buffer : DescriptorKind::storage_buffer;
}

DescriptorKind kind_of(const ImageInterface& image) {
  return image.sampled ? DescriptorKind::sampled_image : DescriptorKind::storage_image;
}

static void need_local_size(Needs& needs, const LocalSize& local_size) {
  uint64_t invocations = 1;
  for (size_t axis = 0; axis < 3; ++axis) {
    const std::string letter(1, "xyz"[axis]);
    if (local_size[axis] == 0)
      throw BindingError("K2", "specialization constant", "local_size_" + letter, "a local size of at least 1", "0");
    needs.limit("maxComputeWorkGroupSize_" + std::to_string(axis), local_size[axis], "invocations a workgroup on axis " + letter);
    invocations = std::min(invocations * local_size[axis], uint64_t{1} << 32);
  }
  needs.limit("maxComputeWorkGroupInvocations", invocations, "invocations a workgroup");
}

void check_local_size(const Context& context, const std::string& name, const LocalSize& local_size) {
  Needs needs(context, name);
  need_local_size(needs, local_size);
  needs.raise();
}

void check_device(const Context& context, const Shader& shader, const std::vector<Specialization>& specialization,
                  const LocalSize& local_size, const std::set<std::string>& unpaired) {
  const Interface& interface = shader.interface;
  check_numbers(shader);
  Needs needs(context, shader.name);
  for (const auto& feature : interface.features) feature.feature == kInt64Feature ? needs.pairs(feature, unpaired) : needs.feature(feature);
  need_local_size(needs, local_size);
  const VariableSizes variables = variables_of(shader, specialization);
  needs.limit("maxComputeSharedMemorySize", variables.shared, "bytes of shared memory");
  needs.limit(kMaxInvocationBytes, variables.invocation, "bytes of variables in each invocation");
  needs.limit("maxPushConstantsSize", interface.push_bytes, "bytes of push constants");
  count_descriptors(needs, interface);
  needs.raise();
}

}  // namespace pumice
