// The rules of NNAPI's operations by their ids, as errors name them.
#pragma once

#include "dispatch/rule_list.h"

namespace pumice {

// The rules of NNAPI's operations with their sentences: first those that several operations share (NG: all, NL: LSTMs, ND: those on boxes),
// then those of each family, N1 to N21.
std::span<const Rule> nnapi_rules();

}  // namespace pumice
