// Device visibility from the environment. Cluster schedulers assign GPUs with CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and
// HIP_VISIBLE_DEVICES. Vulkan ignores these variables and orders devices differently.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "device/driver/device_info.h"

namespace pumice {

// Inputs of resolve_visibility().
struct VisibilitySources {
  std::map<std::string, std::string> variables;  // environment variables that are set, including empty ones
  std::string nvml = "libnvidia-ml.so.1";
  std::string kfd = "/sys/class/kfd/kfd/topology/nodes";

  static VisibilitySources from_process();
};

struct VisibleDevice {
  size_t list_index = 0;  // index in the given list
  std::string rule;       // e.g. "CUDA_VISIBLE_DEVICES=1, whose 1 is GPU-5a1c... by NVML"; empty if no variable applies
};

struct HiddenDevice {
  size_t list_index = 0;
  std::string why;  // "CUDA_VISIBLE_DEVICES=1"
};

struct DeviceVisibility {
  std::vector<VisibleDevice> visible;  // devices of a vendor in the order of its variable
  std::vector<HiddenDevice> hidden;
  std::vector<std::string> notes;  // sentences about variables with misleading values
  std::string error;               // sentence about a value that cannot be applied; all devices of its vendor are then hidden
};

// CUDA_VISIBLE_DEVICES applies only to NVIDIA, ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES only to AMD; other devices are always visible.
// As in the vendors' runtimes, the first invalid name (such as -1) ends the list.
DeviceVisibility resolve_visibility(const std::vector<DeviceInfo>& devices, const VisibilitySources& sources);

}  // namespace pumice
