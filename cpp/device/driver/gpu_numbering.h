// The order in which vendors number their GPUs, which is not Vulkan's: asked of the vendor's library or of the kernel, never of Vulkan.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pumice {

// A GPU at its place in a vendor's numbering. What the vendor does not tell is empty, as for a GPU that this process may not open.
struct NumberedGpu {
  std::string label;  // how the vendor names it: "GPU-5a1c..." with the digits of its UUID
  std::string uuid;   // 32 hexadecimal digits, as in DeviceInfo; empty for AMD's, whose Vulkan drivers report other UUIDs
  std::string pci;    // "0000:3b:00.0"
  std::string model;  // the product's name
};

// NVIDIA's GPUs in the order of NVML, which is that of their PCI addresses and of nvidia-smi; nothing where the shared library is not
// there or does not start. The library is opened here and closed again.
std::optional<std::vector<NumberedGpu>> nvml_gpus(const std::string& library);

// AMD's GPUs in the order of the kernel's compute topology, as ROCm numbers them: folder is .../kfd/topology/nodes. Nothing where there is
// no such folder or no GPU in it.
std::optional<std::vector<NumberedGpu>> kfd_gpus(const std::string& folder);

}  // namespace pumice
