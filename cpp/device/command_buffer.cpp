#include "device/command_buffer.h"

#include <algorithm>
#include <tuple>

#include "core/error.h"
#include "device/context_state.h"
#include "device/pipeline_log.h"

namespace pumice {
namespace {

constexpr VkPipelineStageFlags kWorkStages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkAccessFlags kReads = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_UNIFORM_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;
constexpr VkAccessFlags kWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;

constexpr size_t kCopiesPerCommand = 4096;
constexpr uint32_t kMaxReusableSets = 4;  // command buffers with more descriptor sets are not recycled

// Returns the pipeline stages that read group counts and predicates.
VkPipelineStageFlags get_guard_stage_mask(const DeviceTable& vk) {
  return VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT |
         (vk.has_conditional ? VkPipelineStageFlags{VK_PIPELINE_STAGE_CONDITIONAL_RENDERING_BIT_EXT} : VkPipelineStageFlags{0});
}

VkAccessFlags get_guard_access_mask(const DeviceTable& vk) {
  return VK_ACCESS_INDIRECT_COMMAND_READ_BIT |
         (vk.has_conditional ? VkAccessFlags{VK_ACCESS_CONDITIONAL_RENDERING_READ_BIT_EXT} : VkAccessFlags{0});
}

void record_barrier(DeviceTable& vk, VkCommandBuffer commands, VkPipelineStageFlags from, VkAccessFlags from_access,
                    VkPipelineStageFlags to, VkAccessFlags to_access) {
  VkMemoryBarrier barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER};
  barrier.srcAccessMask = from_access;
  barrier.dstAccessMask = to_access;
  vk.vkCmdPipelineBarrier(commands, from, to, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

VkDescriptorPool create_descriptor_pool(DeviceTable& vk, const CommandBufferSizes& sizes) {
  std::vector<VkDescriptorPoolSize> counts;
  for (size_t kind = 0; kind < kDescriptorKinds; ++kind)
    if (sizes.descriptors[kind]) counts.push_back({to_descriptor_type(static_cast<DescriptorKind>(kind)), sizes.descriptors[kind]});
  if (counts.empty()) counts.push_back({VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1});
  VkDescriptorPoolCreateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO};
  info.maxSets = sizes.sets;
  info.poolSizeCount = static_cast<uint32_t>(counts.size());
  info.pPoolSizes = counts.data();
  VkDescriptorPool pool = VK_NULL_HANDLE;
  check_vk_result(vk.vkCreateDescriptorPool(vk.device, &info, nullptr, &pool), "vkCreateDescriptorPool");
  return pool;
}

void record_buffer_copies(DeviceTable& vk, VkCommandBuffer commands, const Buffer& source, const Buffer& target,
                          std::span<const VkBufferCopy> vk_regions) {
  for (; !vk_regions.empty(); vk_regions = vk_regions.subspan(std::min(vk_regions.size(), kCopiesPerCommand)))
    vk.vkCmdCopyBuffer(commands, source.handle(), target.handle(), static_cast<uint32_t>(std::min(vk_regions.size(), kCopiesPerCommand)),
                       vk_regions.data());
}

VkBufferImageCopy make_whole_image_copy(const BufferRange& packed, const Image& image) {
  const auto extent = image.extent();
  VkBufferImageCopy region{};
  region.bufferOffset = packed.offset;
  region.imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1};
  region.imageExtent = {extent[0], extent[1], extent[2]};
  return region;
}

std::vector<VkDescriptorSet> allocate_descriptor_sets(DeviceTable& vk, VkDescriptorPool pool,
                                                      std::span<const VkDescriptorSetLayout> layouts) {
  VkDescriptorSetAllocateInfo allocate{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO};
  allocate.descriptorPool = pool;
  allocate.descriptorSetCount = static_cast<uint32_t>(layouts.size());
  allocate.pSetLayouts = layouts.data();
  std::vector<VkDescriptorSet> sets(layouts.size());
  check_vk_result(vk.vkAllocateDescriptorSets(vk.device, &allocate, sets.data()), "vkAllocateDescriptorSets");
  return sets;
}

}  // namespace

CommandBuffer::CommandBuffer(std::shared_ptr<Context> context, const CommandBufferSizes& sizes) : context_(std::move(context)) {
  auto& vk = context_->vk();
  guards_ = sizes.guards;
  is_reusable_ = sizes.sets <= kMaxReusableSets && sizes.timestamps == 0;
  if (is_reusable_) std::tie(pool_, commands_) = context_->state().take_idle_command_buffer();
  if (!commands_) allocate_command_buffer();
  if (sizes.sets > 0) descriptors_ = create_descriptor_pool(vk, sizes);
  if (sizes.timestamps == 0 || vk.timestamp_bits == 0) return;
  timestamp_count_ = sizes.timestamps;
  host_resets_ = sizes.host_resets && context_->feature("hostQueryReset");
  VkQueryPoolCreateInfo queries{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
  queries.queryType = VK_QUERY_TYPE_TIMESTAMP;
  queries.queryCount = sizes.timestamps;
  check_vk_result(vk.vkCreateQueryPool(vk.device, &queries, nullptr, &queries_), "vkCreateQueryPool");
}

void CommandBuffer::allocate_command_buffer() {
  auto& vk = context_->vk();
  VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  pool.queueFamilyIndex = vk.family;
  check_vk_result(vk.vkCreateCommandPool(vk.device, &pool, nullptr, &pool_), "vkCreateCommandPool");
  VkCommandBufferAllocateInfo allocate{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
  allocate.commandPool = pool_;
  allocate.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  allocate.commandBufferCount = 1;
  check_vk_result(vk.vkAllocateCommandBuffers(vk.device, &allocate, &commands_), "vkAllocateCommandBuffers");
}

CommandBuffer::~CommandBuffer() {
  auto& state = context_->state();
  if (state.is_forked_child()) return;
  state.retire_after(last_, {.queries = queries_,
                             .descriptors = descriptors_,
                             .commands = pool_,
                             .reusable_commands = is_reusable_ ? commands_ : nullptr,
                             .owner = std::move(kept_alive_)});
}

void CommandBuffer::begin() {
  auto& vk = context_->vk();
  VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  // A command buffer may be resubmitted while its last submission is still running.
  info.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
  check_vk_result(vk.vkBeginCommandBuffer(commands_, &info), "vkBeginCommandBuffer");
  if (queries_ && !host_resets_) vk.vkCmdResetQueryPool(commands_, queries_, 0, timestamp_count_);
  record_barrier(vk, commands_, kWorkStages | (guards_ ? get_guard_stage_mask(vk) : 0u), kWrites,
                 kWorkStages | (guards_ ? get_guard_stage_mask(vk) : 0u), kReads | kWrites | (guards_ ? get_guard_access_mask(vk) : 0u));
}

void CommandBuffer::barrier(bool guards) {
  auto& vk = context_->vk();
  // Names only the stages involved: on an H200 a dispatch takes 1.9 us with this barrier and 4.4 us with an all-commands barrier.
  constexpr VkAccessFlags kShader = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_UNIFORM_READ_BIT;
  const VkPipelineStageFlags before = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | (guards_ ? get_guard_stage_mask(vk) : 0u);
  const VkPipelineStageFlags after = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | (guards ? get_guard_stage_mask(vk) : 0u);
  record_barrier(vk, commands_, before, VK_ACCESS_SHADER_WRITE_BIT, after, kShader | (guards ? get_guard_access_mask(vk) : 0u));
}

void CommandBuffer::begin_conditional(const BufferRange& word) {
  VkConditionalRenderingBeginInfoEXT info{VK_STRUCTURE_TYPE_CONDITIONAL_RENDERING_BEGIN_INFO_EXT};
  info.buffer = word.buffer->handle();
  info.offset = word.offset;
  context_->vk().vkCmdBeginConditionalRenderingEXT(commands_, &info);
}

void CommandBuffer::end_conditional() {
  context_->vk().vkCmdEndConditionalRenderingEXT(commands_);
}

void CommandBuffer::write_descriptor_sets(std::span<const DispatchResources> uses) {
  auto& vk = context_->vk();
  std::vector<VkDescriptorSetLayout> layouts;
  size_t buffers = 0, images = 0;
  for (const DispatchResources& use : uses) {
    if (!use.pipeline->bindings().empty()) layouts.push_back(use.pipeline->set_layout());
    buffers += use.buffers.size(), images += use.images.size();
    for (const BufferRange& range : use.buffers) track_write(*range.buffer);
  }
  if (layouts.empty()) return;
  sets_ = allocate_descriptor_sets(vk, descriptors_, layouts);
  std::vector<VkDescriptorBufferInfo> buffer_infos;
  std::vector<VkDescriptorImageInfo> image_infos;
  std::vector<VkWriteDescriptorSet> writes;
  buffer_infos.reserve(buffers), image_infos.reserve(images),
      writes.reserve(buffers + images);  // elements of `writes` point into buffer_infos and image_infos
  auto set = sets_.begin();
  for (const DispatchResources& use : uses) {
    const auto& bindings = use.pipeline->bindings();
    for (size_t i = 0; i < bindings.size(); ++i) {
      VkWriteDescriptorSet& write = writes.emplace_back(VkWriteDescriptorSet{VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET});
      write.dstSet = *set;
      write.dstBinding = bindings[i].number;
      write.dstArrayElement = bindings[i].element;
      write.descriptorCount = 1;
      write.descriptorType = to_descriptor_type(bindings[i].kind);
      if (i < use.buffers.size()) {
        const BufferRange& range = use.buffers[i];
        write.pBufferInfo = &buffer_infos.emplace_back(VkDescriptorBufferInfo{range.buffer->handle(), range.offset, range.bytes});
      } else {
        const Image& image = *use.images[i - use.buffers.size()];
        write.pImageInfo = &image_infos.emplace_back(VkDescriptorImageInfo{image.sampler(), image.view(), VK_IMAGE_LAYOUT_GENERAL});
      }
    }
    if (!bindings.empty()) ++set;
  }
  vk.vkUpdateDescriptorSets(vk.device, static_cast<uint32_t>(writes.size()), writes.data(), 0, nullptr);
}

bool CommandBuffer::bind_pipeline(const Pipeline& pipeline, std::span<const std::byte> push) {
  auto& vk = context_->vk();
  if (!pipeline.handle()) {  // compile-only context: the driver failed to compile it
    if (!pipeline.bindings().empty()) ++next_set_;
    return false;
  }
  if (pipeline.record()) mark_pipeline_used(*context_, *pipeline.record());
  if (&pipeline != bound_pipeline_) vk.vkCmdBindPipeline(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.handle());
  bound_pipeline_ = &pipeline;
  if (!pipeline.bindings().empty())
    vk.vkCmdBindDescriptorSets(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.layout(), 0, 1, &sets_[next_set_++], 0, nullptr);
  if (!push.empty())
    vk.vkCmdPushConstants(commands_, pipeline.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, static_cast<uint32_t>(push.size()), push.data());
  return true;
}

void CommandBuffer::dispatch(const Pipeline& pipeline, std::span<const std::byte> push, std::array<uint32_t, 3> groups) {
  if (bind_pipeline(pipeline, push)) context_->vk().vkCmdDispatch(commands_, groups[0], groups[1], groups[2]);
}

void CommandBuffer::dispatch_indirect(const Pipeline& pipeline, std::span<const std::byte> push, const BufferRange& counts) {
  if (bind_pipeline(pipeline, push)) context_->vk().vkCmdDispatchIndirect(commands_, counts.buffer->handle(), counts.offset);
}

void CommandBuffer::track_write(const Buffer& buffer) {
  uses_host_memory_ = uses_host_memory_ || buffer.mappable();
}

void CommandBuffer::scatter(const BufferRange& source, const Buffer& target, std::span<const BufferRegion> regions) {
  track_write(target);
  std::vector<VkBufferCopy> vk_regions;
  uint64_t done = source.offset;
  for (const auto& region : regions) {
    vk_regions.push_back({done, region.offset, region.bytes});
    done += region.bytes;
  }
  record_buffer_copies(context_->vk(), commands_, *source.buffer, target, vk_regions);
}

void CommandBuffer::gather(const Buffer& source, std::span<const BufferRegion> regions, const BufferRange& target) {
  track_write(*target.buffer);
  std::vector<VkBufferCopy> vk_regions;
  uint64_t done = target.offset;
  for (const auto& region : regions) {
    vk_regions.push_back({region.offset, done, region.bytes});
    done += region.bytes;
  }
  record_buffer_copies(context_->vk(), commands_, source, *target.buffer, vk_regions);
}

void CommandBuffer::fill(const BufferRange& target, uint32_t word) {
  track_write(*target.buffer);
  context_->vk().vkCmdFillBuffer(commands_, target.buffer->handle(), target.offset, target.bytes, word);
}

void CommandBuffer::copy(const BufferRange& source, const Image& target) {
  auto& vk = context_->vk();
  const VkBufferImageCopy region = make_whole_image_copy(source, target);
  vk.vkCmdCopyBufferToImage(commands_, source.buffer->handle(), target.handle(), VK_IMAGE_LAYOUT_GENERAL, 1, &region);
}

void CommandBuffer::copy(const Image& source, const BufferRange& target) {
  track_write(*target.buffer);
  auto& vk = context_->vk();
  const VkBufferImageCopy region = make_whole_image_copy(target, source);
  vk.vkCmdCopyImageToBuffer(commands_, source.handle(), VK_IMAGE_LAYOUT_GENERAL, target.buffer->handle(), 1, &region);
}

// Images stay in the general layout, which serves storage, sampling and copies.
void CommandBuffer::transition_to_general(const Image& image) {
  auto& vk = context_->vk();
  VkImageMemoryBarrier barrier{VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER};
  barrier.dstAccessMask = kReads | kWrites;
  barrier.oldLayout = VK_IMAGE_LAYOUT_UNDEFINED;
  barrier.newLayout = VK_IMAGE_LAYOUT_GENERAL;
  barrier.srcQueueFamilyIndex = barrier.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED;
  barrier.image = image.handle();
  barrier.subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
  vk.vkCmdPipelineBarrier(commands_, kWorkStages, kWorkStages, 0, 0, nullptr, 0, nullptr, 1, &barrier);
}

void CommandBuffer::write_timestamp(uint32_t index) {
  if (!queries_) return;
  auto& vk = context_->vk();
  vk.vkCmdWriteTimestamp(commands_, index == 0 ? VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT : VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries_, index);
}

void CommandBuffer::reset_timestamps() {
  if (host_resets_) context_->vk().vkResetQueryPool(context_->vk().device, queries_, 0, timestamp_count_);
}

void CommandBuffer::end() {
  auto& vk = context_->vk();
  // A host barrier costs 1 us on an H200, so it is skipped if only device-local memory is used.
  if (uses_host_memory_) record_barrier(vk, commands_, kWorkStages, kWrites, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
  check_vk_result(vk.vkEndCommandBuffer(commands_), "vkEndCommandBuffer");
}

uint64_t CommandBuffer::submit(const std::function<void()>& check) {
  const uint64_t id = context_->submit({&commands_, 1}, check);
  uint64_t current = last_;
  while (current < id && !last_.compare_exchange_weak(current, id)) {
  }
  return id;
}

std::vector<uint64_t> CommandBuffer::ticks() const {
  if (!queries_) return {};
  context_->require_execution("a measurement of device time");
  auto& vk = context_->vk();
  std::vector<uint64_t> ticks(timestamp_count_);
  check_vk_result(vk.vkGetQueryPoolResults(vk.device, queries_, 0, timestamp_count_, ticks.size() * sizeof(uint64_t), ticks.data(),
                                           sizeof(uint64_t), VK_QUERY_RESULT_64_BIT),
                  "vkGetQueryPoolResults");
  const uint64_t mask = vk.timestamp_bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << vk.timestamp_bits) - 1;
  for (uint64_t& tick : ticks) tick &= mask;
  return ticks;
}

double CommandBuffer::tick_nanoseconds() const {
  return context_->vk().timestamp_period;
}

std::vector<double> CommandBuffer::timestamps() const {
  constexpr double kNanosecond = 1e-9;
  const std::vector<uint64_t> stamps = ticks();
  std::vector<double> seconds;
  for (const uint64_t tick : stamps) seconds.push_back(static_cast<double>(tick - stamps[0]) * tick_nanoseconds() * kNanosecond);
  return seconds;
}

}  // namespace pumice
