// The state that a Context holds, for the device layer's .cpp files only.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "device/context_options.h"
#include "device/driver/device_info.h"
#include "device/driver/driver_quirks.h"
#include "device/driver/vulkan.h"
#include "device/heap.h"
#include "device/memory.h"
#include "device/sampler_options.h"

namespace pumice {

class Buffer;
class WaitCheck;

// Kept for ever: a device may still use what is behind them.
template <typename T>
void leak(T object) {
  new T(std::move(object));
}

// Vulkan objects and their memory, freed once `id` has finished.
struct Retired {
  uint64_t id = 0;
  VkBuffer buffer = VK_NULL_HANDLE;
  VkImage image = VK_NULL_HANDLE;
  VkImageView view = VK_NULL_HANDLE;
  Allocation allocation = {};
  VkQueryPool queries = VK_NULL_HANDLE;
  VkDescriptorPool descriptors = VK_NULL_HANDLE;
  VkCommandPool commands = VK_NULL_HANDLE;
  VkSemaphore semaphore = VK_NULL_HANDLE;
  VkCommandBuffer used_again = VK_NULL_HANDLE;  // of `commands`, where the next command buffer may take both
  std::shared_ptr<const void> owner = {};       // keeps imported host memory, or what a command buffer uses
};

struct ContextState {
  DeviceInfo info;
  std::string choice;
  ContextOptions options;  // that the context was made with
  QuirkSet assumed_quirks;
  bool is_separate = false;  // the host is to see no memory of the default heap, also where it could
  std::shared_ptr<DeviceTable> vk = std::make_shared<DeviceTable>();
  std::unique_ptr<MemoryPool> memory;
  VkSemaphore timeline = VK_NULL_HANDLE;
  std::atomic<bool> closed{false}, lost{false}, abandoned{false};
  std::atomic<WaitCheck*> wait_check{nullptr};

  std::atomic<uint64_t> losing_at{~uint64_t{0}};  // the execution at whose submission the device is lost on purpose: a test's fault

  std::mutex submit_mutex;
  std::atomic<uint64_t> submitted{0}, finished{0};
  std::array<std::atomic<int64_t>, 64> begun{};  // nanoseconds of the clock at which the latest executions were submitted, by id modulo 64
  double abandon_seconds = 0;
  std::atomic<double> longest_seconds{0};  // the longest duration of an execution that was waited for

  std::mutex mutex;  // guards what follows up to the counts
  std::vector<Retired> retired;
  std::map<std::type_index, std::shared_ptr<void>> attachments;
  std::vector<std::pair<VkCommandPool, VkCommandBuffer>> idle_commands;  // of transfers: making them takes longer than recording does
  std::map<const std::byte*, std::weak_ptr<Buffer>> host_memory;         // by address: device/host_memory.h
  std::map<uint64_t, std::weak_ptr<Buffer>> shared_memory;               // by the address in the other interface
  std::vector<std::pair<SamplerOptions, VkSampler>> samplers;            // samplers of images: devices have few
  std::atomic<uint64_t> live_buffers{0}, live_buffer_bytes{0}, live_images{0}, live_image_bytes{0}, pipelines{0};

  bool forked() const;
  bool is_left_alone() const { return forked() || abandoned; }
  void retire(Retired objects);                     // its id is set here: the last that was submitted
  void retire_after(uint64_t id, Retired objects);  // that execution was the last to use them
  void collect(bool all);
  std::pair<VkCommandPool, VkCommandBuffer> take_idle_commands();  // empty; null where there are none
  void abandon(const std::string& why);
  void note_duration(uint64_t id);  // notes how long an execution took that was seen to finish
  uint32_t memory_type(Heap heap, uint32_t allowed) const;
  // Marks the context lost where `result` says so, then throws what fits.
  void check_alive(VkResult result, const char* call);
};

int64_t wait_clock_nanoseconds();  // the clock of ContextState::begun

}  // namespace pumice
