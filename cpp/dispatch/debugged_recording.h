// Recordings with dispatches that print or check their bounds.
#pragma once

#include "dispatch/command_list.h"

namespace pumice {

// Executions in flight have a ring each; the messages of one are read when it is waited for.
std::shared_ptr<Recording> create_debugged_recording(std::shared_ptr<Context> context, std::vector<Dispatch> dispatches,
                                                     const RecordingOptions& options);

}  // namespace pumice
