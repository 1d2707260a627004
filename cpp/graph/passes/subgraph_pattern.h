// Subgraph patterns written as text, e.g. "Mul(x, Sigmoid(Mul(x, #alpha)))".
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/passes/use_def_chains.h"

namespace pumice {

// Syntax: Op(..) matches a node with that operator; operands of Add and Mul match in any order. Mean(x) is ReduceMean over the last axis
// with keepdims. A number matches a scalar constant close to it. A name matches any value, the same at each occurrence. #name matches a
// scalar constant. Float casts are skipped.
class Pattern {
 public:
  static Pattern parse(std::string_view text);

  struct PatternMatch {
    std::map<std::string, ValueId> values;
    std::map<std::string, double> numbers;
    size_t number_rank = 0;      // highest rank of the matched scalar constants
    std::vector<uint32_t> rows;  // report rows of the matched nodes
  };
  // Matches the pattern at `root`; the pattern must be an Op.
  std::optional<PatternMatch> match(const ProgramGraph& graph, const UseDefChains& use_def, const ProgramNode& root) const;

 private:
  bool match(const ProgramGraph& graph, const UseDefChains& use_def, ValueId id, PatternMatch& match_result) const;
  bool match_node(const ProgramGraph& graph, const UseDefChains& use_def, const ProgramNode& node, PatternMatch& match_result) const;
  static Pattern parse_prefix(std::string_view& text);

  std::string op, name;  // at most one of op and name is set
  double number = 0;
  std::vector<Pattern> operands;
};

}  // namespace pumice
