// Recordings with dispatches that print or check their bounds.
#pragma once

#include "dispatch/command_list.h"
#include "dispatch/kernel/messages.h"

namespace pumice {

// Executions in flight have a ring each; the messages of one are read when it is waited for.
std::shared_ptr<Recording> create_debugged_recording(std::shared_ptr<Context> context, std::vector<Dispatch> dispatches,
                                                     const RecordingOptions& options);

// What the executions of a context's debugged recordings said that have finished.
struct Collected {
  std::vector<std::shared_ptr<MessageLog>> logs;  // that may have been added to
  std::optional<OutOfBoundsError> error;          // the first that no wait has raised yet
};
Collected collect_debugged(Context& context);

}  // namespace pumice
