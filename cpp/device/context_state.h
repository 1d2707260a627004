// What a Context holds, for the device layer's .cpp files only.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "device/buffer.h"
#include "device/context.h"
#include "device/image.h"
#include "device/memory.h"
#include "device/vulkan.h"

namespace pumice {

// Vulkan objects of a buffer or an image and their memory, freed once `id` has finished.
struct Retired {
  uint64_t id;
  VkBuffer buffer;
  VkImage image;
  VkImageView view;
  Allocation allocation;
  std::shared_ptr<const void> owner = {};  // of imported host memory
};

struct Context::State {
  DeviceInfo info;
  std::string choice;
  std::shared_ptr<DeviceTable> vk = std::make_shared<DeviceTable>();
  std::unique_ptr<MemoryPool> memory;
  VkSemaphore timeline = VK_NULL_HANDLE;
  std::atomic<bool> closed{false}, lost{false};

  std::mutex submit_mutex;
  std::atomic<uint64_t> submitted{0}, finished{0};

  std::mutex mutex;  // of what follows up to the counts
  std::vector<Retired> retired;
  std::map<std::type_index, std::shared_ptr<void>> attachments;
  std::vector<std::pair<SamplerOptions, VkSampler>> samplers;  // of images: devices have few
  std::atomic<uint64_t> live_buffers{0}, live_buffer_bytes{0}, live_images{0}, live_image_bytes{0}, pipelines{0};

  bool forked() const;
  void retire(Retired objects);  // its id is set here: the last that was submitted
  void collect(bool all);
  uint32_t memory_type(Heap heap, uint32_t allowed) const;
  bool unified() const;  // the default heap's memory is host-visible, coherent and cached
  // Marks the context lost where `result` says so, then throws what fits.
  void check_alive(VkResult result, const char* call);
};

// The state of a context that is still usable. Throws StateError (closed, forked) or DeviceLostError.
Context::State& state_of(Context& context);

}  // namespace pumice
