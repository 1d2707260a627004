#include "device/context_state.h"

#include <bit>
#include <ctime>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "device/driver/instance.h"

namespace pumice {
namespace {

constexpr size_t kMaxIdle = 16;  // maximum number of recycled command buffers; enough for two transfers

}  // namespace

bool ContextState::is_forked_child() const {
  return vk->generation != get_fork_generation();
}

uint32_t ContextState::choose_memory_type(Heap heap, uint32_t allowed) const {
  constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, kVisible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT,
                                  kCoherent = VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  const bool discrete = info.kind == DeviceKind::discrete;
  // Required memory flags, then preferred (+) and avoided (-) flags in order of priority.
  struct MemoryPreference {
    VkMemoryPropertyFlags required, preferred, avoided;
  };
  const MemoryPreference preference = heap == Heap::default_
                                          ? MemoryPreference{kLocal, discrete ? 0 : kVisible | kCoherent | kCached, discrete ? kVisible : 0}
                                      : heap == Heap::upload  ? MemoryPreference{kVisible | kCoherent, 0, discrete ? kLocal | kCached : 0}
                                      : heap == Heap::written ? MemoryPreference{kVisible | kCoherent, kLocal, kCached}
                                                              : MemoryPreference{kVisible | kCoherent, kCached, discrete ? kLocal : 0};
  std::optional<uint32_t> best;
  int best_score = 0;
  for (uint32_t i = 0; i < vk->memory.memoryTypeCount; ++i) {
    const auto flags = vk->memory.memoryTypes[i].propertyFlags;
    if (!(allowed >> i & 1) || (flags & preference.required) != preference.required) continue;
    const int score = std::popcount(flags & preference.preferred) - std::popcount(flags & preference.avoided);
    if (!best || score > best_score) best = i, best_score = score;
  }
  if (!best) throw DeviceError("the device has no memory type for the heap '" + std::string(name(heap)) + "'");
  return *best;
}

void ContextState::retire(RetiredObjects objects) {
  uint64_t id = 0;
  {
    const std::lock_guard lock(submit_mutex);  // so that `submitted` includes all submissions whose check saw open objects
    id = submitted.load();
  }
  retire_after(id, std::move(objects));
}

void ContextState::retire_after(uint64_t id, RetiredObjects objects) {
  objects.id = id;
  if (abandoned) return leak(std::move(objects));
  {
    const std::lock_guard lock(mutex);
    retired.push_back(std::move(objects));
  }
  free_retired_objects(false);
}

void ContextState::free_retired_objects(bool all) {
  std::vector<std::shared_ptr<const void>> owners;  // released after the lock: the owner of a NumPy array acquires the GIL
  const std::lock_guard lock(mutex);
  if (abandoned) return;
  if (all)
    for (const auto& [pool, commands] : std::exchange(idle_commands, {})) vk->vkDestroyCommandPool(vk->device, pool, nullptr);
  if (retired.empty()) return;
  uint64_t value = finished.load();
  if (!all && !compile_only()) vk->vkGetSemaphoreCounterValue(vk->device, timeline, &value);
  std::erase_if(retired, [&](RetiredObjects& entry) {
    if (!all && entry.id > value) return false;
    vk->vkDestroyBuffer(vk->device, entry.buffer, nullptr);
    vk->vkDestroyImageView(vk->device, entry.view, nullptr);
    vk->vkDestroyImage(vk->device, entry.image, nullptr);
    vk->vkDestroyQueryPool(vk->device, entry.queries, nullptr);
    vk->vkDestroyDescriptorPool(vk->device, entry.descriptors, nullptr);
    vk->vkDestroySemaphore(vk->device, entry.semaphore, nullptr);
    if (all || !entry.reusable_commands || idle_commands.size() >= kMaxIdle ||
        vk->vkResetCommandPool(vk->device, entry.commands, 0) != VK_SUCCESS)
      vk->vkDestroyCommandPool(vk->device, entry.commands, nullptr);
    else
      idle_commands.emplace_back(entry.commands, entry.reusable_commands);
    if (entry.allocation.block) memory->release(entry.allocation);
    if (entry.owner) owners.push_back(std::move(entry.owner));
    return true;
  });
}

std::pair<VkCommandPool, VkCommandBuffer> ContextState::take_idle_command_buffer() {
  const std::lock_guard lock(mutex);
  if (idle_commands.empty()) return {};
  const auto idle = idle_commands.back();
  idle_commands.pop_back();
  return idle;
}

void ContextState::check_device_result(VkResult result, const char* call) {
  if (result == VK_ERROR_DEVICE_LOST) lost = true;
  check_vk_result(result, call);
}

// Called at every submission, so it uses the coarse clock, which avoids reading the TSC. Its resolution of a few ms suffices: the measured
// times are seconds.
int64_t get_coarse_time_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

void ContextState::abandon_device(const std::string& why) {
  vk->abandoned = true;
  if (abandoned.exchange(true)) return;
  skip_driver_exit_handlers();
  log(LogLevel::error, "the context of '" + info.name + "' is abandoned: " + why + "; its " + std::to_string(live_buffers + live_images) +
                           " buffers and images of " + std::to_string(live_buffer_bytes + live_image_bytes) +
                           " bytes are not freed, and the process will end without waiting for the driver");
}

void ContextState::record_duration(uint64_t id) {
  if (submitted.load(std::memory_order_relaxed) - id >= submit_times.size()) return;  // its submission time has been overwritten
  const double seconds =
      static_cast<double>(get_coarse_time_ns() - submit_times[id % submit_times.size()].load(std::memory_order_relaxed)) * 1e-9;
  double longest = longest_seconds.load();
  while (longest < seconds && !longest_seconds.compare_exchange_weak(longest, seconds)) {
  }
}

}  // namespace pumice
