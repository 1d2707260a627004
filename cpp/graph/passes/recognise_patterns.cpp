// Matches subgraphs with patterns written as text.
#include "graph/passes/recognise_patterns.h"

#include <algorithm>
#include <array>
#include <set>

#include "graph/passes/passes.h"
#include "graph/passes/subgraph_pattern.h"

namespace pumice {
namespace {

using PatternMatch = Pattern::PatternMatch;

// Patterns of a subgraph, and the node that replaces it: its operator, the matched values that become inputs, and the matched numbers that
// become attributes.
struct RewriteRule {
  Fusion fusion;
  std::string_view op;
  std::vector<std::string> inputs;
  std::vector<std::pair<std::string, std::string>> numbers;  // attribute name and number name
  bool (*fits)(const ProgramGraph&, const UseDefChains&, const PatternMatch&);
  Attributes attributes = {};
  std::vector<Pattern> patterns = {};
};

bool accept_any_match(const ProgramGraph&, const UseDefChains&, const PatternMatch&) {
  return true;
}

// Whether the result of the subgraph has no higher rank than its operand. The replacement has the shape of the operand, while broadcasting
// a scalar constant of higher rank would add axes.
bool preserves_rank(const ProgramGraph& graph, const RewriteRule& rule, const PatternMatch& match_result) {
  const auto& shape = graph.value(match_result.values.at(rule.inputs[0])).shape;
  return match_result.number_rank <= (shape ? shape->size() : 0);
}

// Whether every parameter has one element for each element of the last axis of x.
bool has_row_parameters(const ProgramGraph& graph, const UseDefChains&, const PatternMatch& match_result) {
  const auto& x = graph.value(match_result.values.at("x")).shape;
  if (!x || x->empty() || x->back() == kUnknownSize) return false;
  return std::ranges::all_of(match_result.values,
                             [&](const auto& value) { return value.first == "x" || graph.value(value.second).shape == Shape{x->back()}; });
}

// Whether w is a constant matrix read by a single MatMul with one reader, and b a constant bias per column.
bool is_column_bias(const ProgramGraph& graph, const UseDefChains& use_def, const PatternMatch& match_result) {
  const GraphValue &weights = graph.value(match_result.values.at("w")), &bias = graph.value(match_result.values.at("b"));
  if (!weights.constant || !bias.constant || !weights.shape || weights.shape->size() != 2 || bias.shape != Shape{weights.shape->back()})
    return false;
  const auto is_product = [&](const ProgramNode* node) {
    return node->row->name == "MatMul" && use_def.find_only_reader(node->outputs[0]) != nullptr;
  };
  return is_operator_float(weights.dtype) && std::ranges::any_of(use_def.readers(match_result.values.at("w")), is_product) &&
         use_def.readers(match_result.values.at("w")).size() == 1;
}

using PlaceholderForms = std::vector<std::pair<std::string, std::vector<std::string>>>;

// Replaces placeholders in the patterns: returns one pattern for each form of each placeholder.
std::vector<Pattern> expand_placeholders(std::vector<std::string> texts, const PlaceholderForms& placeholders) {
  for (const auto& [name, forms] : placeholders) {
    std::vector<std::string> all;
    for (const std::string& text : texts) {
      if (text.find(name) == std::string::npos) {
        all.push_back(text);
        continue;
      }
      for (const std::string& form : forms) {
        std::string expanded_text = text;
        for (size_t at = expanded_text.find(name); at != std::string::npos; at = expanded_text.find(name, at + form.size()))
          expanded_text.replace(at, name.size(), form);
        all.push_back(expanded_text);
      }
    }
    texts = std::move(all);
  }
  std::vector<Pattern> patterns;
  for (const std::string& text : texts) patterns.push_back(Pattern::parse(text));
  return patterns;
}

auto make_rewrite_rules() {
  const std::vector<std::string> gelu_forms{"Mul(Mul(x, Add(BELL, 1)), 0.5)", "Mul(x, Mul(Add(BELL, 1), 0.5))",
                                            "Mul(Mul(x, 0.5), Add(BELL, 1))"};
  const std::vector<std::string> squares{"Pow(CENTRED, 2)", "Mul(CENTRED, CENTRED)"};
  const PlaceholderForms normal{{"NORMAL", {"Div(CENTRED, DEVIATION)", "Mul(CENTRED, SHARE)"}},
                                {"SHARE", {"Reciprocal(DEVIATION)", "Div(1, DEVIATION)"}},
                                {"DEVIATION", {"Sqrt(Add(Mean(SQUARE), #eps))"}},
                                {"SQUARE", squares},
                                {"CENTRED", {"Sub(x, Mean(x))"}}};
  Attributes last, tanh;
  last.set("axis", int64_t{-1});
  tanh.set("approximate", std::string("tanh"));
  return std::to_array<RewriteRule>({
      {Fusion::gelu,
       "Gelu",
       {"x"},
       {},
       accept_any_match,
       {},
       expand_placeholders(gelu_forms, {{"BELL", {"Erf(Div(x, 1.4142135))", "Erf(Mul(x, 0.70710678))"}}})},
      {Fusion::gelu,
       "Gelu",
       {"x"},
       {},
       accept_any_match,
       tanh,
       expand_placeholders(
           gelu_forms,
           {{"BELL", {"Tanh(Mul(Add(x, Mul(CUBE, 0.044715)), 0.7978845))", "Tanh(Mul(Mul(x, 0.7978845), Add(Mul(SQUARE, 0.044715), 1)))"}},
            {"CUBE", {"Pow(x, 3)", "Mul(x, SQUARE)"}},
            {"SQUARE", {"Mul(x, x)", "Pow(x, 2)"}}})},
      {Fusion::swish,
       "Swish",
       {"x"},
       {{"alpha", "alpha"}},
       accept_any_match,
       {},
       expand_placeholders({"Mul(x, Sigmoid(Mul(x, #alpha)))"}, {})},
      {Fusion::swish, "Swish", {"x"}, {}, accept_any_match, {}, expand_placeholders({"Mul(x, Sigmoid(x))"}, {})},
      {Fusion::layer_normalization,
       "LayerNormalization",
       {"x", "w", "b"},
       {{"epsilon", "eps"}},
       has_row_parameters,
       last,
       expand_placeholders({"Add(Mul(NORMAL, w), b)", "Add(Mul(x, Mul(SHARE, w)), Sub(b, Mul(Mean(x), Mul(SHARE, w))))"}, normal)},
      {Fusion::layer_normalization,
       "LayerNormalization",
       {"x", "w"},
       {{"epsilon", "eps"}},
       has_row_parameters,
       last,
       expand_placeholders({"Mul(NORMAL, w)"}, normal)},
      {Fusion::rms_normalization,
       "RMSNormalization",
       {"x", "w"},
       {{"epsilon", "eps"}},
       has_row_parameters,
       last,
       expand_placeholders({"Mul(Div(x, DEVIATION), w)", "Mul(Mul(x, SHARE), w)"},
                           {{"SHARE", {"Reciprocal(DEVIATION)", "Div(1, DEVIATION)"}},
                            {"DEVIATION", {"Sqrt(Add(Mean(SQUARE), #eps))"}},
                            {"SQUARE", squares},
                            {"CENTRED", {"x"}}})},
      {Fusion::bias, "pumice::MatMul", {"a", "w", "b"}, {}, is_column_bias, {}, expand_placeholders({"Add(MatMul(a, w), b)"}, {})},
  });
}

ProgramNode apply_rule(const RewriteRule& rule, const ProgramNode& root, const PatternMatch& match_result) {
  ProgramNode node = root;
  node.row = find_operator(rule.op);
  Attributes attributes = rule.attributes;
  for (const auto& [attribute, number] : rule.numbers) attributes.set(attribute, match_result.numbers.at(number));
  node.attributes = validate_attributes(*node.row, node.name, attributes);
  node.inputs.clear();
  for (const std::string& input : rule.inputs) node.inputs.push_back(match_result.values.at(input));
  return node;
}

}  // namespace

void recognise_patterns(ProgramGraph& graph, const FusionSet& fusions) {
  static const auto all = make_rewrite_rules();
  ReplacedNodes replaced(graph);
  const UseDefChains use_def(graph);
  std::vector<std::pair<size_t, ProgramNode>> replacements;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ProgramNode& root = graph.nodes[i];
    if (root.outputs[0] == kAbsent || !is_operator_float(graph.value(root.outputs[0]).dtype)) continue;
    const auto recognised = [&](const RewriteRule& rule) {
      if (!fusions.has(rule.fusion)) return false;
      for (const Pattern& pattern : rule.patterns) {
        const auto match_result = pattern.match(graph, use_def, root);
        if (!match_result || !preserves_rank(graph, rule, *match_result) || !rule.fits(graph, use_def, *match_result)) continue;
        replaced.report_fused_rows(match_result->rows, root, rule.fusion);
        replacements.emplace_back(i, apply_rule(rule, root, *match_result));
        return true;
      }
      return false;
    };
    (void)std::ranges::any_of(all, recognised);
  }
  for (auto& [i, node] : replacements) graph.nodes[i] = std::move(node);
  replaced.erase_unread_nodes();
}

}  // namespace pumice
