// The device macros of the GLSL extension: ncnn_<name> -> text, for extensions, features, properties and limits of a device.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "device/context.h"

namespace pumice {

// Read once per context. Features and extensions that the context masks are 0 and absent; structures that the Vulkan headers of this
// build do not know are left out.
std::shared_ptr<const std::map<std::string, std::string>> device_macros(Context& context);

}  // namespace pumice
