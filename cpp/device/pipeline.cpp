#include "device/pipeline.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/files/hash.h"
#include "core/host_trace.h"
#include "core/injected_fault.h"
#include "device/context_state.h"
#include "device/driver/instance.h"
#include "device/pipeline_executables.h"
#include "device/pipeline_log.h"

namespace pumice {
namespace {

VkDescriptorSetLayout create_set_layout(DeviceTable& vk, const PipelineDesc& desc) {
  std::vector<VkDescriptorSetLayoutBinding> bindings;
  for (const auto& binding : desc.bindings) {
    if (binding.element > 0)
      ++bindings.back().descriptorCount;
    else
      bindings.push_back({binding.number, to_descriptor_type(binding.kind), 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr});
  }
  VkDescriptorSetLayoutCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO};
  info.bindingCount = static_cast<uint32_t>(bindings.size());
  info.pBindings = bindings.data();
  VkDescriptorSetLayout layout = VK_NULL_HANDLE;
  check_vk_result(vk.vkCreateDescriptorSetLayout(vk.device, &info, nullptr, &layout), "vkCreateDescriptorSetLayout");
  return layout;
}

VkPipelineLayout create_pipeline_layout(DeviceTable& vk, VkDescriptorSetLayout set_layout, uint32_t push_bytes) {
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, push_bytes};
  VkPipelineLayoutCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  info.setLayoutCount = 1;
  info.pSetLayouts = &set_layout;
  info.pushConstantRangeCount = push_bytes > 0 ? 1 : 0;
  info.pPushConstantRanges = &range;
  VkPipelineLayout layout = VK_NULL_HANDLE;
  check_vk_result(vk.vkCreatePipelineLayout(vk.device, &info, nullptr, &layout), "vkCreatePipelineLayout");
  return layout;
}

// Packed specialization constants with their map entries.
struct SpecializationData {
  std::vector<VkSpecializationMapEntry> entries;
  std::vector<std::byte> bytes;
  VkSpecializationInfo info{};

  explicit SpecializationData(const std::vector<SpecializationConstant>& constants) {
    for (const auto& constant : constants) {
      entries.push_back({constant.id, static_cast<uint32_t>(bytes.size()), constant.bytes});
      const size_t offset = bytes.size();
      bytes.resize(offset + 8);
      std::memcpy(bytes.data() + offset, &constant.bits, constant.bytes);
    }
    info = {static_cast<uint32_t>(entries.size()), entries.data(), bytes.size(), bytes.data()};
  }
};

// Keys of the pipelines created by this process.
struct CreatedPipelines {
  std::mutex mutex;
  std::set<std::string> keys;
};

CreatedPipelines& get_created_pipelines() {
  static auto* instance = new CreatedPipelines;
  return *instance;
}

std::string make_pipeline_key(const PipelineDesc& desc) {
  Sha256 hash;
  hash.add_bytes(std::as_bytes(desc.spirv));
  for (const auto& constant : desc.specialization) hash.add_field(constant.id).add_field(constant.bits);
  return hash.add_field(desc.subgroup_size).hex();
}

void record_created_pipeline(const std::string& key) {
  const std::lock_guard guard(get_created_pipelines().mutex);
  get_created_pipelines().keys.insert(key);
}

}  // namespace

VkDescriptorType to_descriptor_type(DescriptorKind kind) {
  switch (kind) {
    case DescriptorKind::uniform_buffer:
      return VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER;
    case DescriptorKind::storage_image:
      return VK_DESCRIPTOR_TYPE_STORAGE_IMAGE;
    case DescriptorKind::sampled_image:
      return VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER;
    default:
      return VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
  }
}

std::vector<std::string> list_distinct_pipelines() {
  const std::lock_guard guard(get_created_pipelines().mutex);
  return {get_created_pipelines().keys.begin(), get_created_pipelines().keys.end()};
}

namespace {

VkShaderModule create_shader_module(DeviceTable& vk, const PipelineDesc& desc) {
  VkShaderModuleCreateInfo info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  info.codeSize = desc.spirv.size_bytes();
  info.pCode = desc.spirv.data();
  VkShaderModule module = VK_NULL_HANDLE;
  check_vk_result(vk.vkCreateShaderModule(vk.device, &info, nullptr, &module), "vkCreateShaderModule");
  return module;
}

VkPipelineRobustnessCreateInfoEXT make_robustness_info() {
  VkPipelineRobustnessCreateInfoEXT robustness{VK_STRUCTURE_TYPE_PIPELINE_ROBUSTNESS_CREATE_INFO_EXT};
  robustness.storageBuffers = robustness.uniformBuffers = VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_ROBUST_BUFFER_ACCESS_EXT;
  robustness.vertexInputs = VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DEVICE_DEFAULT_EXT;
  robustness.images = VK_PIPELINE_ROBUSTNESS_IMAGE_BEHAVIOR_DEVICE_DEFAULT_EXT;
  return robustness;
}

VkPipelineCreateFlags get_capture_flags(CaptureMode capture) {
  switch (capture) {
    case CaptureMode::none:
      return 0;
    case CaptureMode::statistics:
      return VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR;
    default:
      return VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR | VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
  }
}

// Fails like a driver's compiler, if PUMICE_FAULT says so.
void fail_as_injected() {
  if (is_fault_injected("compiler crash")) std::abort();
  while (is_fault_injected("compiler hang")) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (is_fault_injected("compiler reject")) throw DeviceError("the driver rejected the pipeline of kernel 'doomed'");
}

}  // namespace

std::shared_ptr<const Pipeline> Pipeline::create(Context& context, const PipelineDesc& desc) {
  const HostTraceSpan span("pipeline", desc.name);
  const auto vk = get_usable_state(context).vk;
  const std::shared_ptr<Pipeline> new_pipeline(new Pipeline);
  new_pipeline->vk_ = vk;
  new_pipeline->bindings_ = desc.bindings;
  new_pipeline->push_bytes_ = desc.push_bytes;
  new_pipeline->set_layout_ = create_set_layout(*vk, desc);
  new_pipeline->layout_ = create_pipeline_layout(*vk, new_pipeline->set_layout_, desc.push_bytes);
  if (context.compile_only() && desc.counted) {
    new_pipeline->compile_and_record(context, desc);
    return new_pipeline;
  }
  new_pipeline->compile(context, desc);
  if (desc.counted) record_created_pipeline(make_pipeline_key(desc));
  return new_pipeline;
}

void Pipeline::compile(Context& context, const PipelineDesc& desc) {
  if (desc.name == "doomed") fail_as_injected();
  auto& state = get_usable_state(context);
  auto& vk = *state.vk;
  capture_ = desc.capture;
  const VkShaderModule module = create_shader_module(vk, desc);
  const SpecializationData specialization(desc.specialization);
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup{VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO};
  subgroup.requiredSubgroupSize = desc.subgroup_size;
  VkComputePipelineCreateInfo info{VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.pNext = desc.subgroup_size > 0 ? &subgroup : nullptr;
  info.stage.flags = desc.subgroup_size > 0 ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &specialization.info;
  info.layout = layout_;
  const VkPipelineRobustnessCreateInfoEXT robustness = make_robustness_info();
  if (desc.is_robust && context.feature("pipelineRobustness")) info.pNext = &robustness;
  info.flags |= get_capture_flags(desc.capture);
  const VkPipelineCache cache = desc.capture == CaptureMode::none ? vk.pipeline_cache : VK_NULL_HANDLE;
  const VkResult result = vk.vkCreateComputePipelines(vk.device, cache, 1, &info, nullptr, &pipeline_);
  vk.vkDestroyShaderModule(vk.device, module, nullptr);
  if (result != VK_SUCCESS && result != VK_ERROR_DEVICE_LOST && result != VK_ERROR_OUT_OF_DEVICE_MEMORY)
    throw DeviceError("the driver rejected the pipeline of kernel '" + desc.name + "': vkCreateComputePipelines returned " +
                      get_vk_result_name(result));
  state.check_device_result(result, "vkCreateComputePipelines");
  if (desc.counted) ++state.pipelines;
}

void Pipeline::compile_and_record(Context& context, const PipelineDesc& desc) {
  PipelineDesc captured = desc;
  if (context.feature(kExecutablesFeature)) captured.capture = CaptureMode::statistics;
  const auto record = std::make_shared<PipelineRecord>();
  record->name = desc.name, record->key = make_pipeline_key(desc);
  record->storage = desc.storage, record->constants = desc.constants, record->local_size = desc.local_size;
  {
    PipelineLogEntry entry(*record);
    if (entry.is_skipped()) {
      record->failure = "skipped";
    } else {
      const auto begin = std::chrono::steady_clock::now();
      try {
        compile(context, captured);
        record->executables = query_executables(context, pipeline_, capture_);
      } catch (const Error& error) {
        if (!entry.is_logged()) throw;
        record->failure = error.what();
      }
      record->compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    entry.finish(record->failure);
  }
  record_created_pipeline(record->key);
  record_ = record;
  ContextState& state = get_usable_state(context);
  const std::lock_guard lock(state.mutex);
  state.pipeline_records.push_back(record);
}

Pipeline::~Pipeline() {
  if (vk_->generation != get_fork_generation() || vk_->abandoned) return;
  vk_->vkDestroyPipeline(vk_->device, pipeline_, nullptr);
  vk_->vkDestroyPipelineLayout(vk_->device, layout_, nullptr);
  vk_->vkDestroyDescriptorSetLayout(vk_->device, set_layout_, nullptr);
}

}  // namespace pumice
