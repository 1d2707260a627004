// Products between DequantizeLinear and QuantizeLinear, which are then computed on the integers.
#include <algorithm>
#include <cmath>
#include <set>

#include "graph/passes/recognition.h"
#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

bool is_byte(DType dtype) {
  return dtype == DType::int8 || dtype == DType::uint8;
}

// Quantised integers of 8 or 32 bits and their parameters. An absent zero point means zero.
struct Stored {
  ValueId integers = kAbsent, scale = kAbsent, zero = kAbsent;
  int64_t axis = 0;
  uint32_t row = 0;  // report row of the DequantizeLinear node
};

struct IntegerMatch {
  const ProgramNode* product = nullptr;
  Stored x, w, y;
  ValueId bias = kAbsent;
  std::vector<uint32_t> rows;
};

class IntegerSearch {
 public:
  explicit IntegerSearch(const ProgramGraph& graph) : graph_(graph), flow_(graph) {}

  std::optional<IntegerMatch> match(const ProgramNode& quantize) const {
    IntegerMatch found;
    found.y = {quantize.outputs[0], quantize.inputs[1], zero_of(quantize), 0, quantize.report};
    if (quantize.attributes.integer("block_size", 0) != 0 || !is_byte(value(found.y.integers).dtype) || !number(found.y.scale)) return {};
    if (found.y.zero != kAbsent && !number(found.y.zero)) return {};
    found.product = product_before(quantize, found);
    if (!found.product) return {};
    const bool is_conv = found.product->row->name == "Conv";
    const auto x = stored(found.product->inputs[0]), w = stored(found.product->inputs[1]);
    if (!x || !w || !number(x->scale) || !is_byte(value(x->integers).dtype) || !is_byte(value(w->integers).dtype)) return {};
    if (!value(w->integers).constant || (!number(w->scale) && !lies_along(*w, is_conv))) return {};
    found.x = *x, found.w = *w;
    found.rows.insert(found.rows.end(), {x->row, w->row, quantize.report});
    if (found.product->inputs.size() > 2 && found.product->inputs[2] != kAbsent) {
      const auto bias = stored(found.product->inputs[2]);
      if (!bias || !is_sum(*bias, found)) return {};
      found.bias = bias->integers;
      found.rows.push_back(bias->row);
    }
    return found;
  }

 private:
  const GraphValue& value(ValueId id) const { return graph_.value(id); }
  // Returns the value of a constant of one element.
  std::optional<double> number(ValueId id) const {
    const auto& constant = value(id).constant;
    return constant && constant->desc.elements() == 1 ? std::optional(constant->as_double()[0]) : std::nullopt;
  }

  static ValueId zero_of(const ProgramNode& node) { return node.inputs.size() > 2 ? node.inputs[2] : kAbsent; }

  // Returns the integers and constant parameters of a DequantizeLinear result; nullopt for other floats.
  std::optional<Stored> stored(ValueId floats) const {
    const ProgramNode* node = flow_.producer(floats, "DequantizeLinear");
    if (!node || node->attributes.integer("block_size", 0) != 0) return {};
    const Stored found{node->inputs[0], node->inputs[1], zero_of(*node), node->attributes.integer("axis", 1), node->report};
    if (!value(found.scale).constant || (found.zero != kAbsent && !value(found.zero).constant)) return {};
    return found;
  }

  // Whether the weights' scales are per output channel.
  bool lies_along(const Stored& w, bool is_conv) const {
    const auto& shape = value(w.integers).constant->desc.shape;
    const auto rank = static_cast<int64_t>(shape.size()), axis = w.axis < 0 ? w.axis + rank : w.axis;
    return is_conv ? axis == 0 : rank == 2 && axis == 1;
  }

  // Returns the product whose result is quantised, skipping clamps that saturation implies.
  const ProgramNode* product_before(const ProgramNode& quantize, IntegerMatch& found) const {
    ValueId result = quantize.inputs[0];
    for (;;) {
      const ProgramNode* node = flow_.producer(result);
      if (!node || !flow_.only_reader(result)) return nullptr;
      if (node->row->name == "Conv" || node->row->name == "MatMul") return node;
      if (!is_implied(*node, found.y)) return nullptr;
      found.rows.push_back(node->report);
      result = node->inputs[0];
    }
  }

  bool is_implied(const ProgramNode& node, const Stored& y) const {
    const double scale = *number(y.scale), zero = y.zero == kAbsent ? 0 : *number(y.zero);
    const bool is_signed = value(y.integers).dtype == DType::int8;
    const double least = ((is_signed ? -128 : 0) - zero) * scale, most = ((is_signed ? 127 : 255) - zero) * scale;
    if (node.row->name == "Relu") return least >= 0;
    if (node.row->name != "Clip") return false;
    const auto limit = [&](size_t i, double none) {
      if (i >= node.inputs.size() || node.inputs[i] == kAbsent) return std::optional(none);
      return number(node.inputs[i]);
    };
    const auto low = limit(1, -INFINITY), high = limit(2, INFINITY);
    return low && high && *low <= least + scale / 2 && *high >= most - scale / 2;
  }

  // Whether the bias is int32 and has the scale of the accumulators.
  bool is_sum(const Stored& bias, const IntegerMatch& found) const {
    constexpr double kSame = 1e-4;
    const auto& constant = value(bias.integers).constant;
    if (!constant || constant->desc.dtype != DType::int32) return false;
    const auto all = [&](ValueId id) { return value(id).constant->as_double(); };
    if (bias.zero != kAbsent && std::ranges::any_of(all(bias.zero), [](double zero) { return zero != 0; })) return false;
    const std::vector<double> own = all(bias.scale), weights = all(found.w.scale);
    const double x = *number(found.x.scale);
    if (own.size() != 1 && weights.size() != 1 && own.size() != weights.size()) return false;
    for (size_t i = 0; i < std::max(own.size(), weights.size()); ++i) {
      const double wanted = x * weights[weights.size() == 1 ? 0 : i];
      if (std::abs(own[own.size() == 1 ? 0 : i] - wanted) > kSame * wanted) return false;
    }
    return true;
  }

  const ProgramGraph& graph_;
  ValueFlow flow_;
};

ValueId zero_or(ProgramGraph& graph, const Stored& stored) {
  if (stored.zero != kAbsent) return stored.zero;
  const DType dtype = graph.value(stored.integers).dtype;
  const int32_t zero = 0;
  GraphValue made{"zero point of " + graph.value(stored.integers).name, dtype, Shape{}};
  made.constant = HostTensor::copy_of(TensorDesc(dtype, {}), &zero);
  return graph.add_value(std::move(made));
}

ProgramNode on_integers(ProgramGraph& graph, const IntegerMatch& match) {
  ProgramNode node = *match.product;
  const bool is_conv = node.row->name == "Conv";
  node.row = find_operator(is_conv ? "QLinearConv" : "QLinearMatMul");
  node.attributes = checked_attributes(*node.row, node.name, match.product->attributes);
  node.inputs.clear();
  for (const Stored* one : {&match.x, &match.w}) {
    const ValueId zero = zero_or(graph, *one);
    node.inputs.insert(node.inputs.end(), {one->integers, one->scale, zero});
  }
  const ValueId zero = zero_or(graph, match.y);
  node.inputs.insert(node.inputs.end(), {match.y.scale, zero});
  if (match.bias != kAbsent) node.inputs.push_back(match.bias);
  node.outputs = {match.y.integers};
  return node;
}

}  // namespace

void recognise_integers(ProgramGraph& graph) {
  const bool any = std::ranges::any_of(graph.nodes, [](const ProgramNode& node) { return node.row->name == "QuantizeLinear"; });
  if (!any) return;
  Absorbed absorbed(graph);
  std::vector<std::pair<size_t, IntegerMatch>> matches;  // each match with the index of its product
  std::set<uint32_t> gone;                               // report rows of replaced producers of the integers
  const IntegerSearch search(graph);
  for (const ProgramNode& node : graph.nodes) {
    if (node.row->name != "QuantizeLinear" || node.outputs[0] == kAbsent) continue;
    const auto match = search.match(node);
    if (!match) continue;
    absorbed.note(match->rows, *match->product, Fusion::integer_products);
    gone.insert(node.report);
    matches.emplace_back(static_cast<size_t>(match->product - graph.nodes.data()), *match);
  }
  std::vector<std::pair<size_t, ProgramNode>> made;
  for (const auto& [at, match] : matches) made.emplace_back(at, on_integers(graph, match));
  for (auto& [at, node] : made) graph.nodes[at] = std::move(node);
  std::erase_if(graph.nodes, [&](const ProgramNode& node) { return gone.contains(node.report); });
  absorbed.remove();
}

}  // namespace pumice
