// Builds pipelines on several threads; another thread reports slow builds. Can be interrupted.
#pragma once

#include <vector>

#include "dispatch/kernel/kernel.h"
#include "graph/passes/program_options.h"

namespace pumice {

class KernelVariant;

// Builds the missing pipelines. Kernels that the driver compiles for more than a second are logged while they compile, and with the time
// taken afterwards. `progress` (may be empty) is called with the kernel being compiled. An interrupt throws after the running builds have
// finished.
void create_pipelines(const std::vector<const KernelVariant*>& kernels, const CompileProgress& progress = {});

}  // namespace pumice
