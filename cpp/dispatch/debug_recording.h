// Recordings with dispatches that use printf or bounds checks.
#pragma once

#include "core/error.h"
#include "dispatch/kernel/debug_messages.h"
#include "dispatch/recording.h"

namespace pumice {

// Records dispatches, debugged or not. If some are debugged, each execution in flight has its own message rings, which are read when it
// is waited for.
std::shared_ptr<Recording> make_recording(std::shared_ptr<Context> context, std::vector<Dispatch> dispatches,
                                          const RecordingOptions& options = {});

// Messages and errors of a context's finished debugged executions.
struct DebugMessages {
  std::vector<std::shared_ptr<MessageLog>> logs;  // logs that may have new messages
  std::optional<OutOfBoundsError> error;          // the first error that no wait has thrown yet
};
DebugMessages collect_debug_messages(Context& context);

}  // namespace pumice
