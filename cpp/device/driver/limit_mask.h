// Reduces the limits of a Context below its device's limits, to test the engine on less capable devices.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "device/driver/device_info.h"

namespace pumice {

// Limit names -> values. An array name ("maxComputeWorkGroupCount") sets all elements, "maxComputeWorkGroupCount_1" a single one.
using LimitMask = std::map<std::string, int64_t>;

// Lowers limits of `info`, or raises alignments. Throws UnsupportedError for a limit that the engine does not use (the error lists the
// supported ones), for a value that is below 1 or that the device does not support, and for an alignment that is not a power of two.
// `source`: where the mask is from, for the error.
void mask_limits(DeviceInfo& info, const LimitMask& mask, const std::string& source = "limits");

}  // namespace pumice
