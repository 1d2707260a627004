// Rules for IF and WHILE nodes and their nested graphs, with the ids used in errors.
#pragma once

#include "dispatch/binding_rule_list.h"

namespace pumice {

std::span<const RuleText> get_graph_rules();

}  // namespace pumice
