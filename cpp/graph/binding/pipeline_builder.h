// Builds pipelines on several threads, logs slow builds and can be interrupted.
#pragma once

#include <vector>

#include "dispatch/kernel/kernel.h"
#include "graph/passes/program_options.h"

namespace pumice {

class KernelVariant;

// Builds the missing pipelines. If the driver compiles a kernel for more than a second, this is logged during the build, and the duration
// afterwards. `progress` (may be empty) is called with the kernel being compiled. An interrupt throws after the running builds have
// finished.
void create_pipelines(const std::vector<const KernelVariant*>& kernels, const CompileProgress& progress = {});

}  // namespace pumice
