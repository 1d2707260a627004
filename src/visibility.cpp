#include "device/driver/visibility.h"

#include "bindings.h"
#include "device/driver/device_choice.h"
#include "device/driver/devices.h"

namespace pumice {
namespace {

using Variables = std::map<std::string, std::string>;
using Infos = std::vector<DeviceInfo>;

VisibilitySources sources_of(const Variables& variables, const std::string& nvml, const std::string& kfd) {
  VisibilitySources sources;
  sources.variables = variables;
  sources.nvml = nvml;
  sources.kfd = kfd;
  return sources;
}

}  // namespace

void bind_visibility(py::module_& module) {
  module.def(
      "devices",
      [] {
        const ReleasedGil release;
        return devices().visible;
      },
      "The Vulkan devices that the environment leaves to this process; empty where there is no loader or no driver.");
  module.def(
      "device_list",
      [] {
        DeviceList list;
        {
          const ReleasedGil release;
          list = devices();
        }
        return std::tuple(std::move(list.visible), std::move(list.hidden), std::move(list.text));
      },
      "devices(), the devices that CUDA_VISIBLE_DEVICES and its like hide, and why they do in words.");
  module.def(
      "visible_places",
      [](const Infos& given, const Variables& variables, const std::string& nvml, const std::string& kfd) {
        std::vector<size_t> places;
        const Visibility visibility = visibility_of(given, sources_of(variables, nvml, kfd));
        for (const VisibleDevice& one : visibility.visible) places.push_back(one.place);
        return std::pair(places, visibility_text(given, visibility));
      },
      py::arg("devices"), py::arg("variables"), py::arg("nvml"), py::arg("kfd"),
      "Which of the given devices variables of the environment leave, as places in the list in the order of devices(), and why in words. "
      "nvml: the file of NVIDIA's management library. kfd: the folder of the nodes of the kernel's compute topology.");
  module.def(
      "choose_device",
      [](const Infos& given, const Variables& variables, const std::string& nvml, const std::string& kfd, const std::string& wanted,
         const std::string& environment) {
        const DeviceChoice choice = choose_device(given, visibility_of(given, sources_of(variables, nvml, kfd)), wanted, environment);
        return std::pair(choice.place, choice.why);
      },
      py::arg("devices"), py::arg("variables"), py::arg("nvml"), py::arg("kfd"), py::arg("wanted"), py::arg("environment"),
      "Which of the given devices a Context takes, as a place in the list, and why. environment: PUMICE_DEVICE. Raises DeviceError.");
}

}  // namespace pumice
