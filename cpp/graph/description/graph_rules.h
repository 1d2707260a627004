// The rules of IF, WHILE and the graphs that they run by their ids, as errors name them.
#pragma once

#include "dispatch/rule_list.h"

namespace pumice {

std::span<const Rule> graph_rules();

}  // namespace pumice
