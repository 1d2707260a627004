// What a kernel needs of a device: features and limits, checked before the driver sees it.
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

// Where a device lacks it, pairs of words stand for its integers.
inline constexpr const char* kInt64Feature = "shaderInt64";

// Throws UnsupportedError that lists every feature and limit, with its name, what the kernel needs and what the device has. `unpaired`:
// what the kernel does with 64-bit integers that pairs of words cannot.
void check_device(const Context& context, const Shader& shader, const std::vector<Specialization>& specialization,
                  const LocalSize& local_size, const std::set<std::string>& unpaired);

// The local size alone, before anything is compiled for it; likewise.
void check_local_size(const Context& context, const std::string& name, const LocalSize& local_size);

}  // namespace pumice
