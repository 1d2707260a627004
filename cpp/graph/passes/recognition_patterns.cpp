// Recognises subgraphs by patterns written as text.
#include <algorithm>
#include <array>
#include <set>

#include "graph/passes/passes.h"
#include "graph/passes/pattern.h"
#include "graph/passes/recognition.h"

namespace pumice {
namespace {

using Found = Pattern::Found;

// Patterns of a subgraph and the node that replaces it: its operator, the values that become inputs, and the numbers that become
// attributes.
struct Rewriting {
  Fusion fusion;
  std::string_view op;
  std::vector<std::string> inputs;
  std::vector<std::pair<std::string, std::string>> numbers;  // names of attribute and number
  bool (*fits)(const ProgramGraph&, const ValueFlow&, const Found&);
  Attributes attributes = {};
  std::vector<Pattern> patterns = {};
};

bool always(const ProgramGraph&, const ValueFlow&, const Found&) {
  return true;
}

// Whether the subgraph's result has no higher rank than its operand. The replacement's result has the operand's shape, while a scalar
// constant of higher rank would add axes by broadcasting.
bool keeps_axes(const ProgramGraph& graph, const Rewriting& how, const Found& found) {
  const auto& shape = graph.value(found.values.at(how.inputs[0])).shape;
  return found.number_rank <= (shape ? shape->size() : 0);
}

// Whether every parameter has one element per element of x's last axis.
bool normalises_rows(const ProgramGraph& graph, const ValueFlow&, const Found& found) {
  const auto& x = graph.value(found.values.at("x")).shape;
  if (!x || x->empty() || x->back() == kUnknownSize) return false;
  return std::ranges::all_of(found.values,
                             [&](const auto& value) { return value.first == "x" || graph.value(value.second).shape == Shape{x->back()}; });
}

// Whether w is a constant matrix read by a single MatMul, whose result has one reader, and b a constant bias per column.
bool adds_to_columns(const ProgramGraph& graph, const ValueFlow& flow, const Found& found) {
  const GraphValue &weights = graph.value(found.values.at("w")), &bias = graph.value(found.values.at("b"));
  if (!weights.constant || !bias.constant || !weights.shape || weights.shape->size() != 2 || bias.shape != Shape{weights.shape->back()})
    return false;
  const auto is_product = [&](const ProgramNode* node) {
    return node->row->name == "MatMul" && flow.only_reader(node->outputs[0]) != nullptr;
  };
  return is_working_float(weights.dtype) && std::ranges::any_of(flow.readers(found.values.at("w")), is_product) &&
         flow.readers(found.values.at("w")).size() == 1;
}

using Spellings = std::vector<std::pair<std::string, std::vector<std::string>>>;

// Expands each pattern into one pattern for each spelling of the named parts that it contains.
std::vector<Pattern> spelled(std::vector<std::string> texts, const Spellings& parts) {
  for (const auto& [name, spellings] : parts) {
    std::vector<std::string> all;
    for (const std::string& text : texts) {
      if (text.find(name) == std::string::npos) {
        all.push_back(text);
        continue;
      }
      for (const std::string& spelling : spellings) {
        std::string made = text;
        for (size_t at = made.find(name); at != std::string::npos; at = made.find(name, at + spelling.size()))
          made.replace(at, name.size(), spelling);
        all.push_back(made);
      }
    }
    texts = std::move(all);
  }
  std::vector<Pattern> patterns;
  for (const std::string& text : texts) patterns.push_back(Pattern::parse(text));
  return patterns;
}

auto rewritings() {
  const std::vector<std::string> halved{"Mul(Mul(x, Add(BELL, 1)), 0.5)", "Mul(x, Mul(Add(BELL, 1), 0.5))",
                                        "Mul(Mul(x, 0.5), Add(BELL, 1))"};
  const std::vector<std::string> squares{"Pow(CENTRED, 2)", "Mul(CENTRED, CENTRED)"};
  const Spellings normal{{"NORMAL", {"Div(CENTRED, DEVIATION)", "Mul(CENTRED, SHARE)"}},
                         {"SHARE", {"Reciprocal(DEVIATION)", "Div(1, DEVIATION)"}},
                         {"DEVIATION", {"Sqrt(Add(Mean(SQUARE), #eps))"}},
                         {"SQUARE", squares},
                         {"CENTRED", {"Sub(x, Mean(x))"}}};
  Attributes last, tanh;
  last.set("axis", int64_t{-1});
  tanh.set("approximate", std::string("tanh"));
  return std::to_array<Rewriting>({
      {Fusion::gelu, "Gelu", {"x"}, {}, always, {}, spelled(halved, {{"BELL", {"Erf(Div(x, 1.4142135))", "Erf(Mul(x, 0.70710678))"}}})},
      {Fusion::gelu,
       "Gelu",
       {"x"},
       {},
       always,
       tanh,
       spelled(
           halved,
           {{"BELL", {"Tanh(Mul(Add(x, Mul(CUBE, 0.044715)), 0.7978845))", "Tanh(Mul(Mul(x, 0.7978845), Add(Mul(SQUARE, 0.044715), 1)))"}},
            {"CUBE", {"Pow(x, 3)", "Mul(x, SQUARE)"}},
            {"SQUARE", {"Mul(x, x)", "Pow(x, 2)"}}})},
      {Fusion::swish, "Swish", {"x"}, {{"alpha", "alpha"}}, always, {}, spelled({"Mul(x, Sigmoid(Mul(x, #alpha)))"}, {})},
      {Fusion::swish, "Swish", {"x"}, {}, always, {}, spelled({"Mul(x, Sigmoid(x))"}, {})},
      {Fusion::layer_normalization,
       "LayerNormalization",
       {"x", "w", "b"},
       {{"epsilon", "eps"}},
       normalises_rows,
       last,
       spelled({"Add(Mul(NORMAL, w), b)", "Add(Mul(x, Mul(SHARE, w)), Sub(b, Mul(Mean(x), Mul(SHARE, w))))"}, normal)},
      {Fusion::layer_normalization,
       "LayerNormalization",
       {"x", "w"},
       {{"epsilon", "eps"}},
       normalises_rows,
       last,
       spelled({"Mul(NORMAL, w)"}, normal)},
      {Fusion::rms_normalization,
       "RMSNormalization",
       {"x", "w"},
       {{"epsilon", "eps"}},
       normalises_rows,
       last,
       spelled({"Mul(Div(x, DEVIATION), w)", "Mul(Mul(x, SHARE), w)"}, {{"SHARE", {"Reciprocal(DEVIATION)", "Div(1, DEVIATION)"}},
                                                                        {"DEVIATION", {"Sqrt(Add(Mean(SQUARE), #eps))"}},
                                                                        {"SQUARE", squares},
                                                                        {"CENTRED", {"x"}}})},
      {Fusion::bias, "pumice::MatMul", {"a", "w", "b"}, {}, adds_to_columns, {}, spelled({"Add(MatMul(a, w), b)"}, {})},
  });
}

ProgramNode rewritten(const Rewriting& how, const ProgramNode& root, const Found& found) {
  ProgramNode node = root;
  node.row = find_operator(how.op);
  Attributes attributes = how.attributes;
  for (const auto& [attribute, number] : how.numbers) attributes.set(attribute, found.numbers.at(number));
  node.attributes = checked_attributes(*node.row, node.name, attributes);
  node.inputs.clear();
  for (const std::string& input : how.inputs) node.inputs.push_back(found.values.at(input));
  return node;
}

}  // namespace

void recognise_patterns(ProgramGraph& graph, const FusionSet& wanted) {
  static const auto all = rewritings();
  Absorbed absorbed(graph);
  const ValueFlow flow(graph);
  std::vector<std::pair<size_t, ProgramNode>> made;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ProgramNode& root = graph.nodes[i];
    if (root.outputs[0] == kAbsent || !is_working_float(graph.value(root.outputs[0]).dtype)) continue;
    const auto recognised = [&](const Rewriting& how) {
      if (!wanted.has(how.fusion)) return false;
      for (const Pattern& pattern : how.patterns) {
        const auto found = pattern.match(graph, flow, root);
        if (!found || !keeps_axes(graph, how, *found) || !how.fits(graph, flow, *found)) continue;
        absorbed.note(found->rows, root, how.fusion);
        made.emplace_back(i, rewritten(how, root, *found));
        return true;
      }
      return false;
    };
    (void)std::ranges::any_of(all, recognised);
  }
  for (auto& [i, node] : made) graph.nodes[i] = std::move(node);
  absorbed.remove();
}

}  // namespace pumice
