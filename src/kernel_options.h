// The options= of kernels in Python.
#pragma once

#include <variant>

#include "bindings.h"
#include "dispatch/kernel/kernel.h"

namespace pumice {

// ShaderOptions replace all that follows from the device and the arrays; a dict of some of their keywords changes these alone.
using GivenOptions = std::variant<std::monostate, ShaderOptions, Record>;
// Throws TypeError for a keyword that ShaderOptions has not; what a value is refused for is thrown as the kernel is compiled.
OptionSource option_source(const GivenOptions& given);

}  // namespace pumice
