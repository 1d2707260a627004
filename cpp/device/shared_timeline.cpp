#include "device/shared_timeline.h"

#include "core/error.h"
#include "device/context_state.h"
#include "device/submission_order.h"

namespace pumice {
namespace {

constexpr VkExternalSemaphoreHandleTypeFlagBits kHandle = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;

void check_timeline_exportable(const ContextState& state) {
  const std::string error_prefix = "an order with another interface's work: '" + state.info.name + "' ";
  if (!state.info.extensions.contains(VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME))
    throw UnsupportedError(error_prefix + "has no " + VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME);
  VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkPhysicalDeviceExternalSemaphoreInfo info{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_SEMAPHORE_INFO};
  info.pNext = &type;
  info.handleType = kHandle;
  VkExternalSemaphoreProperties properties{VK_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_PROPERTIES};
  vkGetPhysicalDeviceExternalSemaphoreProperties(state.vk->physical, &info, &properties);
  if (!(properties.externalSemaphoreFeatures & VK_EXTERNAL_SEMAPHORE_FEATURE_EXPORTABLE_BIT))
    throw UnsupportedError(error_prefix + "cannot export timeline semaphores as file descriptors");
}

}  // namespace

SharedTimeline::SharedTimeline(std::shared_ptr<Context> context) : context_(std::move(context)) {
  const ContextState& state = get_usable_state(*context_);
  context_->require_execution("memory shared with another interface");
  check_timeline_exportable(state);
  VkExportSemaphoreCreateInfo exported{VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO};
  exported.handleTypes = kHandle;
  VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.pNext = &exported;
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO};
  info.pNext = &type;
  check_vk_result(state.vk->vkCreateSemaphore(state.vk->device, &info, nullptr, &semaphore_), "vkCreateSemaphore");
}

SharedTimeline::~SharedTimeline() {
  ContextState& state = context_->state();
  if (!state.is_forked_child()) state.retire({.semaphore = semaphore_});
}

int SharedTimeline::export_semaphore() const {
  ContextState& state = get_usable_state(*context_);
  VkSemaphoreGetFdInfoKHR info{VK_STRUCTURE_TYPE_SEMAPHORE_GET_FD_INFO_KHR};
  info.semaphore = semaphore_;
  info.handleType = kHandle;
  int descriptor = -1;
  state.check_device_result(state.vk->vkGetSemaphoreFdKHR(state.vk->device, &info, &descriptor), "vkGetSemaphoreFdKHR");
  return descriptor;
}

uint64_t SharedTimeline::value() const {
  ContextState& state = get_usable_state(*context_);
  uint64_t value = 0;
  state.check_device_result(state.vk->vkGetSemaphoreCounterValue(state.vk->device, semaphore_, &value), "vkGetSemaphoreCounterValue");
  return value;
}

void begin_submission_order(std::shared_ptr<SharedTimeline> ready, uint64_t ready_value, std::shared_ptr<SharedTimeline> done) {
  if (ready->context() != done->context()) throw StateError("the timelines of an order must belong to the same context");
  SubmissionOrder order{ready->context().get(), ready->handle(), done->handle()};
  order.owners[0] = std::move(ready), order.owners[1] = std::move(done);
  order.ready_value = ready_value;
  push_submission_order(std::move(order));
}

}  // namespace pumice
