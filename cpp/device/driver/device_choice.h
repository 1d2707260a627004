// The choice of one device among the system's: by what the user names, else the best, and never one that the environment hides.
#pragma once

#include <string>
#include <vector>

#include "device/driver/visibility.h"

namespace pumice {

struct DeviceChoice {
  size_t place;     // in the list that was given
  int index;        // in devices(), which has the visible ones
  std::string why;  // for people: the rule by which the device was chosen
};

// wanted: what Context was asked for ("uuid:...", "pci:...", an index, a kind, part of a name), else environment: PUMICE_DEVICE, else the
// first of the best kind. Throws DeviceError: nothing matches, or what matches is hidden, with both statements.
DeviceChoice choose_device(const std::vector<DeviceInfo>& devices, const Visibility& visibility, const std::string& wanted,
                           const std::string& environment);

// Sentences, joined by "; ", that say which devices are hidden and why, and what else is to know; empty where nothing is.
std::string visibility_text(const std::vector<DeviceInfo>& devices, const Visibility& visibility);

}  // namespace pumice
