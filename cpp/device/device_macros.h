// Device macros of the GLSL extension: ncnn_<name> -> value, for extensions, features, properties and limits of a device.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "device/context.h"

namespace pumice {

// Queried once per context. Macros of masked features are 0, masked extensions have none; structs that the Vulkan headers of
// this build lack are omitted.
std::shared_ptr<const std::map<std::string, std::string>> get_device_macros(Context& context);

}  // namespace pumice
