#include "graph/passes/fuse_block_quant_matmuls.h"

#include <algorithm>
#include <set>

#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

enum BlockInput : size_t { kX, kW, kScale, kZero = kResidualInput + 1, kGateW, kGateScale, kGateZero, kGain };

bool is_block_product(const ProgramNode* node) {
  return node && node->row->name == "pumice::BlockMatMul";
}

ValueId input_of(const ProgramNode& node, size_t input) {
  return input < node.inputs.size() ? node.inputs[input] : kAbsent;
}

class BlockJoins {
 public:
  explicit BlockJoins(ProgramGraph& graph) : graph_(graph), flow_(graph), gone_(graph.nodes.size(), false) {}

  void join_gates() {
    for (ProgramNode& node : graph_.nodes)
      if (is_block_product(&node) && node.has_residual) join_gate(node);
  }

  void join_norms() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (graph_.nodes[i].row->name == "RMSNormalization") join_norm(i);
  }

  void finish() {
    size_t next = 0;
    std::erase_if(graph_.nodes, [&](const ProgramNode&) { return gone_[next++]; });
  }

 private:
  size_t place_of(const ProgramNode& node) const { return static_cast<size_t>(&node - graph_.nodes.data()); }

  // Whether both matrices have the same format, so that one kernel reads both.
  bool is_of_one_form(const ProgramNode& a, const ProgramNode& b) const {
    const auto same = [&](const char* name) { return a.attributes.integer(name, 0) == b.attributes.integer(name, 0); };
    const GraphValue &w = graph_.value(a.inputs[kW]), &v = graph_.value(b.inputs[kW]);
    return a.wide == b.wide && w.dtype == v.dtype && w.shape && w.shape == v.shape && same("block_size") && same("has_points") &&
           same("half_scales") && same("zero_point") && graph_.value(a.outputs[0]).dtype == graph_.value(b.outputs[0]).dtype;
  }

  void join_gate(ProgramNode& node) {
    const ValueId made = node.inputs[kResidualInput];
    const ProgramNode* gate = flow_.producer(made);
    if (!is_block_product(gate) || gate->has_residual || input_of(*gate, kGateW) != kAbsent || flow_.only_reader(made) != &node) return;
    if (gate->inputs[kX] != node.inputs[kX] || !is_of_one_form(*gate, node)) return;
    node.inputs.resize(kGateZero + 1, kAbsent);
    node.inputs[kResidualInput] = kAbsent;
    node.has_residual = false;
    node.inputs[kGateW] = gate->inputs[kW];
    node.inputs[kGateScale] = gate->inputs[kScale];
    node.inputs[kGateZero] = input_of(*gate, kZero);
    node.attributes.set("gate_epilogue", gate->epilogue);
    graph_.absorb(gate->report, node.report, Fusion::residual);
    gone_[place_of(*gate)] = true;
  }

  // Fuses a norm with a constant per-element gain if all its readers are block-quantised products.
  void join_norm(size_t i) {
    const ProgramNode& norm = graph_.nodes[i];
    const ValueId made = norm.outputs[0];
    const auto& gain = graph_.value(norm.inputs[1]).constant;
    const auto& shape = graph_.value(norm.inputs[0]).shape;
    if (norm.epilogue != "x" || norm.has_residual || flow_.is_output(made) || !gain || gain->desc.rank() != 1 || !shape) return;
    const int64_t axis = norm.attributes.integer("axis", -1);
    if (axis != -1 && axis != static_cast<int64_t>(shape->size()) - 1) return;
    if (graph_.value(norm.inputs[0]).dtype != graph_.value(made).dtype) return;
    std::set<const ProgramNode*> readers;
    for (const ProgramNode* reader : flow_.readers(made))
      if (!gone_[place_of(*reader)]) readers.insert(reader);
    constexpr size_t kMostReaders = 3;  // each reader repeats the normalisation
    const auto fits = [&](const ProgramNode* reader) {
      return is_block_product(reader) && input_of(*reader, kGain) == kAbsent && reader->wide == norm.wide && reader->inputs[kX] == made &&
             std::ranges::count(reader->inputs, made) == 1 && graph_.value(reader->inputs[kW]).shape->back() == gain->desc.shape[0];
    };
    if (readers.empty() || readers.size() > kMostReaders || !std::ranges::all_of(readers, fits)) return;
    for (const ProgramNode* reader : readers) {
      ProgramNode& node = graph_.nodes[place_of(*reader)];
      node.inputs.resize(kGain + 1, kAbsent);
      node.inputs[kX] = norm.inputs[0];
      node.inputs[kGain] = norm.inputs[1];
      node.attributes.set("epsilon", attribute_real(norm.attributes.real("epsilon", 1e-5)));
      graph_.absorb(norm.report, node.report, Fusion::block_products);
    }
    gone_[i] = true;
  }

  ProgramGraph& graph_;
  ValueFlow flow_;
  std::vector<bool> gone_;
};

}  // namespace

void join_block_products(ProgramGraph& graph, const FusionSet& wanted) {
  if (!wanted.has(Fusion::block_products)) return;
  if (std::ranges::none_of(graph.nodes, [](const ProgramNode& node) { return is_block_product(&node); })) return;
  BlockJoins joins(graph);
  if (wanted.has(Fusion::residual)) joins.join_gates();
  joins.join_norms();
  joins.finish();
}

}  // namespace pumice
