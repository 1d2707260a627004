// Rules for NNAPI operations, with the ids used in errors.
#pragma once

#include "dispatch/binding_rule_list.h"

namespace pumice {

// Returns the rules for NNAPI operations: first the shared ones (NG: all, NL: LSTMs, ND: boxes), then each family's, N1 to N21.
std::span<const RuleText> get_nnapi_rules();

}  // namespace pumice
