// Chooses a device: the one the user names, else the best; never one hidden by the environment.
#pragma once

#include <string>
#include <vector>

#include "device/driver/device_visibility.h"

namespace pumice {

struct DeviceChoice {
  size_t list_index;  // index in the given list
  int index;          // index in list_devices(), which lists only visible devices
  std::string why;    // human-readable reason for the choice
};

// requested: the device argument of Context ("uuid:...", "pci:...", an index, a kind, part of a name). If it is empty, environment
// (PUMICE_DEVICE) is used; if that is empty too, the first device of the best kind. Throws DeviceError if nothing matches, or if the match
// is hidden; the message quotes the request and the environment variable that hides the device.
DeviceChoice choose_device(const std::vector<DeviceInfo>& devices, const DeviceVisibility& visibility, const std::string& requested,
                           const std::string& environment);

// Returns sentences joined by "; " that list hidden devices with the reason, and other notes; empty if there are none.
std::string describe_visibility(const std::vector<DeviceInfo>& devices, const DeviceVisibility& visibility);

}  // namespace pumice
