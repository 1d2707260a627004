#include "graph/description/graph_rules.h"

namespace pumice {
namespace {

constexpr Rule kRules[] = {
    {"B2.1", "a condition, given to an IF or made by a condition graph, is bool of shape [1] and known to be"},
    {"B2.2", "what an IF or WHILE runs is a Graph"},
    {"B2.3", "both branches of an IF take its inputs and give its outputs: as many, of the same types, in shapes that can be the same"},
    {"B2.4", "the condition graph of a WHILE takes all its inputs and has one output, the condition"},
    {"B2.5", "the body of a WHILE takes all its inputs and gives the carried and state values, as what it takes them"},
    {"B2.6", "a WHILE on values of unknown size runs as a Program, driven by the host, and not as an operator for command lists"},
    {"B2.7", "a Graph is no value: it is no input of a node and no output of a graph"},
    {"B2.8", "no graph runs itself, directly or through others; several nodes may run the same one"},
    {"B2.9", "a graph that is run has a node, each output once, and none that is an input or a constant"},
    {"B2.10", "an input of a graph that is run may be unused, and an output of a node unread"},
    {"B2.11", "a graph that is run is given and can be finished"},
    {"B2.12", "nodes are checked when they are added, graphs when they are finished; a finished graph does not change"},
    {"B2.13", "only the condition of an IF may be absent, which fails when it runs; values of an IF or WHILE are given"},
};

}  // namespace

std::span<const Rule> graph_rules() {
  return kRules;
}

}  // namespace pumice
