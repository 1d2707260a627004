// The features and limits that a kernel needs of a device, checked before the driver sees the kernel.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "device/context.h"
#include "device/pipeline.h"
#include "shader/shader.h"

namespace pumice {

DescriptorKind kind_of(const BindingInterface& binding);
DescriptorKind kind_of(const ImageInterface& image);

// The feature for 64-bit integers. Where a device lacks it, pairs of words stand for a shader's integers.
inline constexpr const char* kInt64Feature = "shaderInt64";

// Checks that a device can run a kernel. Throws UnsupportedError that lists every feature and limit, with its name, what the kernel needs
// and what the device has. `unpaired`: what the kernel does with 64-bit integers that pairs of words cannot.
void check_device(const Context& context, const Shader& shader, const std::vector<Specialization>& specialization,
                  const LocalSize& local_size, const std::set<std::string>& unpaired);

// Like check_device(), for the local size alone, before anything is compiled for it.
void check_local_size(const Context& context, const std::string& name, const LocalSize& local_size);

}  // namespace pumice
