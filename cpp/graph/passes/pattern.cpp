#include "graph/passes/pattern.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/number_format.h"

namespace pumice {
namespace {

constexpr double kCloseEnough = 1e-3;  // relative tolerance: the constant may have been rounded to 16 bits

// Skips float casts: returns the value that `id` is converted from, or `id`.
ValueId without_casts(const ProgramGraph& graph, const ValueFlow& flow, ValueId id) {
  for (;;) {
    const ProgramNode* node = flow.producer(id);
    if (!node || (!node->row->casts && node->row->passes != RowPasses::tensor)) return id;
    if (!is_working_float(graph.value(node->inputs[0]).dtype) || !is_working_float(graph.value(id).dtype)) return id;
    id = node->inputs[0];
  }
}

// Whether the node is ReduceMean over the last axis with keepdims.
bool is_mean(const ProgramGraph& graph, const ProgramNode& node) {
  if (node.row->name != "ReduceMean" || node.attributes.integer("keepdims", 1) != 1 || node.inputs.size() != 2) return false;
  const auto& shape = graph.value(node.inputs[0]).shape;
  const auto& axes = node.inputs[1] == kAbsent ? std::optional<HostTensor>() : graph.value(node.inputs[1]).constant;
  if (!shape || !axes || axes->desc.elements() != 1) return false;
  const int64_t axis = axes->as_int64()[0];
  return axis == -1 || axis == static_cast<int64_t>(shape->size()) - 1;
}

}  // namespace

Pattern Pattern::parse(std::string_view text) {
  Pattern pattern = parse_one(text);
  if (!text.empty()) throw Error("a pattern ends at '" + std::string(text) + "'");
  return pattern;
}

Pattern Pattern::parse_one(std::string_view& text) {
  Pattern pattern;
  const auto end = std::find_if(text.begin(), text.end(), [](char c) { return c == '(' || c == ',' || c == ')'; });
  const std::string word(text.begin(), end);
  text.remove_prefix(word.size());
  if (text.empty() || text[0] != '(') {
    const auto number = parsed_number(word);
    if (number && std::isfinite(*number))
      pattern.number = *number;
    else
      pattern.name = word;
    return pattern;
  }
  pattern.op = word;
  do {
    text.remove_prefix(text[0] == ',' ? 2 : 1);
    pattern.operands.push_back(parse_one(text));
  } while (!text.empty() && text[0] == ',');
  if (text.empty()) throw Error("a pattern lacks the end of '" + word + "('");
  text.remove_prefix(1);
  return pattern;
}

std::optional<Pattern::Found> Pattern::match(const ProgramGraph& graph, const ValueFlow& flow, const ProgramNode& root) const {
  Found found;
  if (!match_node(graph, flow, root, found)) return {};
  return found;
}

bool Pattern::match(const ProgramGraph& graph, const ValueFlow& flow, ValueId id, Found& found) const {
  if (id == kAbsent) return false;
  const ValueId inner = without_casts(graph, flow, id);
  if (!op.empty()) {
    const ProgramNode* node = flow.producer(inner);
    return node && match_node(graph, flow, *node, found);
  }
  const auto given = flow.number(inner);
  if (given && (name.empty() || name[0] == '#'))
    found.number_rank = std::max(found.number_rank, graph.value(inner).constant->desc.shape.size());
  if (name.empty()) return given && std::abs(*given - number) <= kCloseEnough * std::abs(number);
  if (name[0] == '#') return given && found.numbers.emplace(name.substr(1), *given).first->second == *given;
  return found.values.emplace(name, inner).first->second == inner;
}

bool Pattern::match_node(const ProgramGraph& graph, const ValueFlow& flow, const ProgramNode& node, Found& found) const {
  const bool mean = op == "Mean";
  if (mean ? !is_mean(graph, node) : node.row->name != op) return false;
  if (!mean && node.inputs.size() != operands.size()) return false;
  const Found before = found;
  found.rows.push_back(node.report);
  const auto in_order = [&](size_t first) {
    for (size_t i = 0; i < operands.size(); ++i)
      if (!operands[i].match(graph, flow, node.inputs[first == 0 ? i : first - i], found)) return false;
    return true;
  };
  if (in_order(0)) return true;
  found = before;
  if (op != "Add" && op != "Mul") return false;
  found.rows.push_back(node.report);
  if (in_order(1)) return true;
  found = before;
  return false;
}

}  // namespace pumice
