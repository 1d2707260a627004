#include "core/injected_fault.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "core/log.h"

namespace pumice {
namespace {

constexpr std::array<std::string_view, 11> kFaults{"stale", "order",    "race",           "in place",      "steps",          "push",
                                                   "fold",  "reversed", "compiler crash", "compiler hang", "compiler reject"};

std::string read_injected_fault() {
  const char* const fault_name = std::getenv("PUMICE_FAULT");
  if (!fault_name || !*fault_name) return {};
  if (std::ranges::find(kFaults, fault_name) == kFaults.end()) {
    std::string known_faults;
    for (const std::string_view fault : kFaults) known_faults += (known_faults.empty() ? "'" : ", '") + std::string(fault) + "'";
    throw Error("PUMICE_FAULT: expected one of " + known_faults + "; given '" + std::string(fault_name) + "'");
  }
  log(LogLevel::warning, "PUMICE_FAULT: plans deliberately have the fault '" + std::string(fault_name) + "'");
  return fault_name;
}

}  // namespace

bool is_fault_injected(std::string_view fault) {
  static const std::string injected = read_injected_fault();
  return injected == fault;
}

}  // namespace pumice
