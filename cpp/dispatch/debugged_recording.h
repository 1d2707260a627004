// Recordings with dispatches that print or check their bounds.
#pragma once

#include "core/error.h"
#include "dispatch/kernel/messages.h"
#include "dispatch/recording.h"

namespace pumice {

// A recording of any dispatches. Where one is debugged, executions in flight have a ring each, and the messages of an execution are read
// when it is waited for.
std::shared_ptr<Recording> make_recording(std::shared_ptr<Context> context, std::vector<Dispatch> dispatches,
                                          const RecordingOptions& options = {});

// Messages and errors of the finished executions of a context's debugged recordings.
struct Collected {
  std::vector<std::shared_ptr<MessageLog>> logs;  // logs that may have got messages
  std::optional<OutOfBoundsError> error;          // the first that no wait has raised yet
};
Collected collect_debugged(Context& context);

}  // namespace pumice
