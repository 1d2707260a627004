// The options= argument of kernels.
#pragma once

#include <variant>

#include "bindings.h"
#include "dispatch/kernel/kernel.h"

namespace pumice {

// ShaderOptions replace all defaults for the device and arrays; a dict overrides individual keywords.
using OptionsArgument = std::variant<std::monostate, ShaderOptions, Record>;
// Throws TypeError for an unknown keyword; invalid values throw when the kernel is compiled.
OptionsCallback make_options_callback(const OptionsArgument& argument);

}  // namespace pumice
