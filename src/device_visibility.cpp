#include "device/driver/device_visibility.h"

#include "bindings.h"
#include "device/driver/device_choice.h"
#include "device/driver/device_enumeration.h"

namespace pumice {
namespace {

using Variables = std::map<std::string, std::string>;
using Infos = std::vector<DeviceInfo>;

VisibilitySources make_visibility_sources(const Variables& variables, const std::string& nvml, const std::string& kfd) {
  VisibilitySources sources;
  sources.variables = variables;
  sources.nvml = nvml;
  sources.kfd = kfd;
  return sources;
}

}  // namespace

void bind_device_visibility(py::module_& module) {
  module.def(
      "devices",
      [] {
        const GilRelease release;
        return list_devices().visible;
      },
      "Return the Vulkan devices that the environment makes visible to this process; empty if there is no loader or driver.");
  module.def(
      "device_list",
      [] {
        DeviceList list;
        {
          const GilRelease release;
          list = list_devices();
        }
        return std::tuple(std::move(list.visible), std::move(list.hidden), std::move(list.text));
      },
      "Return devices(), the devices hidden by CUDA_VISIBLE_DEVICES and similar variables, and the reason as text.");
  module.def(
      "visible_places",
      [](const Infos& infos, const Variables& variables, const std::string& nvml, const std::string& kfd) {
        std::vector<size_t> indices;
        const DeviceVisibility visibility = resolve_visibility(infos, make_visibility_sources(variables, nvml, kfd));
        for (const VisibleDevice& device : visibility.visible) indices.push_back(device.list_index);
        return std::pair(indices, describe_visibility(infos, visibility));
      },
      py::arg("devices"), py::arg("variables"), py::arg("nvml"), py::arg("kfd"),
      "Return the indices of the devices that environment variables leave visible, in the order of devices(), and the reason as text.\n"
      "nvml: path of NVIDIA's management library.\n"
      "kfd: folder with the nodes of the kernel's compute topology.");
  module.def(
      "choose_device",
      [](const Infos& infos, const Variables& variables, const std::string& nvml, const std::string& kfd, const std::string& wanted,
         const std::string& environment) {
        const DeviceChoice choice =
            choose_device(infos, resolve_visibility(infos, make_visibility_sources(variables, nvml, kfd)), wanted, environment);
        return std::pair(choice.list_index, choice.why);
      },
      py::arg("devices"), py::arg("variables"), py::arg("nvml"), py::arg("kfd"), py::arg("wanted"), py::arg("environment"),
      "Return the index of the device that a Context would choose, and the reason.\n"
      "environment: value of PUMICE_DEVICE.\n"
      "Raise DeviceError.");
}

}  // namespace pumice
