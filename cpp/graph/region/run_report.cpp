#include "graph/region/run_report.h"

#include "core/error.h"
#include "core/log.h"
#include "core/number_format.h"

namespace pumice {

std::optional<double> checked_loop_timeout(std::optional<double> seconds) {
  if (!seconds) return seconds;
  if (!(*seconds >= 0)) throw BindingError("K5", "loop_timeout", "", "seconds from 0 on, or None", general_text(*seconds));
  if (*seconds <= kMostLoopSeconds) return seconds;
  log(LogLevel::warning,
      "loop_timeout of " + general_text(*seconds) + " s is clamped at " + general_text(kMostLoopSeconds) + " s; None lifts the limit");
  return kMostLoopSeconds;
}

}  // namespace pumice
