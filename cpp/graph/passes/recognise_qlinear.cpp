// Matches Conv and MatMul between DequantizeLinear and QuantizeLinear, which then compute on the integers.
#include <algorithm>
#include <cmath>
#include <set>

#include "graph/passes/recognise_patterns.h"
#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

bool is_8bit_integer(DType dtype) {
  return dtype == DType::int8 || dtype == DType::uint8;
}

// Quantized integers of 8 or 32 bits, and their parameters. An absent zero point means zero.
struct QuantizedValue {
  ValueId integers = kAbsent, scale = kAbsent, zero = kAbsent;
  int64_t axis = 0;
  uint32_t row = 0;  // report row of the DequantizeLinear node
};

struct QLinearMatch {
  const ProgramNode* product = nullptr;
  QuantizedValue x, w, y;
  ValueId bias = kAbsent;
  std::vector<uint32_t> rows;
};

class QLinearMatcher {
 public:
  explicit QLinearMatcher(const ProgramGraph& graph) : graph_(graph), use_def_(graph) {}

  std::optional<QLinearMatch> match(const ProgramNode& quantize) const {
    QLinearMatch match_result;
    match_result.y = {quantize.outputs[0], quantize.inputs[1], get_zero_point(quantize), 0, quantize.report};
    if (quantize.attributes.integer("block_size", 0) != 0 || !is_8bit_integer(value(match_result.y.integers).dtype) ||
        !get_scalar_constant(match_result.y.scale))
      return {};
    if (match_result.y.zero != kAbsent && !get_scalar_constant(match_result.y.zero)) return {};
    match_result.product = find_conv_or_matmul(quantize, match_result);
    if (!match_result.product) return {};
    const bool is_conv = match_result.product->row->name == "Conv";
    const auto x = match_quantized(match_result.product->inputs[0]), w = match_quantized(match_result.product->inputs[1]);
    if (!x || !w || !get_scalar_constant(x->scale) || !is_8bit_integer(value(x->integers).dtype) ||
        !is_8bit_integer(value(w->integers).dtype))
      return {};
    if (!value(w->integers).constant || (!get_scalar_constant(w->scale) && !has_channel_scales(*w, is_conv))) return {};
    match_result.x = *x, match_result.w = *w;
    match_result.rows.insert(match_result.rows.end(), {x->row, w->row, quantize.report});
    if (match_result.product->inputs.size() > 2 && match_result.product->inputs[2] != kAbsent) {
      const auto bias = match_quantized(match_result.product->inputs[2]);
      if (!bias || !is_accumulator_bias(*bias, match_result)) return {};
      match_result.bias = bias->integers;
      match_result.rows.push_back(bias->row);
    }
    return match_result;
  }

 private:
  const GraphValue& value(ValueId id) const { return graph_.value(id); }
  // Returns the element of a constant with one element; nullopt for other values.
  std::optional<double> get_scalar_constant(ValueId id) const {
    const auto& constant = value(id).constant;
    return constant && constant->desc.elements() == 1 ? std::optional(constant->as_double()[0]) : std::nullopt;
  }

  static ValueId get_zero_point(const ProgramNode& node) { return node.inputs.size() > 2 ? node.inputs[2] : kAbsent; }

  // Returns the integers and constant parameters of the result of a DequantizeLinear; nullopt for other floats.
  std::optional<QuantizedValue> match_quantized(ValueId floats) const {
    const ProgramNode* node = use_def_.find_producer(floats, "DequantizeLinear");
    if (!node || node->attributes.integer("block_size", 0) != 0) return {};
    const QuantizedValue match_result{node->inputs[0], node->inputs[1], get_zero_point(*node), node->attributes.integer("axis", 1),
                                      node->report};
    if (!value(match_result.scale).constant || (match_result.zero != kAbsent && !value(match_result.zero).constant)) return {};
    return match_result;
  }

  // Whether the weights have one scale per output channel.
  bool has_channel_scales(const QuantizedValue& w, bool is_conv) const {
    const auto& shape = value(w.integers).constant->desc.shape;
    const auto rank = static_cast<int64_t>(shape.size()), axis = w.axis < 0 ? w.axis + rank : w.axis;
    return is_conv ? axis == 0 : rank == 2 && axis == 1;
  }

  // Returns the Conv or MatMul whose result is quantized. Skips clamps that saturation already implies.
  const ProgramNode* find_conv_or_matmul(const ProgramNode& quantize, QLinearMatch& match_result) const {
    ValueId result = quantize.inputs[0];
    for (;;) {
      const ProgramNode* node = use_def_.find_producer(result);
      if (!node || !use_def_.find_only_reader(result)) return nullptr;
      if (node->row->name == "Conv" || node->row->name == "MatMul") return node;
      if (!is_implied_by_saturation(*node, match_result.y)) return nullptr;
      match_result.rows.push_back(node->report);
      result = node->inputs[0];
    }
  }

  bool is_implied_by_saturation(const ProgramNode& node, const QuantizedValue& y) const {
    const double scale = *get_scalar_constant(y.scale), zero = y.zero == kAbsent ? 0 : *get_scalar_constant(y.zero);
    const bool is_signed = value(y.integers).dtype == DType::int8;
    const double min_real = ((is_signed ? -128 : 0) - zero) * scale, max_real = ((is_signed ? 127 : 255) - zero) * scale;
    if (node.row->name == "Relu") return min_real >= 0;
    if (node.row->name != "Clip") return false;
    const auto limit = [&](size_t i, double none) {
      if (i >= node.inputs.size() || node.inputs[i] == kAbsent) return std::optional(none);
      return get_scalar_constant(node.inputs[i]);
    };
    const auto low = limit(1, -INFINITY), high = limit(2, INFINITY);
    return low && high && *low <= min_real + scale / 2 && *high >= max_real - scale / 2;
  }

  // Whether the bias is int32 with the scale of the accumulators.
  bool is_accumulator_bias(const QuantizedValue& bias, const QLinearMatch& match_result) const {
    constexpr double kSame = 1e-4;
    const auto& constant = value(bias.integers).constant;
    if (!constant || constant->desc.dtype != DType::int32) return false;
    const auto all = [&](ValueId id) { return value(id).constant->as_double(); };
    if (bias.zero != kAbsent && std::ranges::any_of(all(bias.zero), [](double zero) { return zero != 0; })) return false;
    const std::vector<double> bias_scales = all(bias.scale), weights = all(match_result.w.scale);
    const double x = *get_scalar_constant(match_result.x.scale);
    if (bias_scales.size() != 1 && weights.size() != 1 && bias_scales.size() != weights.size()) return false;
    for (size_t i = 0; i < std::max(bias_scales.size(), weights.size()); ++i) {
      const double expected = x * weights[weights.size() == 1 ? 0 : i];
      if (std::abs(bias_scales[bias_scales.size() == 1 ? 0 : i] - expected) > kSame * expected) return false;
    }
    return true;
  }

  const ProgramGraph& graph_;
  UseDefChains use_def_;
};

ValueId get_or_add_zero_point(ProgramGraph& graph, const QuantizedValue& quantized_value) {
  if (quantized_value.zero != kAbsent) return quantized_value.zero;
  const DType dtype = graph.value(quantized_value.integers).dtype;
  const int32_t zero = 0;
  GraphValue zero_point{"zero point of " + graph.value(quantized_value.integers).name, dtype, Shape{}};
  zero_point.constant = HostTensor::copy_of(TensorDesc(dtype, {}), &zero);
  return graph.add_value(std::move(zero_point));
}

ProgramNode make_qlinear_node(ProgramGraph& graph, const QLinearMatch& match) {
  ProgramNode node = *match.product;
  const bool is_conv = node.row->name == "Conv";
  node.row = find_operator(is_conv ? "QLinearConv" : "QLinearMatMul");
  node.attributes = validate_attributes(*node.row, node.name, match.product->attributes);
  node.inputs.clear();
  for (const QuantizedValue* quantized : {&match.x, &match.w}) {
    const ValueId zero = get_or_add_zero_point(graph, *quantized);
    node.inputs.insert(node.inputs.end(), {quantized->integers, quantized->scale, zero});
  }
  const ValueId zero = get_or_add_zero_point(graph, match.y);
  node.inputs.insert(node.inputs.end(), {match.y.scale, zero});
  if (match.bias != kAbsent) node.inputs.push_back(match.bias);
  node.outputs = {match.y.integers};
  return node;
}

}  // namespace

void recognise_qlinear(ProgramGraph& graph) {
  const bool any = std::ranges::any_of(graph.nodes, [](const ProgramNode& node) { return node.row->name == "QuantizeLinear"; });
  if (!any) return;
  ReplacedNodes replaced(graph);
  std::vector<std::pair<size_t, QLinearMatch>> matches;  // index of the Conv or MatMul, and its match
  std::set<uint32_t> removed;                            // report rows of the QuantizeLinear nodes to remove
  const QLinearMatcher matcher(graph);
  for (const ProgramNode& node : graph.nodes) {
    if (node.row->name != "QuantizeLinear" || node.outputs[0] == kAbsent) continue;
    const auto match = matcher.match(node);
    if (!match) continue;
    replaced.report_fused_rows(match->rows, *match->product, Fusion::qlinear);
    removed.insert(node.report);
    matches.emplace_back(static_cast<size_t>(match->product - graph.nodes.data()), *match);
  }
  std::vector<std::pair<size_t, ProgramNode>> replacements;
  for (const auto& [at, match] : matches) replacements.emplace_back(at, make_qlinear_node(graph, match));
  for (auto& [at, node] : replacements) graph.nodes[at] = std::move(node);
  std::erase_if(graph.nodes, [&](const ProgramNode& node) { return removed.contains(node.report); });
  replaced.erase_unread_nodes();
}

}  // namespace pumice
