#include "device/driver/environment_mask.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace pumice {
namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r";
  const size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? std::string_view() : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Returns the items of a comma-separated variable; none if it is unset or blank.
std::vector<std::string_view> read_items(const char* variable) {
  const char* const value = std::getenv(variable);
  std::string_view rest = value ? trim(value) : "";
  std::vector<std::string_view> items;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    items.push_back(trim(rest.substr(0, comma)));
    if (items.back().empty()) throw DeviceError(std::string(variable) + ": expected names separated by commas; given '" + value + "'");
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
    if (trim(rest).empty()) throw DeviceError(std::string(variable) + ": nothing follows the last comma; given '" + value + "'");
  }
  return items;
}

[[noreturn]] void refuse_repeated_name(const std::string& variable, const std::string& name) {
  throw DeviceError(variable + ": '" + name + "' occurs twice");
}

}  // namespace

EnvironmentMask EnvironmentMask::from_process() {
  EnvironmentMask mask;
  for (const std::string_view item : read_items("PUMICE_LIMITS")) {
    const size_t equals = item.find('=');
    const std::string_view number = equals == std::string_view::npos ? "" : trim(item.substr(equals + 1));
    int64_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error != std::errc() || end != number.data() + number.size())
      throw DeviceError("PUMICE_LIMITS: expected NAME=INTEGER, separated by commas; given '" + std::string(item) + "'");
    const std::string name(trim(item.substr(0, equals)));
    if (!mask.limits.emplace(name, value).second) refuse_repeated_name("PUMICE_LIMITS", name);
  }
  for (const std::string_view name : read_items("PUMICE_WITHOUT"))
    if (!mask.without.emplace(name).second) refuse_repeated_name("PUMICE_WITHOUT", std::string(name));
  return mask;
}

std::string EnvironmentMask::describe() const {
  std::string text;
  for (const auto& [name, value] : limits) text += (text.empty() ? "" : ", ") + name + "=" + std::to_string(value);
  for (const std::string& name : without) text += (text.empty() ? "without " : ", without ") + name;
  return text;
}

void check_masked_features(const DeviceInfo& info, const std::set<std::string>& masked, const std::string& source) {
  for (const std::string& name : masked) {
    if (name == "timelineSemaphore") throw UnsupportedError(source + " '" + name + "': the engine needs it to wait for the device");
    if (!info.features.contains(name) && !name.starts_with("VK_"))
      throw UnsupportedError(source + " '" + name + "': not a feature or extension that the engine uses; pumice.devices() lists them");
  }
}

}  // namespace pumice
