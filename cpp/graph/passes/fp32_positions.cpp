#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <string>

#include "graph/passes/passes.h"
#include "graph/passes/use_def_chains.h"
#include "operators/table/precision_support.h"
#include "operators/table/result_dtype.h"

namespace pumice {
namespace {

// Operators whose result is a position if all inputs are positions or constants.
constexpr std::array<std::string_view, 27> kArithmetic = {"Add",       "Sub",       "Mul",        "Div",  "Mod",  "Neg",       "Abs",
                                                          "Min",       "Max",       "Clip",       "Pow",  "Sqrt", "Log",       "Exp",
                                                          "Floor",     "Ceil",      "Round",      "Sign", "Sum",  "CumSum",    "ReduceSum",
                                                          "ReduceMax", "ReduceMin", "ReduceMean", "Mean", "TopK", "Reciprocal"};
constexpr std::array<std::string_view, 3> kPeriodic = {"Sin", "Cos", "Tan"};
constexpr std::array<std::string_view, 12> kSteps = {"Floor",       "Ceil",    "Round",          "Mod",    "Equal",  "Less",
                                                     "LessOrEqual", "Greater", "GreaterOrEqual", "ArgMax", "ArgMin", "TopK"};

// Origin of the elements of a float tensor; a result has the highest origin of its inputs. Values from another region, a branch or an
// earlier loop iteration may be positions.
enum class ValueOrigin : uint8_t { constants, input, scaled_input, integers, other };

bool is_data_movement(const ProgramNode& node) {
  return moves_elements_unchanged(*node.row) || node.op() == "Where";
}

class PositionAnalysis {
 public:
  explicit PositionAnalysis(ProgramGraph& graph)
      : graph_(graph), use_def_(graph), origins_(graph.values.size(), ValueOrigin::other), requires_fp32_(graph.values.size()) {}

  void run() {
    for (size_t i = 0; i < graph_.values.size(); ++i)
      if (graph_.values[i].constant || graph_.values[i].owned) origins_[i] = ValueOrigin::constants;
    for (size_t i = 0; i < graph_.inputs.size(); ++i)
      if (const ValueId input = graph_.inputs[i]; !graph_.value(input).owned)
        origins_[to_index(input)] =
            i < graph_.boundary_inputs.size() && graph_.boundary_inputs[i] ? ValueOrigin::integers : ValueOrigin::input;
    for (const ProgramNode& node : graph_.nodes) {
      const ValueOrigin result_origin = compute_result_origin(node);
      for (const ValueId output : node.outputs)
        if (is_float_value(output)) origins_[to_index(output)] = result_origin;
    }
    for (size_t j = 0; j < graph_.boundary_outputs.size(); ++j)
      if (const ValueId output = graph_.outputs[j].second;
          graph_.boundary_outputs[j] && origins_[to_index(output)] != ValueOrigin::constants)
        require_fp32(output);
    for (size_t i = graph_.nodes.size(); i-- > 0;) analyze_node(graph_.nodes[i]);
  }

 private:
  bool is_float_value(ValueId id) const { return id != kAbsent && is_float(graph_.value(id).dtype); }

  // Whether the value has floats whose dtype depends on the precision, i.e. not float64.
  bool is_operator_float_value(ValueId id) const { return id != kAbsent && is_operator_float(graph_.value(id).dtype); }

  bool is_integer_value(ValueId id) const { return id != kAbsent && pumice::is_integer(graph_.value(id).dtype); }

  // Returns the highest origin among the float inputs of a node.
  ValueOrigin get_max_input_origin(const ProgramNode& node) const {
    ValueOrigin max_origin = ValueOrigin::constants;
    for (size_t k = 0; k < node.get_data_inputs().size(); ++k)
      if (is_float_value(node.inputs[k])) max_origin = std::max(max_origin, origins_[to_index(node.inputs[k])]);
    return max_origin;
  }

  ValueOrigin compute_result_origin(const ProgramNode& node) const {
    if (node.op() == "Range") return ValueOrigin::integers;
    if (node.row->casts) return is_integer_value(node.inputs[0]) ? ValueOrigin::integers : get_max_input_origin(node);
    if (is_data_movement(node)) return get_max_input_origin(node);
    if (!contains_name(kArithmetic, node.op()) && !is_outer_product(node)) return ValueOrigin::other;
    const ValueOrigin read = get_max_input_origin(node);
    return read == ValueOrigin::input ? ValueOrigin::scaled_input : read;
  }

  // Whether the node is an outer product (K = 1), such as frequencies x positions.
  bool is_outer_product(const ProgramNode& node) const {
    if (node.op() == "Einsum") return is_contraction_free_einsum(node.attributes.text("equation"));
    const bool is_gemm = node.op() == "Gemm";
    if (!is_gemm && node.op() != "MatMul" && node.op() != "pumice::MatMul") return false;  // pumice::MatMul is a MatMul with bias
    const auto is_one = [&](size_t input, bool last) {
      const auto& shape = graph_.value(node.inputs[input]).shape;
      return shape && shape->size() > 1 && (*shape)[shape->size() - (last ? 1 : 2)] == 1;
    };
    return is_one(0, !is_gemm || node.attributes.integer("transA", 0) == 0) ||
           is_one(1, is_gemm && node.attributes.integer("transB", 0) != 0);
  }

  static bool is_contraction_free_einsum(const std::string& equation) {
    const size_t arrow = equation.find("->");
    if (arrow == std::string::npos) return false;
    const std::string result_axes = equation.substr(arrow);
    return std::ranges::all_of(equation.substr(0, arrow),
                               [&](char letter) { return !std::isalpha(letter) || result_axes.find(letter) != std::string::npos; });
  }

  // Whether 16-bit rounding errors in the inputs can change the result completely.
  bool is_precision_sensitive(const ProgramNode& node) const {
    const ValueOrigin read = get_max_input_origin(node);
    if (contains_name(kPeriodic, node.op())) return read == ValueOrigin::integers || read == ValueOrigin::scaled_input;
    const bool makes_integers = node.row->casts && !is_float_value(node.outputs[0]) && is_float_value(node.inputs[0]);
    if (makes_integers)
      return read != ValueOrigin::constants && read != ValueOrigin::other;  // includes ids and lengths that a model accepts as floats
    return read == ValueOrigin::integers && contains_name(kSteps, node.op());
  }

  void require_fp32(ValueId id) {
    if (is_float_value(id) && origins_[to_index(id)] != ValueOrigin::other) requires_fp32_[to_index(id)] = true;
  }

  void analyze_node(const ProgramNode& node) {
    keep_host_inputs_fp32(node);
    const bool is_required = std::ranges::any_of(node.outputs, [&](ValueId id) { return id != kAbsent && requires_fp32_[to_index(id)]; });
    if (!is_required && !is_precision_sensitive(node)) {
      if (casts_large_integers(node)) mark_node_fp32(node, "float32: integers");
      return;
    }
    mark_node_fp32(node, is_required ? "float32: computes positions" : "float32: reads positions");
    std::ranges::for_each(node.get_data_inputs(), [&](ValueId input) { require_fp32(input); });
  }

  // The host reads inputs such as scales and limits. Rounding them to 16 bits could change output sizes.
  void keep_host_inputs_fp32(const ProgramNode& node) {
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId input = node.inputs[k];
      if (is_host_input(node, k) && is_operator_float_value(input)) require_fp32(input);
    }
  }

  // Whether the node casts integers that may exceed float16, such as sums of int8 products, for an elementwise node that may scale them.
  bool casts_large_integers(const ProgramNode& node) const {
    if (!node.row->casts || !is_operator_float_value(node.outputs[0]) || !is_integer_value(node.inputs[0])) return false;
    const DType from = graph_.value(node.inputs[0]).dtype;
    const auto scales = [](const ProgramNode* reader) { return reader->row->precision.mixed_precision || is_data_movement(*reader); };
    return bits(from) >= 16 && from != DType::int16 && std::ranges::any_of(use_def_.readers(node.outputs[0]), scales);
  }

  void mark_node_fp32(const ProgramNode& node, const char* reason) {
    const auto is_working = [&](ValueId id) { return is_operator_float_value(id); };
    if (std::ranges::none_of(node.outputs, is_working) && std::ranges::none_of(node.get_data_inputs(), is_working)) return;
    ReportRow& row = graph_.report[node.report];
    if (!row.fp32_requested) row.fp32 = reason;
    row.fp32_requested = true;
  }

  ProgramGraph& graph_;
  const UseDefChains use_def_;
  std::vector<ValueOrigin> origins_;  // indexed by value
  std::vector<bool> requires_fp32_;   // for each value: whether it must be float32
};

}  // namespace

void keep_positions_fp32(ProgramGraph& graph) {
  if (graph.float_dtype != DType::float32) PositionAnalysis(graph).run();
}

}  // namespace pumice
