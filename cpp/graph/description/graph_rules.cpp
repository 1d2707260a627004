#include "graph/description/graph_rules.h"

namespace pumice {
namespace {

constexpr RuleText kRules[] = {
    {"B2.1", "the condition of an IF, or the output of a condition graph, is known to be bool of shape [1]"},
    {"B2.2", "an IF or WHILE runs Graphs"},
    {"B2.3",
     "both branches of an IF take its inputs and return its outputs, in the same number, with the same types and compatible shapes"},
    {"B2.4", "the condition graph of a WHILE takes all its inputs and has one output, the condition"},
    {"B2.5", "the body of a WHILE takes all its inputs and returns the carried and state values with unchanged types"},
    {"B2.6", "a WHILE on values of unknown size runs only in a Program, driven by the host, and not as an operator in command lists"},
    {"B2.7", "a Graph is not a value: it cannot be an input of a node or an output of a graph"},
    {"B2.8", "no graph runs itself, directly or through others; several nodes may run the same graph"},
    {"B2.9", "a graph that a node runs has a node, and its outputs are distinct and are neither inputs nor constants"},
    {"B2.10", "inputs of a graph that a node runs may be unused, and outputs of a node may be unread"},
    {"B2.11", "a graph that a node runs is given and can be finished"},
    {"B2.12", "nodes are checked when they are added, graphs when they are finished; a finished graph does not change"},
    {"B2.13", "only the condition of an IF may be missing, which fails at run time; all other values of an IF or WHILE are required"},
};

}  // namespace

std::span<const RuleText> get_graph_rules() {
  return kRules;
}

}  // namespace pumice
