// GPU numbering of the vendors, which differs from Vulkan's. Queried from the vendor's library or the kernel, never from Vulkan.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pumice {

// A GPU in the vendor's order. Unknown fields are empty, e.g. for a GPU that this process may not open.
struct VendorGpu {
  std::string label;  // vendor's identifier: "GPU-5a1c..." with the digits of the UUID
  std::string uuid;   // 32 hexadecimal digits, as in DeviceInfo; empty for AMD, whose Vulkan drivers report other UUIDs
  std::string pci;    // "0000:3b:00.0"
  std::string model;  // product name
};

// Returns NVIDIA GPUs in NVML order, which is the order of PCI addresses and of nvidia-smi; nullopt if the shared library is missing or
// does not initialise. Opens and closes the library.
std::optional<std::vector<VendorGpu>> list_nvml_gpus(const std::string& library);

// Returns AMD GPUs in the order of the kernel's compute topology, which ROCm uses. folder: .../kfd/topology/nodes. Returns nullopt if the
// folder does not exist or lists no GPU.
std::optional<std::vector<VendorGpu>> list_kfd_gpus(const std::string& folder);

}  // namespace pumice
