// Properties of the system's Vulkan devices (stable identity, kind, features and limits), without Vulkan headers.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pumice {

enum class DeviceKind : uint8_t { discrete, integrated, virtual_, software, other };
std::string_view name(DeviceKind kind);

struct MatrixShape {  // shape and component types of a cooperative matrix at subgroup scope
  uint32_t m, n, k;
  std::string a, b, c, result;  // "float16", "int8", ...

  bool operator==(const MatrixShape&) const = default;
};

struct DeviceInfo {
  int index = 0;  // position in list_devices(); -1 if hidden by the environment
  std::string name;
  DeviceKind kind = DeviceKind::other;
  std::string uuid;  // 32 hex digits
  std::string pci;   // "0000:3b:00.0", empty if unknown
  std::string driver, driver_info;
  std::string driver_uuid;
  uint32_t driver_id = 0;  // VkDriverId
  uint32_t vendor_id = 0, device_id = 0, api_version = 0, driver_version = 0;
  uint64_t memory_bytes = 0;  // largest device-local heap
  std::map<std::string, bool>
      features;  // Vulkan feature names ("shaderInt64", "storageBuffer16BitAccess", ...) and the names from add_property_features
  std::map<std::string, uint64_t> limits;      // Vulkan limit names; arrays as "maxComputeWorkGroupCount_0"
  std::map<std::string, uint32_t> extensions;  // extension name -> spec version
  std::vector<MatrixShape> matrices;
  uint64_t required_matrix_subgroup = 0;  // subgroup size that kernels with cooperative matrices require; 0: that of other kernels
  std::string restrictions;               // what PUMICE_LIMITS and PUMICE_WITHOUT take away, as text; empty if neither is set

  bool operator==(const DeviceInfo&) const = default;
  bool feature(std::string_view feature_name) const;  // false if the name is unknown
  uint64_t limit(std::string_view limit_name) const;  // throws Error if the name is unknown
  uint64_t matrix_subgroup_size() const;              // subgroup size of kernels with cooperative matrices
};

// Subgroup operations and their bits in VkSubgroupFeatureFlags. The two rotate operations are newer than the Vulkan headers used here.
inline constexpr std::pair<std::string_view, uint32_t> kSubgroupOperations[] = {
    {"basic", 0x1},         {"vote", 0x2},
    {"arithmetic", 0x4},    {"ballot", 0x8},
    {"shuffle", 0x10},      {"shuffle_relative", 0x20},
    {"clustered", 0x40},    {"quad", 0x80},
    {"rotate", 0x200},      {"rotate_relative", 0x400},
    {"partitioned", 0x100},
};

// Adds features that Vulkan reports as properties: subgroupShuffleRelative etc. (in compute shaders), shaderDenormPreserveFloat32 etc.,
// roundingModeRTEFloat16 (fp16 conversions can be set to round to nearest even independently of other widths), and unifiedMemory (host and
// device share memory). A context with unifiedMemory masked stages all transfers, like one on a discrete GPU.
void add_property_features(DeviceInfo& info);

}  // namespace pumice
