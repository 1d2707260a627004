// A Vulkan layer that injects faults at submission, for tests of pumice.validate. Not part of the engine.
//
// The layer forwards every call and keeps the calls of each command buffer as a list. If the fault set by the test matches a submitted
// list, the layer records a faulty copy of that list and submits it instead. A list recorded once can thus be clean in one run and faulty
// in the next. vkCreateShaderModule can substitute another module, selected by the hash of the original. Python controls the layer with
// ctypes, through the extern "C" functions at the end.
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

constexpr char kName[] = "VK_LAYER_PUMICE_faults";

// ---- state

uint64_t hash_bytes(const void* data, size_t size, uint64_t hash = 0xcbf29ce484222325ull) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  return hash;
}

#define DEVICE_FUNCTIONS(X)                                                                                                             \
  X(DestroyDevice)                                                                                                                      \
  X(CreateShaderModule)                                                                                                                 \
  X(CreateComputePipelines) X(CreateDescriptorSetLayout) X(CreatePipelineLayout) X(AllocateDescriptorSets) X(UpdateDescriptorSets)      \
      X(BindBufferMemory) X(MapMemory) X(CreateCommandPool) X(DestroyCommandPool) X(AllocateCommandBuffers) X(BeginCommandBuffer)       \
          X(EndCommandBuffer) X(CmdBindPipeline) X(CmdBindDescriptorSets) X(CmdPushConstants) X(CmdDispatch) X(CmdDispatchBase)         \
              X(CmdDispatchIndirect) X(CmdPipelineBarrier) X(CmdCopyBuffer) X(CmdFillBuffer) X(CmdUpdateBuffer) X(CmdCopyBufferToImage) \
                  X(CmdCopyImageToBuffer) X(CmdResetQueryPool) X(CmdWriteTimestamp) X(CmdBeginConditionalRenderingEXT)                  \
                      X(CmdEndConditionalRenderingEXT) X(QueueSubmit) X(DeviceWaitIdle)

struct Device {
  VkDevice handle = VK_NULL_HANDLE;
  PFN_vkGetDeviceProcAddr next = nullptr;
  PFN_vkSetDeviceLoaderData set_loader_data = nullptr;
  uint32_t family = 0;
  VkCommandPool pool = VK_NULL_HANDLE;  // for faulty command buffers, which are freed with the device
#define MEMBER(name) PFN_vk##name name = nullptr;
  DEVICE_FUNCTIONS(MEMBER)
#undef MEMBER
};

struct Bound {
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceSize offset = 0, range = 0;
};

struct PipelineInfo {
  uint64_t module = 0;  // hash of the SPIR-V
  uint64_t key = 0;     // including the specialization constants
};

struct Item {
  enum Kind { dispatch, barrier, other } kind = other;
  std::function<void(Device&, VkCommandBuffer)> replay;  // for barriers and other calls
  VkPipeline pipeline = VK_NULL_HANDLE;
  VkPipelineLayout layout = VK_NULL_HANDLE;
  VkDescriptorSet set = VK_NULL_HANDLE;
  std::vector<uint8_t> push;
  std::array<uint32_t, 3> groups{};
  VkBuffer indirect = VK_NULL_HANDLE;
  VkDeviceSize indirect_offset = 0;
  uint64_t signature = 0;
};

struct List {
  std::vector<Item> items;
  Item state;            // currently bound pipeline, descriptor set and push constants
  int64_t copy_of = -1;  // serial of the fault in `copy`
  VkCommandBuffer copy = VK_NULL_HANDLE;
};

enum FaultKind { kNone, kDrop, kHalve, kSkipGroup, kPush, kOtherSet, kNoBarrier, kWeights, kOverwrite };

struct Fault {
  int32_t kind;
  int32_t dispatch;        // index in `target`
  uint32_t a, b, mask;     // see put_fault
  uint32_t period, phase;  // matching submissions phase, phase + period, ... are faulty
  int32_t exact;           // 1: no other dispatches may be in between, as in lists with copies after each step
};

std::recursive_mutex mutex;
std::map<void*, Device> devices;  // by dispatch key
std::map<void*, std::pair<VkInstance, PFN_vkGetInstanceProcAddr>> instances;
std::unordered_map<VkShaderModule, uint64_t> modules;
std::unordered_map<uint64_t, std::vector<uint32_t>> codes, replaced;
std::unordered_map<VkPipeline, PipelineInfo> pipelines;
std::unordered_map<VkDescriptorSetLayout, std::vector<uint32_t>> set_layouts;  // binding numbers
std::unordered_map<VkDescriptorSet, VkDescriptorSetLayout> sets;
std::unordered_map<VkDescriptorSet, std::map<uint32_t, Bound>> bound;
std::unordered_map<VkBuffer, std::pair<VkDeviceMemory, VkDeviceSize>> memories;
std::unordered_map<VkCommandBuffer, List> lists;
Fault fault{};
std::vector<uint64_t> target;  // dispatch signatures of the faulty list
int64_t serial = 0;
uint64_t matched = 0, faulty = 0;
bool logging = false;
std::string log_text, reply;

void* key_of(const void* handle) {
  return *static_cast<void* const*>(handle);
}
Device& device_of(const void* handle) {
  return devices.at(key_of(handle));
}

// ---- recording

void finish_dispatch(List& list) {
  Item item = list.state;
  item.kind = Item::dispatch;
  uint64_t hash = hash_bytes(&pipelines[item.pipeline].key, 8);
  hash = hash_bytes(item.push.data(), item.push.size(), hash);
  if (!item.indirect) hash = hash_bytes(item.groups.data(), sizeof item.groups, hash);
  item.signature = hash;
  list.items.push_back(std::move(item));
  list.state.indirect = VK_NULL_HANDLE;
}

void keep(VkCommandBuffer commands, Item::Kind kind, std::function<void(Device&, VkCommandBuffer)> replay) {
  Item item;
  item.kind = kind;
  item.replay = std::move(replay);
  lists[commands].items.push_back(std::move(item));
}

void emit_state(Device& device, VkCommandBuffer commands, const Item& item) {
  device.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, item.pipeline);
  if (item.set) device.CmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, item.layout, 0, 1, &item.set, 0, nullptr);
  if (!item.push.empty())
    device.CmdPushConstants(commands, item.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, static_cast<uint32_t>(item.push.size()),
                            item.push.data());
}

void emit(Device& device, VkCommandBuffer commands, const Item& item) {
  if (item.kind != Item::dispatch) return item.replay(device, commands);
  emit_state(device, commands, item);
  if (item.indirect)
    device.CmdDispatchIndirect(commands, item.indirect, item.indirect_offset);
  else
    device.CmdDispatch(commands, item.groups[0], item.groups[1], item.groups[2]);
}

// ---- faults

Item made_of(std::function<void(Device&, VkCommandBuffer)> replay) {
  Item item;
  item.replay = std::move(replay);
  return item;
}

Item whole_barrier() {
  return made_of([](Device& device, VkCommandBuffer commands) {
    VkMemoryBarrier all{VK_STRUCTURE_TYPE_MEMORY_BARRIER};
    all.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT, all.dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT;
    device.CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0, 1, &all, 0, nullptr, 0,
                              nullptr);
  });
}

// Dispatches all workgroups but one, as up to six boxes of the grid.
Item without_group(const Item& item, uint32_t skipped) {
  return made_of([item, skipped](Device& device, VkCommandBuffer commands) {
    const auto& n = item.groups;
    const uint32_t x = skipped % n[0], y = skipped / n[0] % n[1], z = skipped / n[0] / n[1] % n[2];
    const std::array<std::array<uint32_t, 6>, 6> boxes{{{0, 0, 0, n[0], n[1], z},
                                                        {0, 0, z + 1, n[0], n[1], n[2] - z - 1},
                                                        {0, 0, z, n[0], y, 1},
                                                        {0, y + 1, z, n[0], n[1] - y - 1, 1},
                                                        {0, y, z, x, 1, 1},
                                                        {x + 1, y, z, n[0] - x - 1, 1, 1}}};
    emit_state(device, commands, item);
    for (const auto& box : boxes)
      if (box[3] && box[4] && box[5]) device.CmdDispatchBase(commands, box[0], box[1], box[2], box[3], box[4], box[5]);
  });
}

// Returns the buffer at the `index`th binding of an item's descriptor set, or an empty one if there are fewer bindings.
Bound binding_of(const Item& item, uint32_t index) {
  const auto found = bound.find(item.set);
  if (found == bound.end() || index >= found->second.size()) return {};
  return std::next(found->second.begin(), index)->second;
}

uint32_t* word_of(Device& device, const Bound& range, uint32_t word) {
  const auto found = memories.find(range.buffer);
  void* base = nullptr;
  if (found == memories.end() || device.MapMemory(device.handle, found->second.first, 0, VK_WHOLE_SIZE, 0, &base) != VK_SUCCESS)
    return nullptr;
  return reinterpret_cast<uint32_t*>(static_cast<char*>(base) + found->second.second + range.offset) + word;
}

Item written_word(const Bound& range, uint32_t word, uint32_t value) {
  return made_of([=](Device& device, VkCommandBuffer commands) {
    device.CmdFillBuffer(commands, range.buffer, range.offset + word * 4ull, 4, value);
  });
}

bool same_layout(const Item& one, const Item& other) {
  const auto a = sets.find(one.set), b = sets.find(other.set);
  return a != sets.end() && b != sets.end() && set_layouts[a->second] == set_layouts[b->second];
}

// Removes the barrier before `at` and runs the dispatches after it, up to the next barrier, before the dispatches that precede it. Returns
// false if anything but a dispatch directly precedes the barrier: a list with a copy there keeps its barriers.
bool without_barrier(std::vector<Item>& items, size_t at) {
  size_t barrier = at;
  while (barrier > 0 && items[barrier].kind == Item::dispatch) --barrier;
  if (items[barrier].kind != Item::barrier || barrier == 0 || items[barrier - 1].kind != Item::dispatch) return false;
  size_t begin = barrier, end = barrier + 1;
  while (begin > 0 && items[begin - 1].kind == Item::dispatch) --begin;
  while (end < items.size() && items[end].kind == Item::dispatch) ++end;
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(barrier));
  std::rotate(items.begin() + static_cast<std::ptrdiff_t>(begin), items.begin() + static_cast<std::ptrdiff_t>(barrier),
              items.begin() + static_cast<std::ptrdiff_t>(end - 1));
  return true;
}

// Returns the index of the dispatch to corrupt if the list contains the target's dispatches in order; for an exact fault, the list has to
// start with them, up to that dispatch. Otherwise returns the number of items.
size_t place_in(const std::vector<Item>& items) {
  const auto wanted = static_cast<size_t>(fault.dispatch);
  size_t seen = 0, place = items.size();
  for (size_t i = 0; i < items.size() && seen < target.size(); ++i) {
    if (items[i].kind != Item::dispatch) continue;
    const bool same = items[i].signature == target[seen];
    if (!same && fault.exact) return items.size();
    if (same && seen++ == wanted) place = i;
    if (fault.exact && place < items.size()) return place;
  }
  return seen == target.size() ? place : items.size();
}

// Applies the fault to the items. Returns false if it is not applicable.
bool put_fault(Device& device, std::vector<Item>& items) {
  const size_t at = place_in(items);
  if (at == items.size()) return false;
  Item& item = items[at];
  const uint32_t groups = item.groups[0] * item.groups[1] * item.groups[2];
  switch (fault.kind) {
    case kDrop:
      items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
      return true;
    case kHalve: {  // a: the first axis to try
      for (uint32_t i = 0; i < 3; ++i)
        if (uint32_t& count = item.groups[(fault.a + i) % 3]; count > 1 && !item.indirect) return count /= 2, true;
      return false;
    }
    case kSkipGroup:  // a: index of the workgroup
      if (groups < 2 || item.indirect) return false;
      item = without_group(item, fault.a % groups);
      return true;
    case kPush: {  // a: the word, mask: the bits to flip
      if (item.push.size() < 4) return false;
      uint32_t word = 0;
      uint8_t* place = item.push.data() + fault.a % (item.push.size() / 4) * 4;
      std::memcpy(&word, place, 4), word ^= fault.mask, std::memcpy(place, &word, 4);
      return true;
    }
    case kOtherSet:
      for (size_t i = at; i-- > 0;)
        if (items[i].kind == Item::dispatch && items[i].set != item.set && same_layout(items[i], item))
          return item.set = items[i].set, true;
      return false;
    case kNoBarrier:
      return without_barrier(items, at);
    case kWeights: {  // a: the binding, b: the word, mask: the bits to flip while this dispatch runs
      const Bound range = binding_of(item, fault.a);
      const uint32_t* word =
          range.buffer && range.range >= 4 ? word_of(device, range, static_cast<uint32_t>(fault.b % (range.range / 4))) : nullptr;
      if (!word) return false;
      const uint32_t number = static_cast<uint32_t>(fault.b % (range.range / 4));
      const Item before[] = {whole_barrier(), written_word(range, number, *word ^ fault.mask), whole_barrier()};
      const Item after[] = {whole_barrier(), written_word(range, number, *word), whole_barrier()};
      items.insert(items.begin() + static_cast<std::ptrdiff_t>(at) + 1, std::begin(after), std::end(after));
      items.insert(items.begin() + static_cast<std::ptrdiff_t>(at), std::begin(before), std::end(before));
      return true;
    }
    case kOverwrite: {  // a: the binding, b: the word of the result that is set to `mask`
      const Bound range = binding_of(item, fault.a);
      if (!range.buffer || range.range < 4) return false;
      const Item after[] = {whole_barrier(), written_word(range, static_cast<uint32_t>(fault.b % (range.range / 4)), fault.mask),
                            whole_barrier()};
      items.insert(items.begin() + static_cast<std::ptrdiff_t>(at) + 1, std::begin(after), std::end(after));
      return true;
    }
    default:
      return false;
  }
}

// Returns a copy of the command buffer with the fault, or null if the fault is not applicable.
VkCommandBuffer faulty_copy(Device& device, List& list) {
  if (list.copy_of == serial) return list.copy;
  list.copy_of = serial, list.copy = VK_NULL_HANDLE;
  std::vector<Item> items = list.items;
  if (!put_fault(device, items)) return VK_NULL_HANDLE;
  if (!device.pool) {
    VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    pool.queueFamilyIndex = device.family;
    device.CreateCommandPool(device.handle, &pool, nullptr, &device.pool);
  }
  VkCommandBufferAllocateInfo allocate{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
  allocate.commandPool = device.pool;
  allocate.commandBufferCount = 1;
  if (device.AllocateCommandBuffers(device.handle, &allocate, &list.copy) != VK_SUCCESS) return VK_NULL_HANDLE;
  device.set_loader_data(device.handle, list.copy);
  VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  begin.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
  device.BeginCommandBuffer(list.copy, &begin);
  for (const Item& item : items) emit(device, list.copy, item);
  device.EndCommandBuffer(list.copy);
  return list.copy;
}

// ---- the log of submissions

void log_list(const List& list) {
  std::ostringstream line;
  line << "[";
  bool first = true;
  for (const Item& item : list.items) {
    line << (std::exchange(first, false) ? "" : ", ");
    if (item.kind != Item::dispatch) {
      line << (item.kind == Item::barrier ? "\"barrier\"" : "\"other\"");
      continue;
    }
    line << "{\"module\": " << pipelines[item.pipeline].module << ", \"signature\": " << item.signature
         << ", \"push\": " << item.push.size() / 4 << ", \"groups\": [" << item.groups[0] << ", " << item.groups[1] << ", "
         << item.groups[2] << "], \"indirect\": " << (item.indirect ? "true" : "false") << ", \"bindings\": [";
    bool first_range = true;
    if (const auto found = bound.find(item.set); found != bound.end())
      for (const auto& [number, range] : found->second)
        line << (std::exchange(first_range, false) ? "" : ", ") << "[" << reinterpret_cast<uintptr_t>(range.buffer) << ", " << range.offset
             << ", " << range.range << "]";
    line << "]}";
  }
  line << "]\n";
  log_text += line.str();
}

// ---- intercepted functions

#define LOCKED const std::lock_guard lock(mutex)

VKAPI_ATTR VkResult VKAPI_CALL CreateShaderModule(VkDevice handle, const VkShaderModuleCreateInfo* info, const VkAllocationCallbacks* host,
                                                  VkShaderModule* module) {
  LOCKED;
  Device& device = device_of(handle);
  const uint64_t hash = hash_bytes(info->pCode, info->codeSize);
  codes.try_emplace(hash, info->pCode, info->pCode + info->codeSize / 4);
  VkShaderModuleCreateInfo changed = *info;
  if (const auto found = replaced.find(hash); found != replaced.end()) {
    changed.pCode = found->second.data(), changed.codeSize = found->second.size() * 4;
    ++faulty;
  }
  const VkResult result = device.CreateShaderModule(handle, &changed, host, module);
  if (result == VK_SUCCESS) modules[*module] = hash;
  return result;
}

VKAPI_ATTR VkResult VKAPI_CALL CreateComputePipelines(VkDevice handle, VkPipelineCache cache, uint32_t count,
                                                      const VkComputePipelineCreateInfo* infos, const VkAllocationCallbacks* host,
                                                      VkPipeline* made) {
  LOCKED;
  Device& device = device_of(handle);
  std::vector<VkComputePipelineCreateInfo> changed(infos, infos + count);
  for (auto& info : changed) info.flags |= VK_PIPELINE_CREATE_DISPATCH_BASE_BIT;
  const VkResult result = device.CreateComputePipelines(handle, cache, count, changed.data(), host, made);
  for (uint32_t i = 0; i < count; ++i) {
    PipelineInfo& info = pipelines[made[i]];
    info.module = info.key = modules[infos[i].stage.module];
    if (const auto* constants = infos[i].stage.pSpecializationInfo) info.key = hash_bytes(constants->pData, constants->dataSize, info.key);
  }
  return result;
}

VKAPI_ATTR VkResult VKAPI_CALL CreateDescriptorSetLayout(VkDevice handle, const VkDescriptorSetLayoutCreateInfo* info,
                                                         const VkAllocationCallbacks* host, VkDescriptorSetLayout* made) {
  LOCKED;
  const VkResult result = device_of(handle).CreateDescriptorSetLayout(handle, info, host, made);
  auto& kept = set_layouts[*made];
  kept.clear();
  for (uint32_t i = 0; i < info->bindingCount; ++i)
    kept.push_back(info->pBindings[i].binding), kept.push_back(static_cast<uint32_t>(info->pBindings[i].descriptorType));
  return result;
}

VKAPI_ATTR VkResult VKAPI_CALL AllocateDescriptorSets(VkDevice handle, const VkDescriptorSetAllocateInfo* info, VkDescriptorSet* made) {
  LOCKED;
  const VkResult result = device_of(handle).AllocateDescriptorSets(handle, info, made);
  if (result != VK_SUCCESS) return result;
  for (uint32_t i = 0; i < info->descriptorSetCount; ++i) sets[made[i]] = info->pSetLayouts[i], bound[made[i]].clear();
  return result;
}

VKAPI_ATTR void VKAPI_CALL UpdateDescriptorSets(VkDevice handle, uint32_t count, const VkWriteDescriptorSet* writes, uint32_t copies,
                                                const VkCopyDescriptorSet* copied) {
  LOCKED;
  device_of(handle).UpdateDescriptorSets(handle, count, writes, copies, copied);
  for (uint32_t i = 0; i < count; ++i)
    if (const auto* info = writes[i].pBufferInfo) bound[writes[i].dstSet][writes[i].dstBinding] = {info->buffer, info->offset, info->range};
}

VKAPI_ATTR VkResult VKAPI_CALL BindBufferMemory(VkDevice handle, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize offset) {
  LOCKED;
  memories[buffer] = {memory, offset};
  return device_of(handle).BindBufferMemory(handle, buffer, memory, offset);
}

VKAPI_ATTR VkResult VKAPI_CALL BeginCommandBuffer(VkCommandBuffer commands, const VkCommandBufferBeginInfo* info) {
  LOCKED;
  lists[commands] = {};
  return device_of(commands).BeginCommandBuffer(commands, info);
}

VKAPI_ATTR void VKAPI_CALL CmdBindPipeline(VkCommandBuffer commands, VkPipelineBindPoint point, VkPipeline pipeline) {
  LOCKED;
  lists[commands].state = {};
  lists[commands].state.pipeline = pipeline;
  device_of(commands).CmdBindPipeline(commands, point, pipeline);
}

VKAPI_ATTR void VKAPI_CALL CmdBindDescriptorSets(VkCommandBuffer commands, VkPipelineBindPoint point, VkPipelineLayout layout,
                                                 uint32_t first, uint32_t count, const VkDescriptorSet* given, uint32_t offsets,
                                                 const uint32_t* dynamic) {
  LOCKED;
  Item& state = lists[commands].state;
  state.layout = layout, state.set = given[0];
  device_of(commands).CmdBindDescriptorSets(commands, point, layout, first, count, given, offsets, dynamic);
}

VKAPI_ATTR void VKAPI_CALL CmdPushConstants(VkCommandBuffer commands, VkPipelineLayout layout, VkShaderStageFlags stages, uint32_t offset,
                                            uint32_t size, const void* values) {
  LOCKED;
  Item& state = lists[commands].state;
  state.layout = layout;
  if (state.push.size() < offset + size) state.push.resize(offset + size);
  std::memcpy(state.push.data() + offset, values, size);
  device_of(commands).CmdPushConstants(commands, layout, stages, offset, size, values);
}

VKAPI_ATTR void VKAPI_CALL CmdDispatch(VkCommandBuffer commands, uint32_t x, uint32_t y, uint32_t z) {
  LOCKED;
  lists[commands].state.groups = {x, y, z};
  finish_dispatch(lists[commands]);
  device_of(commands).CmdDispatch(commands, x, y, z);
}

VKAPI_ATTR void VKAPI_CALL CmdDispatchIndirect(VkCommandBuffer commands, VkBuffer buffer, VkDeviceSize offset) {
  LOCKED;
  Item& state = lists[commands].state;
  state.indirect = buffer, state.indirect_offset = offset;
  finish_dispatch(lists[commands]);
  device_of(commands).CmdDispatchIndirect(commands, buffer, offset);
}

VKAPI_ATTR void VKAPI_CALL CmdPipelineBarrier(VkCommandBuffer commands, VkPipelineStageFlags from, VkPipelineStageFlags to,
                                              VkDependencyFlags flags, uint32_t n, const VkMemoryBarrier* all, uint32_t buffer_count,
                                              const VkBufferMemoryBarrier* buffers, uint32_t image_count,
                                              const VkImageMemoryBarrier* images) {
  LOCKED;
  std::vector<VkMemoryBarrier> a(all, all + n);
  std::vector<VkBufferMemoryBarrier> b(buffers, buffers + buffer_count);
  std::vector<VkImageMemoryBarrier> c(images, images + image_count);
  keep(commands, Item::barrier, [=](Device& device, VkCommandBuffer target) {
    device.CmdPipelineBarrier(target, from, to, flags, static_cast<uint32_t>(a.size()), a.data(), static_cast<uint32_t>(b.size()), b.data(),
                              static_cast<uint32_t>(c.size()), c.data());
  });
  device_of(commands).CmdPipelineBarrier(commands, from, to, flags, n, all, buffer_count, buffers, image_count, images);
}

// Records a call that no fault targets, and forwards it.
void pass(VkCommandBuffer commands, std::function<void(Device&, VkCommandBuffer)> call) {
  LOCKED;
  call(device_of(commands), commands);
  keep(commands, Item::other, std::move(call));
}

VKAPI_ATTR void VKAPI_CALL CmdCopyBuffer(VkCommandBuffer commands, VkBuffer source, VkBuffer target, uint32_t count,
                                         const VkBufferCopy* given) {
  pass(commands, [=, regions = std::vector(given, given + count)](Device& device, VkCommandBuffer to) {
    device.CmdCopyBuffer(to, source, target, static_cast<uint32_t>(regions.size()), regions.data());
  });
}

VKAPI_ATTR void VKAPI_CALL CmdFillBuffer(VkCommandBuffer commands, VkBuffer buffer, VkDeviceSize offset, VkDeviceSize size, uint32_t word) {
  pass(commands, [=](Device& device, VkCommandBuffer to) { device.CmdFillBuffer(to, buffer, offset, size, word); });
}

VKAPI_ATTR void VKAPI_CALL CmdCopyBufferToImage(VkCommandBuffer commands, VkBuffer source, VkImage image, VkImageLayout layout,
                                                uint32_t count, const VkBufferImageCopy* given) {
  pass(commands, [=, regions = std::vector(given, given + count)](Device& device, VkCommandBuffer to) {
    device.CmdCopyBufferToImage(to, source, image, layout, static_cast<uint32_t>(regions.size()), regions.data());
  });
}

VKAPI_ATTR void VKAPI_CALL CmdCopyImageToBuffer(VkCommandBuffer commands, VkImage image, VkImageLayout layout, VkBuffer target,
                                                uint32_t count, const VkBufferImageCopy* given) {
  pass(commands, [=, regions = std::vector(given, given + count)](Device& device, VkCommandBuffer to) {
    device.CmdCopyImageToBuffer(to, image, layout, target, static_cast<uint32_t>(regions.size()), regions.data());
  });
}

VKAPI_ATTR void VKAPI_CALL CmdResetQueryPool(VkCommandBuffer commands, VkQueryPool pool, uint32_t first, uint32_t count) {
  pass(commands, [=](Device& device, VkCommandBuffer to) { device.CmdResetQueryPool(to, pool, first, count); });
}

VKAPI_ATTR void VKAPI_CALL CmdWriteTimestamp(VkCommandBuffer commands, VkPipelineStageFlagBits stage, VkQueryPool pool, uint32_t query) {
  pass(commands, [=](Device& device, VkCommandBuffer to) { device.CmdWriteTimestamp(to, stage, pool, query); });
}

VKAPI_ATTR void VKAPI_CALL CmdBeginConditionalRenderingEXT(VkCommandBuffer commands, const VkConditionalRenderingBeginInfoEXT* given) {
  pass(commands, [info = *given](Device& device, VkCommandBuffer to) { device.CmdBeginConditionalRenderingEXT(to, &info); });
}

VKAPI_ATTR void VKAPI_CALL CmdEndConditionalRenderingEXT(VkCommandBuffer commands) {
  pass(commands, [](Device& device, VkCommandBuffer to) { device.CmdEndConditionalRenderingEXT(to); });
}

VKAPI_ATTR VkResult VKAPI_CALL QueueSubmit(VkQueue queue, uint32_t count, const VkSubmitInfo* given, VkFence fence) {
  LOCKED;
  Device& device = device_of(queue);
  std::vector<VkSubmitInfo> infos(given, given + count);
  std::vector<std::vector<VkCommandBuffer>> buffers;
  for (VkSubmitInfo& info : infos) {
    auto& chosen = buffers.emplace_back(info.pCommandBuffers, info.pCommandBuffers + info.commandBufferCount);
    for (VkCommandBuffer& commands : chosen) {
      List& list = lists[commands];
      if (logging) log_list(list);
      if (fault.kind == kNone) continue;
      VkCommandBuffer copy = faulty_copy(device, list);
      if (!copy || matched++ % fault.period != fault.phase) continue;
      commands = copy, ++faulty;
    }
    info.pCommandBuffers = chosen.data();
  }
  return device.QueueSubmit(queue, count, infos.data(), fence);
}

VKAPI_ATTR void VKAPI_CALL DestroyDevice(VkDevice handle, const VkAllocationCallbacks* host) {
  LOCKED;
  Device device = device_of(handle);
  devices.erase(key_of(handle));
  if (device.pool) device.DestroyCommandPool(handle, device.pool, nullptr);
  device.DestroyDevice(handle, host);
}

// ---- loader interface

template <typename Info>
Info* link_of(const void* next, VkStructureType type, VkLayerFunction function) {
  for (auto* info = static_cast<Info*>(const_cast<void*>(next)); info; info = static_cast<Info*>(const_cast<void*>(info->pNext)))
    if (info->sType == type && info->function == function) return info;
  return nullptr;
}

VKAPI_ATTR VkResult VKAPI_CALL CreateInstance(const VkInstanceCreateInfo* info, const VkAllocationCallbacks* host, VkInstance* instance) {
  auto* link = link_of<VkLayerInstanceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO, VK_LAYER_LINK_INFO);
  if (!link) return VK_ERROR_INITIALIZATION_FAILED;
  const auto next = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  const auto create = reinterpret_cast<PFN_vkCreateInstance>(next(VK_NULL_HANDLE, "vkCreateInstance"));
  const VkResult result = create(info, host, instance);
  if (result == VK_SUCCESS) {
    LOCKED;
    instances[key_of(*instance)] = {*instance, next};
  }
  return result;
}

VKAPI_ATTR VkResult VKAPI_CALL CreateDevice(VkPhysicalDevice physical, const VkDeviceCreateInfo* info, const VkAllocationCallbacks* host,
                                            VkDevice* made) {
  auto* link = link_of<VkLayerDeviceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO, VK_LAYER_LINK_INFO);
  auto* data = link_of<VkLayerDeviceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO, VK_LOADER_DATA_CALLBACK);
  if (!link || !data) return VK_ERROR_INITIALIZATION_FAILED;
  const auto next_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  const auto next = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  LOCKED;
  const VkInstance instance = instances.at(key_of(physical)).first;
  const auto create = reinterpret_cast<PFN_vkCreateDevice>(next_instance(instance, "vkCreateDevice"));
  const VkResult result = create(physical, info, host, made);
  if (result != VK_SUCCESS) return result;
  Device device;
  device.handle = *made, device.next = next, device.set_loader_data = data->u.pfnSetDeviceLoaderData;
  device.family = info->pQueueCreateInfos[0].queueFamilyIndex;
#define LOAD(name) device.name = reinterpret_cast<PFN_vk##name>(next(*made, "vk" #name));
  DEVICE_FUNCTIONS(LOAD)
#undef LOAD
  devices[key_of(*made)] = device;
  return result;
}

#define ENTRY(name) {"vk" #name, reinterpret_cast<PFN_vkVoidFunction>(&name)}

const std::unordered_map<std::string, PFN_vkVoidFunction>& device_entries() {
  static const std::unordered_map<std::string, PFN_vkVoidFunction> entries{ENTRY(DestroyDevice),
                                                                           ENTRY(CreateShaderModule),
                                                                           ENTRY(CreateComputePipelines),
                                                                           ENTRY(CreateDescriptorSetLayout),
                                                                           ENTRY(AllocateDescriptorSets),
                                                                           ENTRY(UpdateDescriptorSets),
                                                                           ENTRY(BindBufferMemory),
                                                                           ENTRY(BeginCommandBuffer),
                                                                           ENTRY(CmdBindPipeline),
                                                                           ENTRY(CmdBindDescriptorSets),
                                                                           ENTRY(CmdPushConstants),
                                                                           ENTRY(CmdDispatch),
                                                                           ENTRY(CmdDispatchIndirect),
                                                                           ENTRY(CmdPipelineBarrier),
                                                                           ENTRY(CmdCopyBuffer),
                                                                           ENTRY(CmdFillBuffer),
                                                                           ENTRY(CmdCopyBufferToImage),
                                                                           ENTRY(CmdCopyImageToBuffer),
                                                                           ENTRY(CmdResetQueryPool),
                                                                           ENTRY(CmdWriteTimestamp),
                                                                           ENTRY(CmdBeginConditionalRenderingEXT),
                                                                           ENTRY(CmdEndConditionalRenderingEXT),
                                                                           ENTRY(QueueSubmit)};
  return entries;
}

}  // namespace

extern "C" {

VK_LAYER_EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetDeviceProcAddr(VkDevice handle, const char* name) {
  if (std::strcmp(name, "vkGetDeviceProcAddr") == 0) return reinterpret_cast<PFN_vkVoidFunction>(&vkGetDeviceProcAddr);
  const auto own = device_entries().find(name);
  LOCKED;
  const PFN_vkVoidFunction next = device_of(handle).next(handle, name);
  return own != device_entries().end() && next ? own->second : next;
}

VK_LAYER_EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance handle, const char* name) {
  if (std::strcmp(name, "vkGetInstanceProcAddr") == 0) return reinterpret_cast<PFN_vkVoidFunction>(&vkGetInstanceProcAddr);
  if (std::strcmp(name, "vkGetDeviceProcAddr") == 0) return reinterpret_cast<PFN_vkVoidFunction>(&vkGetDeviceProcAddr);
  if (std::strcmp(name, "vkCreateInstance") == 0) return reinterpret_cast<PFN_vkVoidFunction>(&CreateInstance);
  if (std::strcmp(name, "vkCreateDevice") == 0) return reinterpret_cast<PFN_vkVoidFunction>(&CreateDevice);
  const auto own = device_entries().find(name);
  if (own != device_entries().end()) return own->second;
  if (!handle) return nullptr;
  LOCKED;
  return instances.at(key_of(handle)).second(handle, name);
}

VK_LAYER_EXPORT VKAPI_ATTR VkResult VKAPI_CALL vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface* version) {
  version->loaderLayerInterfaceVersion = 2;
  version->pfnGetInstanceProcAddr = &vkGetInstanceProcAddr;
  version->pfnGetDeviceProcAddr = &vkGetDeviceProcAddr;
  version->pfnGetPhysicalDeviceProcAddr = nullptr;
  return VK_SUCCESS;
}

// ---- control functions for ctypes

// Sets the fault for later submissions (kind 0: none) and resets the counters.
VK_LAYER_EXPORT void fault_set(const Fault* given, const uint64_t* signatures, uint64_t count) {
  LOCKED;
  fault = *given, ++serial, matched = faulty = 0;
  target.assign(signatures, signatures + count);
}

// Flips bits of a word in a buffer's memory immediately. Returns 0 if the buffer is unknown.
VK_LAYER_EXPORT int32_t fault_flip(uint64_t buffer, uint64_t offset, uint32_t mask) {
  LOCKED;
  uint32_t* word = devices.empty() ? nullptr : word_of(devices.begin()->second, {reinterpret_cast<VkBuffer>(buffer), offset, 4}, 0);
  return word ? *word ^= mask, 1 : 0;
}

// Returns the number of faulty submissions or shader modules so far.
VK_LAYER_EXPORT uint64_t fault_count() {
  LOCKED;
  return faulty;
}

// Replaces modules created later with this hash, and ends earlier replacements. Size 0 only ends them.
VK_LAYER_EXPORT void fault_replace(uint64_t hash, const uint32_t* words, uint64_t size) {
  LOCKED;
  faulty = 0;
  replaced.clear();
  if (size) replaced[hash].assign(words, words + size);
}

// Copies the words of the module with this hash to `target`, unless it is null, and returns their number.
VK_LAYER_EXPORT uint64_t fault_code(uint64_t hash, uint32_t* target) {
  LOCKED;
  const auto found = codes.find(hash);
  if (found == codes.end()) return 0;
  if (target) std::copy(found->second.begin(), found->second.end(), target);
  return found->second.size();
}

// Starts or stops the log of submitted lists, one line of JSON each. Returns the log so far, valid until the next call.
VK_LAYER_EXPORT const char* fault_log(int32_t begin) {
  LOCKED;
  logging = begin != 0;
  reply = std::exchange(log_text, {});
  return reply.c_str();
}
}
