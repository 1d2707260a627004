// Checks the device features and limits that a kernel needs, before the driver compiles it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "device/context.h"
#include "device/pipeline.h"
#include "shader/shader.h"

namespace pumice {

DescriptorKind get_descriptor_kind(const BindingInterface& binding);
DescriptorKind get_descriptor_kind(const ImageInterface& image);

// Feature for 64-bit integers, which are emulated with pairs of words if the device lacks it.
inline constexpr const char* kInt64Feature = "shaderInt64";

// Checks that the device can run a kernel. Throws UnsupportedError listing every missing feature and exceeded limit, with required and
// available values. `unsupported_int64`: the kernel's 64-bit operations that cannot be emulated.
void check_device_requirements(const Context& context, const Shader& shader, const std::vector<SpecializationConstant>& specialization,
                               const LocalSize& local_size, const std::set<std::string>& unsupported_int64);

// Like check_device_requirements(), for the local size only, before compilation.
void check_local_size(const Context& context, const std::string& name, const LocalSize& local_size);

}  // namespace pumice
