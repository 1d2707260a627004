// The rules of IF, WHILE and the graphs that they run by their ids, as errors name them.
#pragma once

#include <span>
#include <string_view>

namespace pumice {

struct GraphRule {
  std::string_view id, text;
};

std::span<const GraphRule> graph_rules();

}  // namespace pumice
