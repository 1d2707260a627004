#include "graph/passes/finite_scores.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

// Operators that read scores. Outputs of a part for another part also count as scores. For a row of only -inf these operators return NaN,
// directly or after a subtraction of the maximum.
constexpr std::array<std::string_view, 4> kScoreReaders = {"Softmax", "LogSoftmax", "Exp", "ReduceLogSumExp"};
constexpr std::array<std::string_view, 2> kMasks = {"attn_mask", "mask"};  // attention inputs that are added to scores
constexpr std::array<std::string_view, 21> kScoreMaps = {
    "Add",  "Sub",   "Mul",       "Div",       "Neg",       "Abs",        "Min",    "Max",       "Clip",           "Sum", "Mean", "Pow",
    "Relu", "Where", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean", "CumSum", "ScatterND", "ScatterElements"};

class ScoreAnalysis {
 public:
  explicit ScoreAnalysis(ProgramGraph& graph)
      : graph_(graph), unbounded_(graph.values.size(), false), scores_(graph.values.size(), false) {}

  std::set<ValueId> run() {
    for (const ValueId input : graph_.inputs) unbounded_[index(input)] = has_floats(input) && !graph_.value(input).owned;
    for (const ProgramNode& node : graph_.nodes)
      if (is_unbounded(node))
        for (const ValueId output : node.outputs)
          if (has_floats(output)) unbounded_[index(output)] = true;
    for (size_t j = 0; j < graph_.boundary_outputs.size(); ++j)
      if (const ValueId output = graph_.outputs[j].second; graph_.boundary_outputs[j] && has_floats(output)) scores_[index(output)] = true;
    for (size_t i = graph_.nodes.size(); i-- > 0;) visit(graph_.nodes[i]);
    std::set<ValueId> found;
    for (size_t i = 0; i < scores_.size(); ++i)
      if (scores_[i] && unbounded_[i]) found.insert(static_cast<ValueId>(i));
    return found;
  }

 private:
  bool has_floats(ValueId id) const { return id != kAbsent && is_operator_float(graph_.value(id).dtype); }

  static bool passes_scores(const ProgramNode& node) {
    return node.row->casts || moves_elements_unchanged(*node.row) || is_among(kScoreMaps, node.op());
  }

  // Whether the node casts from doubles or integers beyond float16.
  bool casts_wide_number(const ProgramNode& node) const {
    if (!node.row->casts || node.inputs[0] == kAbsent) return false;
    const DType from = graph_.value(node.inputs[0]).dtype;
    return from == DType::float64 || (pumice::is_integer(from) && bits(from) >= 16 && from != DType::int16);
  }

  // Whether the node's result is unbounded: computed from the caller's floats or such integers.
  bool is_unbounded(const ProgramNode& node) const {
    if (!passes_scores(node)) return false;
    const auto is_one = [&](ValueId input) { return input != kAbsent && unbounded_[index(input)]; };
    return casts_wide_number(node) || std::ranges::any_of(node.read(), is_one);
  }

  bool reads_scores(const ProgramNode& node, size_t input) const {
    if (is_among(kScoreReaders, node.op())) return true;
    if (node.row->skeleton != Skeleton::contraction || node.op().find("Attention") == std::string_view::npos) return false;
    return input < node.row->schema.inputs.size() && is_among(kMasks, node.row->schema.inputs[input].name);
  }

  void visit(const ProgramNode& node) {
    const auto is_score = [&](ValueId id) { return id != kAbsent && scores_[index(id)]; };
    const bool passes = passes_scores(node) && std::ranges::any_of(node.outputs, is_score);
    for (size_t k = 0; k < node.read().size(); ++k)
      if (has_floats(node.inputs[k]) && (passes || reads_scores(node, k))) scores_[index(node.inputs[k])] = true;
    const auto is_unbounded_score = [&](ValueId id) { return is_score(id) && unbounded_[index(id)]; };
    if (!passes || std::ranges::none_of(node.outputs, is_unbounded_score)) return;
    ReportRow& row = graph_.report[node.report];
    if (!row.fp32_requested) row.fp32 = "float32: computes scores";
    row.fp32_requested = true;
  }

  ProgramGraph& graph_;
  std::vector<bool> unbounded_;  // for each value: whether it may hold any number of its declared dtype
  std::vector<bool> scores_;     // for each value: whether it is used as scores
};

}  // namespace

std::set<ValueId> keep_scores_finite(ProgramGraph& graph) {
  return graph.float_dtype == DType::float32 ? std::set<ValueId>() : ScoreAnalysis(graph).run();
}

}  // namespace pumice
