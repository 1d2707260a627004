#include "device/driver/device_choice.h"

#include <algorithm>
#include <cctype>

#include "core/error.h"

namespace pumice {
namespace {

constexpr int kNoIndex = -1;

std::string describe_device(const DeviceInfo& info) {
  return "'" + info.name + "' (" + std::string(name(info.kind)) + ", uuid:" + info.uuid + ")";
}

std::string to_lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 6 && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// index: position in list_devices(), or kNoIndex for a hidden device.
bool matches_device(const DeviceInfo& info, int index, const std::string& requested) {
  const std::string spec = to_lower(requested);
  if (spec.starts_with("uuid:")) {
    std::string hex_digits = spec.substr(5);
    std::erase(hex_digits, '-');
    return info.uuid == hex_digits;
  }
  if (spec.starts_with("pci:")) return !info.pci.empty() && to_lower(info.pci) == spec.substr(4);
  if (is_number(spec)) return index == std::stoi(spec);
  if (spec == name(info.kind)) return true;
  return to_lower(info.name).find(spec) != std::string::npos;
}

int get_kind_rank(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::discrete:
      return 0;
    case DeviceKind::integrated:
      return 1;
    case DeviceKind::virtual_:
      return 2;
    case DeviceKind::other:
      return 3;
    default:
      return 4;
  }
}

class DeviceSelector {
 public:
  DeviceSelector(const std::vector<DeviceInfo>& devices, const DeviceVisibility& visibility) : devices_(devices), visibility_(visibility) {}

  DeviceChoice choose_named(const std::string& requested, const std::string& source) const {
    std::vector<int> matching;
    for (size_t i = 0; i < visibility_.visible.size(); ++i)
      if (matches_device(info(i), static_cast<int>(i), requested)) matching.push_back(static_cast<int>(i));
    if (matching.empty()) throw_no_match(requested, source);
    const bool is_ambiguous = matching.size() > 1 && !to_lower(requested).starts_with("uuid:");
    const std::string first = is_ambiguous ? ", the first of " + std::to_string(matching.size()) + " that match" : "";
    return make_choice(static_cast<size_t>(matching[0]), source + first, false);
  }

  DeviceChoice choose_best() const {
    if (!visibility_.error.empty()) throw DeviceError(visibility_.error);
    if (visibility_.visible.empty()) throw DeviceError("no Vulkan device is visible to this process: " + describe_hidden_devices());
    if (visibility_.visible.size() == 1) return make_choice(0, "the only Vulkan device", true);
    size_t best = 0;
    for (size_t i = 1; i < visibility_.visible.size(); ++i)
      if (get_kind_rank(info(i).kind) < get_kind_rank(info(best).kind)) best = i;
    const std::string kind(name(info(best).kind));
    return make_choice(best, "the first " + kind + " device of " + std::to_string(visibility_.visible.size()), true);
  }

  std::string describe_hidden_devices() const {
    std::string text;
    const auto add = [&](const std::string& sentence) { text += (text.empty() ? "" : "; ") + sentence; };
    if (!visibility_.error.empty()) add(visibility_.error);
    for (const HiddenDevice& hidden_device : visibility_.hidden)
      add(hidden_device.why + " hides " + describe_device(devices_[hidden_device.list_index]));
    for (const std::string& note : visibility_.notes) add(note);
    return text;
  }

 private:
  const DeviceInfo& info(size_t index) const { return devices_[visibility_.visible[index].list_index]; }

  // mention_hidden: append the hidden devices to `why` if the user did not choose a device.
  DeviceChoice make_choice(size_t index, std::string why, bool mention_hidden) const {
    const VisibleDevice& visible_device = visibility_.visible[index];
    if (!visible_device.rule.empty()) why += "; " + visible_device.rule;
    if (const std::string text = mention_hidden ? describe_hidden_devices() : ""; !text.empty()) why += "; " + text;
    return {visible_device.list_index, static_cast<int>(index), std::move(why)};
  }

  [[noreturn]] void throw_no_match(const std::string& requested, const std::string& source) const {
    for (const HiddenDevice& hidden_device : visibility_.hidden) {
      const DeviceInfo& device = devices_[hidden_device.list_index];
      if (!matches_device(device, kNoIndex, requested)) continue;
      const std::string reason = visibility_.error.empty() ? "" : " (" + visibility_.error + ")";
      throw DeviceError("'" + requested + "' (" + source + ") names " + describe_device(device) + ", which " + hidden_device.why +
                        " hides" + reason + ": change one of the two; " + list_devices());
    }
    const std::string text = describe_hidden_devices();
    throw DeviceError("no Vulkan device matches '" + requested + "' (" + source + "); " + list_devices() +
                      (text.empty() ? "" : "; " + text));
  }

  std::string list_devices() const {
    std::string text;
    for (size_t i = 0; i < visibility_.visible.size(); ++i)
      text += (text.empty() ? "the devices are [" : ", [") + std::to_string(i) + "] " + describe_device(info(i));
    return text.empty() ? "there is no device" : text;
  }

  const std::vector<DeviceInfo>& devices_;
  const DeviceVisibility& visibility_;
};

}  // namespace

DeviceChoice choose_device(const std::vector<DeviceInfo>& devices, const DeviceVisibility& visibility, const std::string& requested,
                           const std::string& environment) {
  const DeviceSelector chooser(devices, visibility);
  if (!requested.empty()) return chooser.choose_named(requested, "requested as '" + requested + "'");
  if (!environment.empty()) return chooser.choose_named(environment, "PUMICE_DEVICE=" + environment);
  return chooser.choose_best();
}

std::string describe_visibility(const std::vector<DeviceInfo>& devices, const DeviceVisibility& visibility) {
  return DeviceSelector(devices, visibility).describe_hidden_devices();
}

}  // namespace pumice
