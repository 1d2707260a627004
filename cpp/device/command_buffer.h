// A recorded Vulkan command buffer with its descriptor sets and timestamps.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/buffer.h"
#include "device/image.h"
#include "device/pipeline.h"

struct VkCommandPool_T;
struct VkDescriptorPool_T;
struct VkDescriptorSet_T;
struct VkQueryPool_T;

namespace pumice {

// Resource counts of a command buffer, known before recording so that each Vulkan pool is created once at its exact size.
struct CommandBufferSizes {
  uint32_t sets = 0;
  std::array<uint32_t, kDescriptorKinds> descriptors{};  // number of descriptors of each kind
  uint32_t timestamps = 0;
  bool guards = false;       // some dispatches run conditionally on a value in memory
  bool host_resets = false;  // reset_timestamps() is called before each submission, if the device supports host query reset
};

// The resources bound by a dispatch.
struct DispatchResources {
  const Pipeline* pipeline;
  std::span<const BufferRange> buffers;
  std::span<const std::shared_ptr<Image>> images;
};

// Not thread-safe while recording. May be resubmitted while an earlier submission is still running.
class CommandBuffer {
 public:
  CommandBuffer(std::shared_ptr<Context> context, const CommandBufferSizes& sizes);
  ~CommandBuffer();  // its Vulkan objects are freed once the last submission has finished
  CommandBuffer(const CommandBuffer&) = delete;

  // Begins recording with a barrier, so that the memory accesses of all earlier submissions come first.
  void begin();
  // Allocates and writes the descriptor sets of all later dispatches, in order. Batched into two Vulkan calls, which is much faster than
  // two per dispatch.
  void write_descriptor_sets(std::span<const DispatchResources> uses);
  void barrier(bool guards);  // compute to compute; with `guards`, also before reads of predicates and group counts
  // Records a dispatch with the next descriptor set from write_descriptor_sets().
  void dispatch(const Pipeline& pipeline, std::span<const std::byte> push, std::array<uint32_t, 3> groups);
  // Like dispatch(), with three group counts read from device memory. If a count is 0, no workgroup runs.
  void dispatch_indirect(const Pipeline& pipeline, std::span<const std::byte> push, const BufferRange& counts);
  // Dispatches recorded before end_conditional() run only if the 32-bit word is non-zero; it must not change in between. Requires
  // conditionalRendering.
  void begin_conditional(const BufferRange& word);
  void end_conditional();
  // Copy consecutive bytes of a range to regions of a buffer, or the reverse, as transfer commands.
  void scatter(const BufferRange& source, const Buffer& target, std::span<const BufferRegion> regions);
  void gather(const Buffer& source, std::span<const BufferRegion> regions, const BufferRange& target);
  void fill(const BufferRange& target, uint32_t word);        // the range must be a multiple of 4 bytes
  void copy(const BufferRange& source, const Image& target);  // copies the whole image, packed
  void copy(const Image& source, const BufferRange& target);
  void transition_to_general(const Image& image);  // transitions a new image to the general layout; its content is undefined
  void write_timestamp(uint32_t index);
  // Call before a submission if CommandBufferSizes::host_resets is set. No earlier submission may still be running.
  void reset_timestamps();
  void end();  // also makes writes to host-visible memory available to the host

  // Keeps an object alive until the last submission has finished.
  void keep_alive(std::shared_ptr<const void> object) { kept_alive_ = std::move(object); }
  uint64_t submit(const std::function<void()>& check = {});  // like Context::submit
  uint64_t last_submission() const { return last_; }
  // Seconds since the first timestamp, for each timestamp of the last finished submission.
  std::vector<double> timestamps() const;
  std::vector<uint64_t> ticks() const;  // raw counter values of the timestamps; empty if there are none
  double tick_nanoseconds() const;
  const std::shared_ptr<Context>& context() const { return context_; }

 private:
  void allocate_command_buffer();
  bool bind_pipeline(const Pipeline& pipeline, std::span<const std::byte> push);  // false: there is no pipeline to run
  void track_write(const Buffer& buffer);                                         // records that the device may write to the buffer

  std::shared_ptr<Context> context_;
  VkCommandPool_T* pool_ = nullptr;
  VkCommandBuffer_T* commands_ = nullptr;
  VkDescriptorPool_T* descriptors_ = nullptr;
  VkQueryPool_T* queries_ = nullptr;
  uint32_t timestamp_count_ = 0;
  bool guards_ = false;
  bool host_resets_ = false;
  bool uses_host_memory_ = false;         // whether host-visible memory is used
  bool is_reusable_ = false;              // pool and commands can be recycled: few descriptors, no timestamps
  std::vector<VkDescriptorSet_T*> sets_;  // descriptor sets, only for dispatches with descriptors
  size_t next_set_ = 0;
  const Pipeline* bound_pipeline_ = nullptr;
  std::shared_ptr<const void> kept_alive_;
  std::atomic<uint64_t> last_{0};
};

}  // namespace pumice
