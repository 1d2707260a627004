// A recorded Vulkan command buffer with its descriptor sets and timestamps: what dispatch records into.
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

// How much a command buffer must hold. It is counted before recording, so that each Vulkan pool is made once, in its exact size.
struct CommandBufferSizes {
  uint32_t sets = 0;
  std::array<uint32_t, kDescriptorKinds> descriptors{};  // by kind
  uint32_t timestamps = 0;
  bool guards = false;       // dispatches that read from memory whether they run
  bool host_resets = false;  // reset_timestamps() comes before each submission, where the device can do that
};

// The resources that the descriptors of one dispatch refer to.
struct DescriptorUse {
  const Pipeline* pipeline;
  std::span<const BufferRange> buffers;
  std::span<const std::shared_ptr<Image>> images;
};

// A CommandBuffer is not thread-safe while recording. It may be submitted again while an earlier submission is still running.
class CommandBuffer {
 public:
  CommandBuffer(std::shared_ptr<Context> context, const CommandBufferSizes& sizes);
  ~CommandBuffer();  // its objects are freed once the last submission has finished
  CommandBuffer(const CommandBuffer&) = delete;

  // Starts with a barrier against everything submitted earlier, so that executions follow one another in memory too.
  void begin();
  // Makes the descriptor sets of all dispatches to come, in their order: in two calls, which drivers take far quicker than two for each.
  void describe(std::span<const DescriptorUse> uses);
  void barrier(bool guards);  // compute -> compute, and to what guards the dispatches after it
  // Records one dispatch with the next descriptor set of those that describe() made.
  void dispatch(const Pipeline& pipeline, std::span<const std::byte> push, std::array<uint32_t, 3> groups);
  // Like dispatch(), with the group counts read from memory: three words, zeros for no group.
  void dispatch_indirect(const Pipeline& pipeline, std::span<const std::byte> push, const BufferRange& counts);
  // Dispatches up to end_guard() run only where the word is not zero; it may not change in between. Needs conditionalRendering.
  void begin_guard(const BufferRange& word);
  void end_guard();
  // The bytes of a range to the pieces of another buffer one after the other, and back; by the transfer engine.
  void scatter(const BufferRange& source, const Buffer& target, std::span<const BufferPiece> pieces);
  void gather(const Buffer& source, std::span<const BufferPiece> pieces, const BufferRange& target);
  void fill(const BufferRange& target, uint32_t word);        // a range of whole words
  void copy(const BufferRange& source, const Image& target);  // the whole image, packed
  void copy(const Image& source, const BufferRange& target);
  void make_usable(const Image& image);  // a new one, for every use; its content is undefined
  void timestamp(uint32_t index);
  // Before a submission, where CommandBufferSizes::host_resets is set: no earlier one may still be running.
  void reset_timestamps();
  void end();  // makes the results visible to the host, where they lie in memory that it can see

  // Keeps an object alive until the last submission has finished.
  void keep(std::shared_ptr<const void> used) { kept_ = std::move(used); }
  uint64_t submit(const std::function<void()>& check = {});  // as Context::submit
  uint64_t last_submission() const { return last_; }
  // Seconds from the first stamp of the last finished submission to each of them.
  std::vector<double> timestamps() const;
  std::vector<uint64_t> ticks() const;  // the same stamps as the device's counter has them; empty without stamps
  double tick_nanoseconds() const;
  const std::shared_ptr<Context>& context() const { return context_; }

 private:
  void make_commands();
  void bind(const Pipeline& pipeline, std::span<const std::byte> push);
  void note_use(const Buffer& buffer);  // of one that may be written

  std::shared_ptr<Context> context_;
  VkCommandPool_T* pool_ = nullptr;
  VkCommandBuffer_T* commands_ = nullptr;
  VkDescriptorPool_T* descriptors_ = nullptr;
  VkQueryPool_T* queries_ = nullptr;
  uint32_t timestamp_count_ = 0;
  bool guards_ = false;
  bool host_resets_ = false;
  bool host_sees_ = false;                // memory that is used
  bool is_small_ = false;                 // with few descriptors and no timestamps: pool and commands may serve again
  std::vector<VkDescriptorSet_T*> sets_;  // sets of the dispatches that have descriptors
  size_t next_set_ = 0;
  const Pipeline* bound_ = nullptr;
  std::shared_ptr<const void> kept_;
  std::atomic<uint64_t> last_{0};
};

}  // namespace pumice
