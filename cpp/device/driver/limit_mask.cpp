#include "device/driver/limit_mask.h"

#include <bit>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace pumice {
namespace {

// Limits that affect the engine's decisions. A mask may only make the device less capable: it raises alignments and lowers all other
// limits. It may also set the number of multiprocessors of a device that does not report it, for the cost models.
constexpr std::string_view kMaskable[] = {"maxBufferSize",
                                          "maxComputeSharedMemorySize",
                                          "maxComputeWorkGroupCount",
                                          "maxComputeWorkGroupInvocations",
                                          "maxComputeWorkGroupSize",
                                          "maxComputeWorkgroupSubgroups",
                                          "maxPerStageDescriptorSampledImages",
                                          "maxPerStageDescriptorSamplers",
                                          "maxPerStageDescriptorStorageBuffers",
                                          "maxPerStageDescriptorStorageImages",
                                          "maxPerStageDescriptorUniformBuffers",
                                          "maxPerStageResources",
                                          "maxPushConstantsSize",
                                          "maxStorageBufferRange",
                                          "minStorageBufferOffsetAlignment",
                                          "shaderSMCount"};

std::string list_maskable_limits() {
  std::string text;
  for (const std::string_view name : kMaskable) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

// Expands the name of an array limit to the names of its elements.
std::vector<std::string> expand_limit_name(const DeviceInfo& info, const std::string& name, const std::string& source) {
  const bool is_element = name.size() > 2 && name[name.size() - 2] == '_' && name.back() >= '0' && name.back() <= '2';
  const std::string base = is_element ? name.substr(0, name.size() - 2) : name;
  std::vector<std::string> names;
  for (const std::string_view maskable : kMaskable) {
    if (base != maskable) continue;
    if (info.limits.contains(name)) names.push_back(name);
    for (const char* element : {"_0", "_1", "_2"})
      if (!is_element && info.limits.contains(name + element)) names.push_back(name + element);
  }
  if (names.empty())
    throw UnsupportedError(source + " '" + name +
                           "': not a limit that affects the engine's decisions; these do: " + list_maskable_limits());
  return names;
}

}  // namespace

void mask_limits(DeviceInfo& info, const LimitMask& mask, const std::string& source) {
  const std::string owner = "'" + info.name + "'" + (info.restrictions.empty() ? "" : " (reduced to " + info.restrictions + ")");
  for (const auto& [name, value] : mask)
    for (const std::string& limit : expand_limit_name(info, name, source)) {
      if (limit != name && mask.contains(limit)) continue;  // the element has its own mask
      uint64_t& limit_value = info.limits.at(limit);
      const bool is_alignment = limit.starts_with("min");
      const auto masked_value = static_cast<uint64_t>(value);
      const auto refuse = [&](const std::string& why) {
        throw UnsupportedError(source + " '" + name + "': " + std::to_string(value) + " " + why);
      };
      if (value < 1) refuse("is below 1");
      if (is_alignment && (masked_value < limit_value || !std::has_single_bit(masked_value)))
        refuse("is not a power of two, or is less than " + owner + " requires: " + limit + " is " + std::to_string(limit_value));
      const bool is_reported = limit != "shaderSMCount" || limit_value > 0;
      if (!is_alignment && is_reported && masked_value > limit_value)
        refuse("is more than " + owner + " supports: " + limit + " is " + std::to_string(limit_value));
      limit_value = masked_value;
    }
}

}  // namespace pumice
