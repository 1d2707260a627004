#include "graph/region/run_report.h"

#include "core/error.h"
#include "core/log.h"
#include "core/number_format.h"

namespace pumice {

std::optional<double> validate_loop_timeout(std::optional<double> seconds) {
  if (!seconds) return seconds;
  if (!(*seconds >= 0)) throw BindingError("K5", "loop_timeout", "", "a non-negative number of seconds, or None", format_general(*seconds));
  if (*seconds <= kMaxLoopSeconds) return seconds;
  log(LogLevel::warning,
      "loop_timeout of " + format_general(*seconds) + " s is clamped to " + format_general(kMaxLoopSeconds) + " s; None lifts the limit");
  return kMaxLoopSeconds;
}

}  // namespace pumice
