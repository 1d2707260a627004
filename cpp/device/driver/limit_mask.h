// Limits that a Context is told to keep below what its device has, so that what the engine does on lesser devices can be tested.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "device/driver/device_info.h"

namespace pumice {

// Limit names -> values. An array's name ("maxComputeWorkGroupCount") stands for all of its elements, "maxComputeWorkGroupCount_1" for one.
using LimitMask = std::map<std::string, int64_t>;

// Lowers the limits of `info`; raises what is an alignment. Throws UnsupportedError: a name that the engine does not decide by (all that
// it does are listed), a value that the device does not have, or below 1, or of an alignment that is no power of two.
void mask_limits(DeviceInfo& info, const LimitMask& mask);

}  // namespace pumice
