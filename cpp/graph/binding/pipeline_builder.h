// Builds pipelines on several threads, logs slow builds and can be interrupted.
#pragma once

#include <vector>

#include "dispatch/kernel/kernel.h"
#include "graph/passes/program_options.h"

namespace pumice {

class KernelVariant;

// Builds the missing pipelines. Logs each kernel that the driver has been compiling for more than a second, and its compile time once
// it is built. `progress` (may be empty) is called with the kernel being compiled. After an interrupt, throws once the running builds have
// finished.
void create_pipelines(const std::vector<const KernelVariant*>& kernels, const CompileProgress& progress = {});

}  // namespace pumice
