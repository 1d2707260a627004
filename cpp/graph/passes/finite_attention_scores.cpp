#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "graph/passes/passes.h"
#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

// Operators that read attention scores. For a row of only -inf they return NaN, directly or after subtracting the maximum. Outputs that
// another region reads also count as scores.
constexpr std::array<std::string_view, 4> kScoreReaders = {"Softmax", "LogSoftmax", "Exp", "ReduceLogSumExp"};
constexpr std::array<std::string_view, 2> kMasks = {"attn_mask", "mask"};  // attention inputs that are added to the scores
constexpr std::array<std::string_view, 21> kScoreMaps = {
    "Add",  "Sub",   "Mul",       "Div",       "Neg",       "Abs",        "Min",    "Max",       "Clip",           "Sum", "Mean", "Pow",
    "Relu", "Where", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean", "CumSum", "ScatterND", "ScatterElements"};

class ScoreAnalysis {
 public:
  explicit ScoreAnalysis(ProgramGraph& graph)
      : graph_(graph), unbounded_(graph.values.size(), false), scores_(graph.values.size(), false) {}

  std::set<ValueId> run() {
    for (const ValueId input : graph_.inputs) unbounded_[to_index(input)] = is_float_value(input) && !graph_.value(input).owned;
    for (const ProgramNode& node : graph_.nodes)
      if (is_unbounded(node))
        for (const ValueId output : node.outputs)
          if (is_float_value(output)) unbounded_[to_index(output)] = true;
    for (size_t j = 0; j < graph_.boundary_outputs.size(); ++j)
      if (const ValueId output = graph_.outputs[j].second; graph_.boundary_outputs[j] && is_float_value(output))
        scores_[to_index(output)] = true;
    for (size_t i = graph_.nodes.size(); i-- > 0;) analyze_node(graph_.nodes[i]);
    std::set<ValueId> result;
    for (size_t i = 0; i < scores_.size(); ++i)
      if (scores_[i] && unbounded_[i]) result.insert(static_cast<ValueId>(i));
    return result;
  }

 private:
  bool is_float_value(ValueId id) const { return id != kAbsent && is_operator_float(graph_.value(id).dtype); }

  static bool propagates_scores(const ProgramNode& node) {
    return node.row->casts || moves_elements_unchanged(*node.row) || contains_name(kScoreMaps, node.op());
  }

  // Whether the node casts float64, or integers that may exceed the float16 range.
  bool casts_large_number(const ProgramNode& node) const {
    if (!node.row->casts || node.inputs[0] == kAbsent) return false;
    const DType from = graph_.value(node.inputs[0]).dtype;
    return from == DType::float64 || (pumice::is_integer(from) && bits(from) >= 16 && from != DType::int16);
  }

  // Whether the result is unbounded: computed from float graph inputs, or from integers that may exceed float16.
  bool is_unbounded(const ProgramNode& node) const {
    if (!propagates_scores(node)) return false;
    const auto is_unbounded_input = [&](ValueId input) { return input != kAbsent && unbounded_[to_index(input)]; };
    return casts_large_number(node) || std::ranges::any_of(node.get_data_inputs(), is_unbounded_input);
  }

  bool reads_scores(const ProgramNode& node, size_t input) const {
    if (contains_name(kScoreReaders, node.op())) return true;
    if (node.row->skeleton != KernelKind::contraction || node.op().find("Attention") == std::string_view::npos) return false;
    return input < node.row->schema.inputs.size() && contains_name(kMasks, node.row->schema.inputs[input].name);
  }

  void analyze_node(const ProgramNode& node) {
    const auto is_score = [&](ValueId id) { return id != kAbsent && scores_[to_index(id)]; };
    const bool passes = propagates_scores(node) && std::ranges::any_of(node.outputs, is_score);
    for (size_t k = 0; k < node.get_data_inputs().size(); ++k)
      if (is_float_value(node.inputs[k]) && (passes || reads_scores(node, k))) scores_[to_index(node.inputs[k])] = true;
    const auto is_unbounded_score = [&](ValueId id) { return is_score(id) && unbounded_[to_index(id)]; };
    if (!passes || std::ranges::none_of(node.outputs, is_unbounded_score)) return;
    ReportRow& row = graph_.report[node.report];
    if (!row.fp32_requested) row.fp32 = "float32: computes scores";
    row.fp32_requested = true;
  }

  ProgramGraph& graph_;
  std::vector<bool> unbounded_;  // for each value: whether it may hold any number that its declared dtype can represent
  std::vector<bool> scores_;     // for each value: whether it is used as a score
};

}  // namespace

std::set<ValueId> keep_attention_scores_finite(ProgramGraph& graph) {
  return graph.float_dtype == DType::float32 ? std::set<ValueId>() : ScoreAnalysis(graph).run();
}

}  // namespace pumice
