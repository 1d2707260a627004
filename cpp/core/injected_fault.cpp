#include "core/injected_fault.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "core/log.h"

namespace pumice {
namespace {

constexpr std::array<std::string_view, 8> kFaults{"stale", "order", "race", "in place", "steps", "push", "fold", "reversed"};

std::string read_fault() {
  const char* const given = std::getenv("PUMICE_FAULT");
  if (!given || !*given) return {};
  if (std::ranges::find(kFaults, given) == kFaults.end()) {
    std::string known;
    for (const std::string_view fault : kFaults) known += (known.empty() ? "'" : ", '") + std::string(fault) + "'";
    throw Error("PUMICE_FAULT: one of " + known + " expected; given '" + std::string(given) + "'");
  }
  log(LogLevel::warning, "PUMICE_FAULT: plans have the fault '" + std::string(given) + "' on purpose");
  return given;
}

}  // namespace

bool is_injected(std::string_view fault) {
  static const std::string injected = read_fault();
  return injected == fault;
}

}  // namespace pumice
