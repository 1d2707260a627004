#include "device/driver/device_choice.h"

#include <algorithm>
#include <cctype>

#include "core/error.h"

namespace pumice {
namespace {

constexpr int kNoIndex = -1;

std::string device_text(const DeviceInfo& info) {
  return "'" + info.name + "' (" + std::string(name(info.kind)) + ", uuid:" + info.uuid + ")";
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 6 && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// index: position in devices(), or kNoIndex for a hidden device.
bool matches(const DeviceInfo& info, int index, const std::string& wanted) {
  const std::string spec = lower(wanted);
  if (spec.starts_with("uuid:")) {
    std::string digits = spec.substr(5);
    std::erase(digits, '-');
    return info.uuid == digits;
  }
  if (spec.starts_with("pci:")) return !info.pci.empty() && lower(info.pci) == spec.substr(4);
  if (is_number(spec)) return index == std::stoi(spec);
  if (spec == name(info.kind)) return true;
  return lower(info.name).find(spec) != std::string::npos;
}

int rank(DeviceKind kind) {
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

class Chooser {
 public:
  Chooser(const std::vector<DeviceInfo>& devices, const Visibility& visibility) : devices_(devices), visibility_(visibility) {}

  DeviceChoice named(const std::string& wanted, const std::string& source) const {
    std::vector<int> found;
    for (size_t i = 0; i < visibility_.visible.size(); ++i)
      if (matches(info(i), static_cast<int>(i), wanted)) found.push_back(static_cast<int>(i));
    if (found.empty()) refuse_named(wanted, source);
    const bool by_text = found.size() > 1 && !lower(wanted).starts_with("uuid:");
    const std::string first = by_text ? ", the first of " + std::to_string(found.size()) + " that match" : "";
    return chosen(static_cast<size_t>(found[0]), source + first, false);
  }

  DeviceChoice best() const {
    if (!visibility_.refusal.empty()) throw DeviceError(visibility_.refusal);
    if (visibility_.visible.empty()) throw DeviceError("no Vulkan device is left to this process: " + hidden());
    if (visibility_.visible.size() == 1) return chosen(0, "the only Vulkan device", true);
    size_t best = 0;
    for (size_t i = 1; i < visibility_.visible.size(); ++i)
      if (rank(info(i).kind) < rank(info(best).kind)) best = i;
    const std::string kind(name(info(best).kind));
    return chosen(best, "the first " + kind + " device of " + std::to_string(visibility_.visible.size()), true);
  }

  std::string hidden() const {
    std::string text;
    const auto add = [&](const std::string& sentence) { text += (text.empty() ? "" : "; ") + sentence; };
    if (!visibility_.refusal.empty()) add(visibility_.refusal);
    for (const HiddenDevice& one : visibility_.hidden) add(one.why + " hides " + device_text(devices_[one.place]));
    for (const std::string& note : visibility_.notes) add(note);
    return text;
  }

 private:
  const DeviceInfo& info(size_t index) const { return devices_[visibility_.visible[index].place]; }

  // says_hidden: append the hidden devices to `why` if the user did not choose a device.
  DeviceChoice chosen(size_t index, std::string why, bool says_hidden) const {
    const VisibleDevice& one = visibility_.visible[index];
    if (!one.rule.empty()) why += "; " + one.rule;
    if (const std::string text = says_hidden ? hidden() : ""; !text.empty()) why += "; " + text;
    return {one.place, static_cast<int>(index), std::move(why)};
  }

  [[noreturn]] void refuse_named(const std::string& wanted, const std::string& source) const {
    for (const HiddenDevice& one : visibility_.hidden) {
      const DeviceInfo& device = devices_[one.place];
      if (!matches(device, kNoIndex, wanted)) continue;
      const std::string reason = visibility_.refusal.empty() ? "" : " (" + visibility_.refusal + ")";
      throw DeviceError("'" + wanted + "' (" + source + ") names " + device_text(device) + ", which " + one.why + " hides" + reason +
                        ": change one of the two; " + list());
    }
    const std::string text = hidden();
    throw DeviceError("no Vulkan device matches '" + wanted + "' (" + source + "); " + list() + (text.empty() ? "" : "; " + text));
  }

  std::string list() const {
    std::string text;
    for (size_t i = 0; i < visibility_.visible.size(); ++i)
      text += (text.empty() ? "the devices are [" : ", [") + std::to_string(i) + "] " + device_text(info(i));
    return text.empty() ? "there is no device" : text;
  }

  const std::vector<DeviceInfo>& devices_;
  const Visibility& visibility_;
};

}  // namespace

DeviceChoice choose_device(const std::vector<DeviceInfo>& devices, const Visibility& visibility, const std::string& wanted,
                           const std::string& environment) {
  const Chooser chooser(devices, visibility);
  if (!wanted.empty()) return chooser.named(wanted, "asked for as '" + wanted + "'");
  if (!environment.empty()) return chooser.named(environment, "PUMICE_DEVICE=" + environment);
  return chooser.best();
}

std::string visibility_text(const std::vector<DeviceInfo>& devices, const Visibility& visibility) {
  return Chooser(devices, visibility).hidden();
}

}  // namespace pumice
