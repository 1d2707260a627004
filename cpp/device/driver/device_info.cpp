#include "device/driver/device_info.h"

#include "core/error.h"
#include "device/driver/vulkan.h"

namespace pumice {
namespace {

// Maps an operation to its feature name: "shuffle_relative" -> "subgroupShuffleRelative".
std::string to_subgroup_feature_name(std::string_view operation) {
  std::string feature = "subgroup";
  bool capital = true;
  for (const char letter : operation) {
    if (letter != '_') feature += capital ? static_cast<char>(letter - 'a' + 'A') : letter;
    capital = letter == '_';
  }
  return feature;
}

}  // namespace

std::string_view name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::discrete:
      return "discrete";
    case DeviceKind::integrated:
      return "integrated";
    case DeviceKind::virtual_:
      return "virtual";
    case DeviceKind::software:
      return "software";
    default:
      return "other";
  }
}

bool DeviceInfo::feature(std::string_view feature_name) const {
  const auto entry = features.find(std::string(feature_name));
  return entry != features.end() && entry->second;
}

uint64_t DeviceInfo::limit(std::string_view limit_name) const {
  const auto entry = limits.find(std::string(limit_name));
  if (entry == limits.end()) throw Error("unknown device limit '" + std::string(limit_name) + "'");
  return entry->second;
}

uint64_t DeviceInfo::matrix_subgroup_size() const {
  return required_matrix_subgroup != 0 ? required_matrix_subgroup : limit("subgroupSize");
}

void add_property_features(DeviceInfo& info) {
  const uint64_t operations =
      info.limit("subgroupSupportedStages") & VK_SHADER_STAGE_COMPUTE_BIT ? info.limit("subgroupSupportedOperations") : 0;
  for (const auto& [operation, bit] : kSubgroupOperations) info.features[to_subgroup_feature_name(operation)] = (operations & bit) != 0;
  for (const auto& [name, value] : info.limits)
    if (name.starts_with("shader")) info.features[name] = value != 0;  // float control properties
  info.features["roundingModeRTEFloat16"] = info.limit("shaderRoundingModeRTEFloat16") != 0 &&
                                            info.limit("roundingModeIndependence") == VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_ALL;
  info.features["unifiedMemory"] = info.kind != DeviceKind::discrete;
}

}  // namespace pumice
