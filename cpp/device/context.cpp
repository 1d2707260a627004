#include "device/context.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "core/error.h"
#include "core/number_format.h"
#include "device/context_options.h"
#include "device/context_state.h"
#include "device/driver/device_choice.h"
#include "device/driver/device_enumeration.h"
#include "device/driver/driver_memory_check.h"
#include "device/driver/environment_mask.h"
#include "device/driver/features.h"
#include "device/driver/instance.h"
#include "device/pipeline_cache.h"
#include "device/submission_order.h"

namespace pumice {
namespace {

constexpr double kAbandonSeconds = 30;

double read_abandon_seconds() {
  const char* const value = std::getenv("PUMICE_ABANDON_SECONDS");
  if (!value || !*value) return kAbandonSeconds;
  const auto seconds = parse_number(value);
  if (seconds && *seconds >= 0) return *seconds;
  throw DeviceError(std::string("PUMICE_ABANDON_SECONDS: expected a number of seconds, or inf; given '") + value + "'");
}

bool is_compile_only_requested() {
  const char* const value = std::getenv("PUMICE_COMPILE_ONLY");
  return value && *value && std::strcmp(value, "0") != 0;
}

DeviceChoice choose_context_device(const std::vector<DeviceInfo>& infos, const std::string& requested) {
  const char* const environment = std::getenv("PUMICE_DEVICE");
  return choose_device(infos, resolve_visibility(infos, VisibilitySources::from_process()), requested, environment ? environment : "");
}

uint32_t choose_queue_family(VkPhysicalDevice physical, uint32_t& timestamp_bits) {
  uint32_t count = 0;
  vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families.data());
  // Prefer a family without graphics: it is at least as fast at everything here. On an H200, a conditional dispatch takes 1.9 us on it
  // and 4.9 us on the universal family.
  std::optional<uint32_t> best;
  for (uint32_t i = 0; i < count; ++i) {
    if (!(families[i].queueFlags & VK_QUEUE_COMPUTE_BIT)) continue;
    const bool compute_only = !(families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT);
    if (!best || (compute_only && (families[*best].queueFlags & VK_QUEUE_GRAPHICS_BIT))) best = i;
  }
  timestamp_bits = families[*best].timestampValidBits;
  return *best;
}

// Adds the features that a context with these quirks does not use, and lowers its limits.
void mask_for_quirks(DeviceInfo& info, QuirkSet quirks, std::set<std::string>& masked) {
  for (size_t i = 0; i < list_quirk_kinds().size(); ++i) {
    const QuirkKind& kind = list_quirk_kinds()[i];
    if (!quirks.has(static_cast<Quirk>(i))) continue;
    std::istringstream names{std::string(kind.features)};
    for (std::string feature; names >> feature;)
      if (info.feature(feature)) masked.insert(feature);
    if (!kind.limit.empty()) {
      uint64_t& limit = info.limits.at(std::string(kind.limit));
      limit = kind.limit.starts_with("min") ? std::max(limit, kind.max_limit) : std::min(limit, kind.max_limit);
    }
  }
}

void create_device(DeviceTable& vk, DeviceInfo& info, const std::set<std::string>& masked) {
  auto extensions = list_device_extensions(vk.physical);
  for (const auto& name : masked) extensions.erase(name), info.extensions.erase(name);
  // A validation layer that is older than an extension reports errors for every use of it.
  for (const auto& [name, first] : {std::pair{VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME, VK_MAKE_API_VERSION(0, 1, 3, 255)},
                                    {VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME, VK_MAKE_API_VERSION(0, 1, 4, 312)}})
    if (get_instance().validation && get_instance().layer_version < first) extensions.erase(name);
  FeatureChain features(info.api_version, extensions);
  vkGetPhysicalDeviceFeatures2(vk.physical, features.head());
  features.disable_unused(masked);
  info.features = features.values();
  add_property_features(info);
  for (const auto& name : masked)
    if (const auto feature = info.features.find(name); feature != info.features.end()) feature->second = false;
  if (!info.feature("cooperativeMatrix")) info.matrices.clear();
  std::vector<const char*> enabled;
  for (const char* name :
       {VK_EXT_CONDITIONAL_RENDERING_EXTENSION_NAME, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME, VK_EXT_SHADER_ATOMIC_FLOAT_EXTENSION_NAME,
        VK_EXT_PIPELINE_ROBUSTNESS_EXTENSION_NAME, VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME,
        VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME,
        VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME})
    if (extensions.contains(name)) enabled.push_back(name);
  const float priority = 1;
  VkDeviceQueueCreateInfo queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
  queue.queueFamilyIndex = vk.family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkDeviceCreateInfo create{VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
  create.pNext = features.head();
  create.queueCreateInfoCount = 1;
  create.pQueueCreateInfos = &queue;
  create.enabledExtensionCount = static_cast<uint32_t>(enabled.size());
  create.ppEnabledExtensionNames = enabled.data();
  const VkResult result = vkCreateDevice(vk.physical, &create, nullptr, &vk.device);
  if (result != VK_SUCCESS && result != VK_ERROR_DEVICE_LOST) check_memory_for_driver("vkCreateDevice");
  check_vk_result(result, "vkCreateDevice");
  volkLoadDeviceTable(&vk, vk.device);
  vk.vkGetDeviceQueue(vk.device, vk.family, 0, &vk.queue);
}

// Intel's driver reports subgroups of 32 but also compiles for 16 and 8. The invocations of a subgroup share the registers of one hardware
// thread: 32, 64 or 128 each. With 32, a quarter of the kernels of the shared models spill (Tiger Lake and DG2, Mesa 25.0.7).
// RADV reports subgroups of 64. On RDNA 3 such a subgroup holds each operand of a matrix product four times, and one of 32 twice: 10
// instead of 7 subgroups of attention_coopmat, with the same tile, fit a SIMD (navi31, Mesa 25.0.7).
void choose_subgroup_size(VkPhysicalDevice physical, DeviceInfo& info) {
  constexpr uint64_t kIntelSize = 16, kMatrixSize = 32;
  if (!info.feature("subgroupSizeControl") || !info.feature("computeFullSubgroups")) return;
  VkPhysicalDeviceSubgroupSizeControlProperties sizes{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
  VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  properties.pNext = &sizes;
  vkGetPhysicalDeviceProperties2(physical, &properties);
  const auto can_require = [&](uint64_t size) {
    return (sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0 && sizes.minSubgroupSize <= size &&
           size * sizes.maxComputeWorkgroupSubgroups >= info.limit("maxComputeWorkGroupInvocations");
  };
  const uint64_t reported = info.limit("subgroupSize");
  if (info.driver_id == VK_DRIVER_ID_INTEL_OPEN_SOURCE_MESA && can_require(kIntelSize))
    info.limits["subgroupSize"] = std::min(reported, kIntelSize);
  if (!info.matrices.empty() && reported > kMatrixSize && can_require(kMatrixSize)) info.required_matrix_subgroup = kMatrixSize;
}

VkSemaphore create_timeline_semaphore(DeviceTable& vk) {
  VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO};
  info.pNext = &type;
  VkSemaphore semaphore = VK_NULL_HANDLE;
  check_vk_result(vk.vkCreateSemaphore(vk.device, &info, nullptr, &semaphore), "vkCreateSemaphore");
  return semaphore;
}

}  // namespace

DeviceTable::~DeviceTable() {
  // A forked child must not touch the parent's device; work on an abandoned device may still be running.
  if (!device || generation != get_fork_generation() || abandoned) return;
  vkDestroyPipelineCache(device, pipeline_cache, nullptr);
  vkDestroyDevice(device, nullptr);
}

ContextState& get_usable_state(Context& context) {
  auto& state = context.state();
  if (state.closed) throw StateError("this Context is closed", "L1");
  if (state.is_forked_child())
    throw StateError("this Context was created before a fork and cannot be used in the child process; create a new Context in the child");
  if (state.abandoned)
    throw DeviceLostError(
        "this Context was abandoned because an execution did not finish; create a new Context if the device still responds");
  if (state.lost) throw DeviceLostError("the device of this Context was lost; create a new Context");
  return state;
}

Context::Context() : state_(std::make_unique<ContextState>()) {}

std::shared_ptr<Context> Context::create(const ContextOptions& options) {
  const auto physicals = list_physical_devices();
  std::vector<DeviceInfo> infos;
  for (size_t i = 0; i < physicals.size(); ++i) infos.push_back(query_device_info(physicals[i], static_cast<int>(i)));
  if (infos.empty()) throw DeviceError("there is no Vulkan 1.2 device with a compute queue");
  const DeviceChoice choice = choose_context_device(infos, options.device);
  const double patience = read_abandon_seconds();
  const std::shared_ptr<Context> context(new Context);
  ContextState& state = *context->state_;
  state.info = infos[choice.list_index];
  state.info.index = choice.index;
  state.choice = choice.why;
  state.abandon_seconds = patience;
  state.options = options;
  state.options.compile_only |= is_compile_only_requested();
  state.assumed_quirks = find_known_quirks(state.info) | QuirkSet::from_names(options.quirks);
  auto& vk = *state.vk;
  vk.generation = get_fork_generation();
  vk.physical = physicals[choice.list_index];
  vk.family = choose_queue_family(vk.physical, vk.timestamp_bits);
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(vk.physical, &properties);
  vk.timestamp_period = properties.limits.timestampPeriod;
  vkGetPhysicalDeviceMemoryProperties(vk.physical, &vk.memory);
  std::set<std::string> masked(options.without.begin(), options.without.end());
  check_masked_features(state.info, masked, "without");
  masked.merge(EnvironmentMask::from_process().without);
  mask_for_quirks(state.info, state.assumed_quirks, masked);
  mask_limits(state.info, options.limits);
  create_device(vk, state.info, masked);
  choose_subgroup_size(vk.physical, state.info);
  state.has_separate_memory = masked.contains("unifiedMemory");
  vk.has_conditional = state.info.feature("conditionalRendering");
  state.timeline = create_timeline_semaphore(vk);
  state.memory = std::make_unique<MemoryPool>(vk);
  if (!state.compile_only()) vk.pipeline_cache = load_pipeline_cache(vk, state.info);
  register_live_context(context);
  return context;
}

const std::vector<std::string>& get_masked_features(const Context& context) {
  return context.state().options.without;
}

std::shared_ptr<Context> derive_context(const Context& context, const std::vector<std::string>& without) {
  ContextOptions options = context.state().options;
  options.device = "uuid:" + context.info().uuid;
  options.without.insert(options.without.end(), without.begin(), without.end());
  return Context::create(options);
}

Context::~Context() {
  try {
    close();
  } catch (...) {  // lost device: free its objects anyway
  }
  ContextState& state = *state_;
  if (state.abandoned) {
    leak(std::move(state_));
    return;
  }
  if (!state.vk->device || state.is_forked_child()) {
    leak(std::move(state.memory));  // a forked child must not touch the parent's device
    return;
  }
  state.free_retired_objects(true);
  for (const auto& [options, sampler] : state.samplers) state.vk->vkDestroySampler(state.vk->device, sampler, nullptr);
  state.vk->vkDestroySemaphore(state.vk->device, state.timeline, nullptr);
}

void Context::close(const InterruptCallback& interrupted, std::optional<double> patience) {
  ContextState& state = *state_;
  if (state.closed.exchange(true)) return;
  if (!state.vk->device || state.must_leak_objects()) return;  // a forked child must not touch the parent's device
  if (!state.lost) {
    const auto last = [&] {
      const std::lock_guard lock(state.submit_mutex);  // wait for a submission in progress, so that `submitted` is final
      return state.submitted.load();
    }();
    try {
      if (!finish(last, interrupted, patience)) return;
    } catch (...) {
      state.closed = false;
      throw;
    }
  }
  std::map<std::type_index, std::shared_ptr<void>> attachments;
  {
    const std::lock_guard lock(state.mutex);
    attachments.swap(state.attachments);
  }
  attachments.clear();
  state.free_retired_objects(true);
  if (state.pipelines > 0 && !state.compile_only()) save_pipeline_cache(*state.vk, state.info);
}

bool Context::closed() const {
  return state_->closed;
}

const DeviceInfo& Context::info() const {
  return state_->info;
}
QuirkSet Context::assumed_quirks() const {
  return state_->assumed_quirks;
}
bool Context::compile_only() const {
  return state_->compile_only();
}

void Context::require_execution(std::string_view result) const {
  if (!state_->compile_only()) return;
  throw UnsupportedError("compile-only context: nothing is executed, so " + std::string(result) +
                         " has no result; use a Context without compile_only (and without PUMICE_COMPILE_ONLY) to run it");
}

std::vector<std::shared_ptr<const PipelineRecord>> Context::list_pipeline_records() const {
  const std::lock_guard lock(state_->mutex);
  return state_->pipeline_records;
}

const std::string& Context::choice_reason() const {
  return state_->choice;
}

DeviceTable& Context::vk() {
  return *get_usable_state(*this).vk;
}

uint64_t Context::submit(std::span<VkCommandBuffer_T* const> commands, const std::function<void()>& check) {
  const std::lock_guard lock(state_->submit_mutex);
  ContextState& state = get_usable_state(*this);  // checked under the lock, because close() waits only for earlier submissions
  if (check) check();
  const uint64_t id = state.submitted.load(std::memory_order_relaxed) + 1;
  SubmissionOrder* const order = find_submission_order(*this);
  const uint64_t ids[] = {id, id};
  const VkSemaphore signalled[] = {state.timeline, order ? order->done : VK_NULL_HANDLE};
  const VkSemaphore awaited = order ? order->ready : VK_NULL_HANDLE;
  constexpr VkPipelineStageFlags kAll = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
  VkTimelineSemaphoreSubmitInfo timeline{VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
  VkSubmitInfo info{VK_STRUCTURE_TYPE_SUBMIT_INFO};
  info.pNext = &timeline;
  info.commandBufferCount = static_cast<uint32_t>(commands.size());
  info.pCommandBuffers = commands.data();
  info.signalSemaphoreCount = timeline.signalSemaphoreValueCount = order ? 2 : 1;
  info.pSignalSemaphores = signalled;
  timeline.pSignalSemaphoreValues = ids;
  if (order && !order->has_waited) {
    info.waitSemaphoreCount = timeline.waitSemaphoreValueCount = 1;
    info.pWaitSemaphores = &awaited;
    info.pWaitDstStageMask = &kAll;
    timeline.pWaitSemaphoreValues = &order->ready_value;
  }
  state.submit_times[id % state.submit_times.size()].store(get_coarse_time_ns(), std::memory_order_relaxed);
  if (id >= state.lost_at_submission) {
    state.vk->vkQueueWaitIdle(state.vk->queue);  // the loss is simulated: wait, because memory in use is about to be freed
    state.check_device_result(VK_ERROR_DEVICE_LOST, "vkQueueSubmit");
  }
  if (state.compile_only())
    state.finished.store(id, std::memory_order_release);
  else
    state.check_device_result(state.vk->vkQueueSubmit(state.vk->queue, 1, &info, VK_NULL_HANDLE), "vkQueueSubmit");
  state.submitted.store(id, std::memory_order_release);
  if (order) order->has_waited = true, order->last = id;
  return id;
}

void simulate_device_loss_after(Context& context, uint64_t submissions) {
  context.state().lost_at_submission = context.get_last_submitted() + submissions + 1;
}

uint64_t Context::get_last_submitted() const {
  return state_->submitted.load(std::memory_order_acquire);
}

MemoryUsage Context::get_memory_usage() const {
  const ContextState& state = *state_;
  return {state.live_buffers,     state.live_buffer_bytes,     state.live_images,
          state.live_image_bytes, state.memory->block_count(), state.memory->block_bytes()};
}

uint64_t Context::pipelines_created() const {
  return state_->pipelines;
}

std::shared_ptr<void> Context::get_or_create_attachment(std::type_index type, const std::function<std::shared_ptr<void>()>& make) {
  ContextState& state = get_usable_state(*this);
  const std::lock_guard lock(state.mutex);
  auto& entry = state.attachments[type];
  if (!entry) entry = make();
  return entry;
}

}  // namespace pumice
