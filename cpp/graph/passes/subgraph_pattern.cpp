#include "graph/passes/subgraph_pattern.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/number_format.h"

namespace pumice {
namespace {

constexpr double kRelativeTolerance = 1e-3;  // relative tolerance of constants, which may have been rounded to 16 bits

// Skips float casts: returns the value that `id` was cast from, or `id`.
ValueId skip_casts(const ProgramGraph& graph, const UseDefChains& use_def, ValueId id) {
  for (;;) {
    const ProgramNode* node = use_def.find_producer(id);
    if (!node || (!node->row->casts && node->row->alias.forwards != ForwardedInput::tensor)) return id;
    if (!is_operator_float(graph.value(node->inputs[0]).dtype) || !is_operator_float(graph.value(id).dtype)) return id;
    id = node->inputs[0];
  }
}

// Whether the node is ReduceMean over the last axis with keepdims.
bool is_last_axis_mean(const ProgramGraph& graph, const ProgramNode& node) {
  if (node.row->name != "ReduceMean" || node.attributes.integer("keepdims", 1) != 1 || node.inputs.size() != 2) return false;
  const auto& shape = graph.value(node.inputs[0]).shape;
  const auto& axes = node.inputs[1] == kAbsent ? std::optional<HostTensor>() : graph.value(node.inputs[1]).constant;
  if (!shape || !axes || axes->desc.elements() != 1) return false;
  const int64_t axis = axes->as_int64()[0];
  return axis == -1 || axis == static_cast<int64_t>(shape->size()) - 1;
}

}  // namespace

Pattern Pattern::parse(std::string_view text) {
  Pattern pattern = parse_prefix(text);
  if (!text.empty()) throw Error("a pattern ends at '" + std::string(text) + "'");
  return pattern;
}

Pattern Pattern::parse_prefix(std::string_view& text) {
  Pattern pattern;
  const auto end = std::find_if(text.begin(), text.end(), [](char c) { return c == '(' || c == ',' || c == ')'; });
  const std::string word(text.begin(), end);
  text.remove_prefix(word.size());
  if (text.empty() || text[0] != '(') {
    const auto number = parse_number(word);
    if (number && std::isfinite(*number))
      pattern.number = *number;
    else
      pattern.name = word;
    return pattern;
  }
  pattern.op = word;
  do {
    text.remove_prefix(text[0] == ',' ? 2 : 1);
    pattern.operands.push_back(parse_prefix(text));
  } while (!text.empty() && text[0] == ',');
  if (text.empty()) throw Error("a pattern lacks the end of '" + word + "('");
  text.remove_prefix(1);
  return pattern;
}

std::optional<Pattern::PatternMatch> Pattern::match(const ProgramGraph& graph, const UseDefChains& use_def, const ProgramNode& root) const {
  PatternMatch match_result;
  if (!match_node(graph, use_def, root, match_result)) return {};
  return match_result;
}

bool Pattern::match(const ProgramGraph& graph, const UseDefChains& use_def, ValueId id, PatternMatch& match_result) const {
  if (id == kAbsent) return false;
  const ValueId inner = skip_casts(graph, use_def, id);
  if (!op.empty()) {
    const ProgramNode* node = use_def.find_producer(inner);
    return node && match_node(graph, use_def, *node, match_result);
  }
  const auto scalar_value = use_def.get_float_scalar(inner);
  if (scalar_value && (name.empty() || name[0] == '#'))
    match_result.number_rank = std::max(match_result.number_rank, graph.value(inner).constant->desc.shape.size());
  if (name.empty()) return scalar_value && std::abs(*scalar_value - number) <= kRelativeTolerance * std::abs(number);
  if (name[0] == '#') return scalar_value && match_result.numbers.emplace(name.substr(1), *scalar_value).first->second == *scalar_value;
  return match_result.values.emplace(name, inner).first->second == inner;
}

bool Pattern::match_node(const ProgramGraph& graph, const UseDefChains& use_def, const ProgramNode& node,
                         PatternMatch& match_result) const {
  const bool mean = op == "Mean";
  if (mean ? !is_last_axis_mean(graph, node) : node.row->name != op) return false;
  if (!mean && node.inputs.size() != operands.size()) return false;
  const PatternMatch before = match_result;
  match_result.rows.push_back(node.report);
  const auto in_order = [&](size_t first) {
    for (size_t i = 0; i < operands.size(); ++i)
      if (!operands[i].match(graph, use_def, node.inputs[first == 0 ? i : first - i], match_result)) return false;
    return true;
  };
  if (in_order(0)) return true;
  match_result = before;
  if (op != "Add" && op != "Mul") return false;
  match_result.rows.push_back(node.report);
  if (in_order(1)) return true;
  match_result = before;
  return false;
}

}  // namespace pumice
