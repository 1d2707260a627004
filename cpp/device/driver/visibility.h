// The environment says which devices this process may use: by CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES cluster
// engines assign GPUs. Vulkan knows none of these variables and orders devices in its own way.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "device/driver/device_info.h"

namespace pumice {

// Where visibility_of() looks.
struct VisibilitySources {
  std::map<std::string, std::string> variables;  // those of the environment that are set, an empty value included
  std::string nvml = "libnvidia-ml.so.1";
  std::string kfd = "/sys/class/kfd/kfd/topology/nodes";

  static VisibilitySources of_process();
};

struct VisibleDevice {
  size_t place = 0;  // in the list that was given
  std::string rule;  // "CUDA_VISIBLE_DEVICES=1, whose 1 is GPU-5a1c... by NVML"; empty where no variable speaks of the device
};

struct HiddenDevice {
  size_t place = 0;
  std::string why;  // "CUDA_VISIBLE_DEVICES=1"
};

struct Visibility {
  std::vector<VisibleDevice> visible;  // a vendor's in the order in which the variable names them
  std::vector<HiddenDevice> hidden;
  std::vector<std::string> notes;  // sentences: what a variable says that is not as it seems
  std::string refusal;             // a sentence: what a variable says that cannot be followed; its vendor's devices are hidden
};

// CUDA_VISIBLE_DEVICES speaks of NVIDIA's devices alone, ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES of AMD's; others are always visible.
// As with the vendors' own runtimes the first name that is none, such as -1, ends a list.
Visibility visibility_of(const std::vector<DeviceInfo>& devices, const VisibilitySources& sources);

}  // namespace pumice
