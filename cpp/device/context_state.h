// Internal state of a Context, for .cpp files of the device layer only.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "device/context_options.h"
#include "device/driver/device_info.h"
#include "device/driver/driver_quirks.h"
#include "device/driver/vulkan.h"
#include "device/heap.h"
#include "device/memory_pool.h"
#include "device/sampler_options.h"

namespace pumice {

class Buffer;
class PostWaitHook;
struct PipelineRecord;  // device/pipeline_executables.h

// Leaks `object`, because the device may still use its resources.
template <typename T>
void leak(T object) {
  new T(std::move(object));
}

// Vulkan objects and their memory, freed once execution `id` has finished.
struct RetiredObjects {
  uint64_t id = 0;
  VkBuffer buffer = VK_NULL_HANDLE;
  VkImage image = VK_NULL_HANDLE;
  VkImageView view = VK_NULL_HANDLE;
  Allocation allocation = {};
  VkQueryPool queries = VK_NULL_HANDLE;
  VkDescriptorPool descriptors = VK_NULL_HANDLE;
  VkCommandPool commands = VK_NULL_HANDLE;
  VkSemaphore semaphore = VK_NULL_HANDLE;
  VkCommandBuffer reusable_commands = VK_NULL_HANDLE;  // allocated from `commands`; set if both may be reused
  std::shared_ptr<const void> owner = {};              // keeps imported host memory or the resources of a command buffer alive
};

struct ContextState {
  DeviceInfo info;
  std::string choice;
  ContextOptions options;  // options passed to create()
  QuirkSet assumed_quirks;
  bool has_separate_memory = false;  // unifiedMemory is masked: the default heap is not host-visible
  std::shared_ptr<DeviceTable> vk = std::make_shared<DeviceTable>();
  std::unique_ptr<MemoryPool> memory;
  VkSemaphore timeline = VK_NULL_HANDLE;
  std::atomic<bool> closed{false}, lost{false}, abandoned{false};
  std::atomic<PostWaitHook*> post_wait_hook{nullptr};

  std::atomic<uint64_t> lost_at_submission{~uint64_t{0}};  // test hook: simulate device loss at this submission

  std::mutex submit_mutex;
  std::atomic<uint64_t> submitted{0}, finished{0};
  std::array<std::atomic<int64_t>, 64> submit_times{};  // submission times (clock ns) of the latest executions, indexed by id % 64
  double abandon_seconds = 0;
  std::atomic<double> longest_seconds{0};  // duration of the longest execution waited for so far

  std::mutex mutex;  // guards the members from `retired` to `used_pipelines`
  std::vector<RetiredObjects> retired;
  std::map<std::type_index, std::shared_ptr<void>> attachments;
  std::vector<std::pair<VkCommandPool, VkCommandBuffer>>
      idle_commands;                                              // command buffers for reuse; creating one takes longer than recording it
  std::map<const std::byte*, std::weak_ptr<Buffer>> host_memory;  // buffers by host address, see device/host_memory.h
  std::map<uint64_t, std::weak_ptr<Buffer>> shared_memory;        // buffers by address in the other API
  std::vector<std::pair<SamplerOptions, VkSampler>> samplers;     // shared, since devices limit the number of samplers
  std::vector<std::shared_ptr<const PipelineRecord>> pipeline_records;  // compile-only contexts: the pipelines created so far
  std::set<const PipelineRecord*> used_pipelines;                       // and those of them that a recording dispatches
  std::atomic<uint64_t> live_buffers{0}, live_buffer_bytes{0}, live_images{0}, live_image_bytes{0}, pipelines{0};

  bool is_forked_child() const;
  bool compile_only() const { return options.compile_only; }
  bool must_leak_objects() const { return is_forked_child() || abandoned; }
  void retire(RetiredObjects objects);                     // frees the objects once the last submission so far has finished
  void retire_after(uint64_t id, RetiredObjects objects);  // id: the last execution that uses them
  void free_retired_objects(bool all);
  std::pair<VkCommandPool, VkCommandBuffer> take_idle_command_buffer();  // already reset; null handles if there are none
  void abandon_device(const std::string& why);
  void record_duration(uint64_t id);  // records the duration of an execution that has just finished
  uint32_t choose_memory_type(Heap heap, uint32_t allowed) const;
  // Marks the context lost if `result` is VK_ERROR_DEVICE_LOST, then throws the matching error.
  void check_device_result(VkResult result, const char* call);
};

int64_t get_coarse_time_ns();  // the clock of ContextState::submit_times

}  // namespace pumice
