#include "device/driver/gpu_numbering.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>

namespace pumice {
namespace {

// ---- NVIDIA: the subset of NVML's stable C API that is used here

using NvmlDevice = void*;

struct NvmlPci {  // nvmlPciInfo_t, used by nvmlDeviceGetPciInfo_v3
  char short_address[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char address[32];
};

class NvmlLibrary {
 public:
  explicit NvmlLibrary(const std::string& library) : library_(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL), &close_library) {
    if (!library_) return;
    const bool is_whole = find_function(start_, "nvmlInit_v2") && find_function(stop_, "nvmlShutdown") &&
                          find_function(count_, "nvmlDeviceGetCount_v2") && find_function(device_, "nvmlDeviceGetHandleByIndex_v2") &&
                          find_function(uuid_, "nvmlDeviceGetUUID") && find_function(pci_, "nvmlDeviceGetPciInfo_v3") &&
                          find_function(name_, "nvmlDeviceGetName");
    started_ = is_whole && start_() == 0;
  }
  ~NvmlLibrary() {
    if (started_) stop_();
  }
  NvmlLibrary(const NvmlLibrary&) = delete;

  bool started() const { return started_; }

  std::vector<VendorGpu> list_gpus() const {
    unsigned count = 0;
    if (count_(&count) != 0) return {};
    std::vector<VendorGpu> gpus(count);  // a GPU that cannot be opened keeps its position, with empty fields
    for (unsigned i = 0; i < count; ++i) {
      NvmlDevice device = nullptr;
      if (device_(i, &device) == 0) describe_gpu(device, gpus[i]);
    }
    return gpus;
  }

 private:
  static void close_library(void* library) {
    if (library) dlclose(library);
  }

  template <typename Function>
  bool find_function(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_.get(), name));
    return function != nullptr;
  }

  void describe_gpu(NvmlDevice device, VendorGpu& gpu) const {
    std::array<char, 96> text{};
    if (uuid_(device, text.data(), text.size()) == 0) {
      gpu.label = text.data();
      for (const char c : gpu.label.substr(std::min<size_t>(gpu.label.size(), 4)))  // skips "GPU-"
        if (std::isxdigit(static_cast<unsigned char>(c))) gpu.uuid += static_cast<char>(std::tolower(c));
    }
    if (name_(device, text.data(), text.size()) == 0) gpu.model = text.data();
    NvmlPci pci{};
    if (pci_(device, &pci) != 0) return;
    std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
    gpu.pci = text.data();
  }

  std::unique_ptr<void, void (*)(void*)> library_;
  int (*start_)() = nullptr;
  int (*stop_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*device_)(unsigned, NvmlDevice*) = nullptr;
  int (*uuid_)(NvmlDevice, char*, unsigned) = nullptr;
  int (*pci_)(NvmlDevice, NvmlPci*) = nullptr;
  int (*name_)(NvmlDevice, char*, unsigned) = nullptr;
  bool started_ = false;
};

// ---- AMD: the KFD topology in sysfs

// Reads a node's properties file; each line is a name and a number. Returns nullopt if the file does not exist, and no properties if it is
// not readable: the kernel denies access to GPUs outside the process's cgroup. Parses without streams, which depend on the locale.
std::optional<std::map<std::string, uint64_t>> read_node_properties(const std::string& file) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(file.c_str(), "rb"), &std::fclose);
  if (!stream) return {};
  std::string text;
  char block[512];
  while (const size_t count = std::fread(block, 1, sizeof block, stream.get())) text.append(block, count);
  std::map<std::string, uint64_t> properties;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size()), space = std::min(text.find(' ', at), end);
    uint64_t value = 0;
    std::from_chars(text.data() + std::min(space + 1, end), text.data() + end, value);
    properties[text.substr(at, space - at)] = value;
    at = end + 1;
  }
  return properties;
}

std::optional<VendorGpu> parse_kfd_gpu(std::map<std::string, uint64_t> properties) {
  if (properties["simd_count"] == 0) return {};  // CPU-only node
  const uint64_t location_id = properties["location_id"];
  char text[40];
  VendorGpu gpu;
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", static_cast<unsigned>(properties["domain"]),
                static_cast<unsigned>(location_id >> 8 & 255), static_cast<unsigned>(location_id >> 3 & 31),
                static_cast<unsigned>(location_id & 7));
  gpu.pci = text;
  std::snprintf(text, sizeof text, "GPU-%016llx", static_cast<unsigned long long>(properties["unique_id"]));
  gpu.label = properties["unique_id"] ? text : "";
  return gpu;
}

}  // namespace

std::optional<std::vector<VendorGpu>> list_nvml_gpus(const std::string& library) {
  const NvmlLibrary nvml(library);
  if (!nvml.started()) return {};
  return nvml.list_gpus();
}

std::optional<std::vector<VendorGpu>> list_kfd_gpus(const std::string& folder) {
  std::vector<VendorGpu> gpus;
  for (int node = 0;; ++node) {
    auto properties = read_node_properties(folder + "/" + std::to_string(node) + "/properties");
    if (!properties) break;
    if (auto gpu = parse_kfd_gpu(std::move(*properties))) gpus.push_back(std::move(*gpu));
  }
  if (gpus.empty()) return {};
  return gpus;
}

}  // namespace pumice
