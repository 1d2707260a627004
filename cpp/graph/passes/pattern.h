// Patterns of nodes, stated as text: "Mul(x, Sigmoid(Mul(x, #alpha)))".
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/passes/value_flow.h"

namespace pumice {

// Op(..) is a node of that operator, the operands of Add and Mul in any order; Mean(x) is ReduceMean over the last axis, which stays as 1.
// A number is a constant of one element close to it. A name is any value, the same wherever it stands; #name is a constant of one
// element. Conversions between floats are looked through.
class Pattern {
 public:
  static Pattern parse(std::string_view text);

  struct Found {
    std::map<std::string, ValueId> values;
    std::map<std::string, double> numbers;
    size_t number_rank = 0;      // the largest of its constants' ranks: one element of any rank is a number
    std::vector<uint32_t> rows;  // of the report: the nodes of the pattern
  };
  // The root is an Op.
  std::optional<Found> match(const ProgramGraph& graph, const ValueFlow& flow, const ProgramNode& root) const;

 private:
  bool match(const ProgramGraph& graph, const ValueFlow& flow, ValueId id, Found& found) const;
  bool match_node(const ProgramGraph& graph, const ValueFlow& flow, const ProgramNode& node, Found& found) const;
  static Pattern parse_one(std::string_view& text);

  std::string op, name;  // one of them, or neither
  double number = 0;
  std::vector<Pattern> operands;
};

}  // namespace pumice
