#include "device/driver/device_visibility.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <set>

#include "device/driver/gpu_numbering.h"

namespace pumice {
namespace {

constexpr uint32_t kNvidia = 0x10de, kAmd = 0x1002;
constexpr const char* kNames[] = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"};

struct GpuNumbering {
  std::vector<VendorGpu> gpus;
  std::string authority;  // source of the numbering, e.g. "by NVML"
};

std::vector<std::string> split_names(const std::string& value) {
  std::vector<std::string> names;
  size_t begin = 0;
  while (begin <= value.size()) {
    const size_t end = std::min(value.find(',', begin), value.size());
    std::string name = value.substr(begin, end - begin);
    std::erase_if(name, [](unsigned char c) { return std::isspace(c) != 0; });
    names.push_back(std::move(name));
    begin = end + 1;
  }
  return names;
}

bool is_index(const std::string& text) {
  return !text.empty() && text.size() < 6 && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::string normalize_id(std::string text) {
  std::erase(text, '-');
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Orders a vendor's devices by PCI address: the fallback if the vendor's library is not available.
GpuNumbering number_gpus_by_pci_address(const std::vector<DeviceInfo>& devices, uint32_t vendor) {
  GpuNumbering numbering{{}, "by the order of PCI addresses"};
  for (const DeviceInfo& info : devices)
    if (info.vendor_id == vendor) numbering.gpus.push_back({"GPU-" + info.uuid, info.uuid, info.pci, info.name});
  std::ranges::stable_sort(numbering.gpus, {}, &VendorGpu::pci);
  return numbering;
}

// Applies a vendor's variables in sequence: each selects from the GPUs that the previous variable selected.
class VendorVisibility {
 public:
  VendorVisibility(const std::vector<DeviceInfo>& devices, uint32_t vendor, GpuNumbering numbering)
      : devices_(devices), vendor_(vendor), authority_(std::move(numbering.authority)) {
    for (VendorGpu& gpu : numbering.gpus) remaining_.push_back({std::move(gpu), ""});
  }

  void apply_variable(const std::string& variable, const std::string& value) {
    statement_ += (statement_.empty() ? "" : " and ") + variable + "=" + value;
    std::vector<SelectedGpu> named;
    for (const std::string& name : split_names(value)) {
      if (name.starts_with("MIG-"))
        return set_error(variable + "=" + value + " names " + name +
                         ", a part of a GPU, which no Vulkan driver exposes; "
                         "name the whole GPU by its index or as GPU-...");
      const auto match = find(name, variable, value);
      if (!match) break;
      const auto is_same_gpu = [&](const SelectedGpu& named_gpu) { return named_gpu.number == match->number; };
      if (std::ranges::any_of(named, is_same_gpu)) return set_error(variable + "=" + value + " names one GPU twice (" + name + ")");
      named.push_back(*match);
    }
    std::vector<RemainingGpu> remaining;
    for (const SelectedGpu& named_gpu : named) {
      RemainingGpu& gpu = remaining_[named_gpu.number];
      const std::string by_index =
          is_index(named_gpu.name) ? ", whose " + named_gpu.name + " is " + describe_gpu(gpu.gpu) + " " + authority_ : "";
      remaining.push_back({gpu.gpu, (gpu.rule.empty() ? "" : gpu.rule + ", and ") + variable + "=" + value + by_index});
    }
    remaining_ = std::move(remaining);
  }

  // Adds the vendor's visible and hidden devices to `visibility`.
  void add_devices_to(DeviceVisibility& visibility) {
    std::vector<VisibleDevice> visible;
    for (const RemainingGpu& remaining : error_.empty() ? remaining_ : std::vector<RemainingGpu>{}) {
      if (const auto list_index = find_device(remaining.gpu)) {
        visible.push_back({*list_index, remaining.rule});
      } else {
        notes_.push_back(statement_ + " names " + describe_gpu(remaining.gpu) + ", which is not a Vulkan device here");
      }
    }
    std::set<size_t> visible_indices;
    for (const VisibleDevice& device : visible) visible_indices.insert(device.list_index);
    for (size_t i = 0; i < devices_.size(); ++i)
      if (devices_[i].vendor_id == vendor_ && !visible_indices.contains(i)) visibility.hidden.push_back({i, statement_});
    visibility.visible.insert(visibility.visible.end(), visible.begin(), visible.end());
    visibility.notes.insert(visibility.notes.end(), notes_.begin(), notes_.end());
    if (!error_.empty()) visibility.error += (visibility.error.empty() ? "" : "; ") + error_;
  }

  void set_error(const std::string& sentence) {
    if (error_.empty()) error_ = sentence;
  }

 private:
  struct RemainingGpu {
    VendorGpu gpu;
    std::string rule;
  };
  struct SelectedGpu {
    size_t number;
    std::string name;
  };

  static std::string describe_gpu(const VendorGpu& gpu) {
    if (!gpu.label.empty()) return gpu.label;
    return gpu.pci.empty() ? "a GPU that this process may not open" : "the GPU at pci:" + gpu.pci;
  }

  // Returns the GPU with this name, or nullopt if the name is invalid and therefore ends the list.
  std::optional<SelectedGpu> find(const std::string& name, const std::string& variable, const std::string& value) {
    if (is_index(name) && std::stoul(name) < remaining_.size()) return SelectedGpu{std::stoul(name), name};
    if (name.starts_with("GPU-") && name.size() > 4) {
      std::vector<size_t> matches;  // an abbreviated UUID may match several GPUs
      for (size_t i = 0; i < remaining_.size(); ++i)
        if (normalize_id(remaining_[i].gpu.label).starts_with(normalize_id(name))) matches.push_back(i);
      if (matches.size() == 1) return SelectedGpu{matches[0], name};
      if (matches.size() > 1)
        set_error(variable + "=" + value + ": " + name + " is a prefix of the names of " + std::to_string(matches.size()) + " GPUs");
    }
    if (value.empty() || value == "-1" || value == "NoDevFiles") return {};  // valid ways to hide all GPUs
    notes_.push_back(variable + "=" + value + ": the list ends before '" + name + "', which does not match any of " +
                     std::to_string(remaining_.size()) + " GPUs");
    return {};
  }

  std::optional<size_t> find_device(const VendorGpu& gpu) const {
    const auto find_by = [&](const auto& is_same) -> std::optional<size_t> {
      for (size_t i = 0; i < devices_.size(); ++i)
        if (devices_[i].vendor_id == vendor_ && is_same(devices_[i])) return i;
      return {};
    };
    if (const auto list_index = find_by([&](const DeviceInfo& info) { return !gpu.uuid.empty() && info.uuid == gpu.uuid; }))
      return list_index;
    return find_by([&](const DeviceInfo& info) { return !gpu.pci.empty() && normalize_id(info.pci) == normalize_id(gpu.pci); });
  }

  const std::vector<DeviceInfo>& devices_;
  uint32_t vendor_;
  std::string authority_, statement_, error_;
  std::vector<RemainingGpu> remaining_;
  std::vector<std::string> notes_;
};

// CUDA's default order is fastest first, as measured by the driver. An index is therefore unambiguous only if all GPUs are the same model.
bool is_cuda_order_known(const std::vector<VendorGpu>& gpus, const VisibilitySources& sources) {
  const auto order = sources.variables.find("CUDA_DEVICE_ORDER");
  if (order != sources.variables.end() && order->second == "PCI_BUS_ID") return true;
  return std::ranges::all_of(gpus, [&](const VendorGpu& gpu) { return gpu.model == gpus.front().model; });
}

void apply_cuda_variables(const std::vector<DeviceInfo>& devices, const VisibilitySources& sources, DeviceVisibility& visibility) {
  const std::string variable = "CUDA_VISIBLE_DEVICES", value = sources.variables.at(variable);
  const std::vector<std::string> names = split_names(value);
  const bool has_index = std::ranges::any_of(names, is_index);
  auto gpus = has_index || value.find("GPU-") != std::string::npos ? list_nvml_gpus(sources.nvml) : std::nullopt;
  GpuNumbering numbering = gpus ? GpuNumbering{std::move(*gpus), "by NVML"} : number_gpus_by_pci_address(devices, kNvidia);
  const bool has_known_order = !has_index || is_cuda_order_known(numbering.gpus, sources);
  VendorVisibility nvidia(devices, kNvidia, std::move(numbering));
  nvidia.apply_variable(variable, value);
  if (!has_known_order)
    nvidia.set_error(variable + "=" + value +
                     " gives an index, and this host's GPUs differ: in CUDA's own order only its driver knows which is "
                     "meant; set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the GPU as GPU-...");
  nvidia.add_devices_to(visibility);
}

void apply_rocm_variables(const std::vector<DeviceInfo>& devices, const VisibilitySources& sources, DeviceVisibility& visibility) {
  auto gpus = list_kfd_gpus(sources.kfd);
  GpuNumbering numbering =
      gpus ? GpuNumbering{std::move(*gpus), "by the kernel's compute topology"} : number_gpus_by_pci_address(devices, kAmd);
  VendorVisibility amd(devices, kAmd, std::move(numbering));
  for (const char* const variable : {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"})
    if (const auto entry = sources.variables.find(variable); entry != sources.variables.end()) amd.apply_variable(variable, entry->second);
  amd.add_devices_to(visibility);
}

// Sorts visible devices. A device to which no variable applies keeps its position. The other devices of a vendor are reordered among their
// own positions, in the order of the variable.
void sort_by_index(const std::vector<DeviceInfo>& devices, DeviceVisibility& visibility) {
  std::ranges::sort(visibility.hidden, {}, &HiddenDevice::list_index);
  std::set<size_t> named, hidden;
  std::map<uint32_t, std::vector<VisibleDevice>> selected_devices;  // devices to which a variable applies, grouped by vendor
  for (const HiddenDevice& device : visibility.hidden) hidden.insert(device.list_index);
  for (VisibleDevice& device : visibility.visible) {
    named.insert(device.list_index);
    selected_devices[devices[device.list_index].vendor_id].push_back(std::move(device));
  }
  std::map<uint32_t, size_t> next_index;
  visibility.visible.clear();
  for (size_t i = 0; i < devices.size(); ++i) {
    const uint32_t vendor = devices[i].vendor_id;
    if (named.contains(i)) {
      visibility.visible.push_back(selected_devices[vendor][next_index[vendor]++]);
    } else if (!hidden.contains(i)) {
      visibility.visible.push_back({i, ""});
    }
  }
}

}  // namespace

VisibilitySources VisibilitySources::from_process() {
  VisibilitySources sources;
  for (const char* const name : kNames)
    if (const char* const value = std::getenv(name)) sources.variables[name] = value;
  return sources;
}

DeviceVisibility resolve_visibility(const std::vector<DeviceInfo>& devices, const VisibilitySources& sources) {
  const auto has = [&](uint32_t vendor) {
    return std::ranges::any_of(devices, [&](const auto& info) { return info.vendor_id == vendor; });
  };
  const bool cuda = has(kNvidia) && sources.variables.contains("CUDA_VISIBLE_DEVICES");
  const bool rocm = has(kAmd) && (sources.variables.contains("ROCR_VISIBLE_DEVICES") || sources.variables.contains("HIP_VISIBLE_DEVICES"));
  DeviceVisibility visibility;
  if (cuda) apply_cuda_variables(devices, sources, visibility);
  if (rocm) apply_rocm_variables(devices, sources, visibility);
  sort_by_index(devices, visibility);
  return visibility;
}

}  // namespace pumice
