// Makes pipelines with several threads, and one thread beside them that reports slow ones. The making can be interrupted.
#pragma once

#include <vector>

#include "dispatch/kernel/kernel.h"
#include "graph/passes/program_options.h"

namespace pumice {

class KernelVariant;

// Makes the pipelines that are missing. A kernel that the driver compiles for more than a second is named in the log while it does, and
// with its time afterwards; `progress` (may be empty) is told the kernel under way. An interrupt throws once the kernels under way are
// done.
void create_pipelines(const std::vector<const KernelVariant*>& kernels, const CompileProgress& progress = {});

}  // namespace pumice
