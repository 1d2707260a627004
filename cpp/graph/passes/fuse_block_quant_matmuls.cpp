#include <algorithm>
#include <set>

#include "graph/passes/passes.h"
#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

enum BlockMatMulInput : size_t { kX, kW, kScale, kZero = kResidualInput + 1, kGateW, kGateScale, kGateZero, kGain };

bool is_block_quant_matmul(const ProgramNode* node) {
  return node && node->row->name == "pumice::BlockQuantMatMul";
}

ValueId get_input_or_absent(const ProgramNode& node, size_t input) {
  return input < node.inputs.size() ? node.inputs[input] : kAbsent;
}

class BlockQuantFusion {
 public:
  explicit BlockQuantFusion(ProgramGraph& graph) : graph_(graph), use_def_(graph), removed_(graph.nodes.size(), false) {}

  void fuse_gates() {
    for (ProgramNode& node : graph_.nodes)
      if (is_block_quant_matmul(&node) && node.has_residual) fuse_gate(node);
  }

  void fuse_norms() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (graph_.nodes[i].row->name == "RMSNormalization") fuse_norm(i);
  }

  void erase_fused_nodes() {
    size_t next = 0;
    std::erase_if(graph_.nodes, [&](const ProgramNode&) { return removed_[next++]; });
  }

 private:
  size_t get_node_index(const ProgramNode& node) const { return static_cast<size_t>(&node - graph_.nodes.data()); }

  // Whether the weights of both nodes have the same format, so that one kernel can read both.
  bool have_same_format(const ProgramNode& a, const ProgramNode& b) const {
    const auto same = [&](const char* name) { return a.attributes.integer(name, 0) == b.attributes.integer(name, 0); };
    const GraphValue &w = graph_.value(a.inputs[kW]), &v = graph_.value(b.inputs[kW]);
    return a.fp32 == b.fp32 && w.dtype == v.dtype && w.shape && w.shape == v.shape && same("block_size") && same("has_zero_points") &&
           same("fp16_scales") && same("zero_point") && graph_.value(a.outputs[0]).dtype == graph_.value(b.outputs[0]).dtype;
  }

  void fuse_gate(ProgramNode& node) {
    const ValueId output = node.inputs[kResidualInput];
    const ProgramNode* gate = use_def_.find_producer(output);
    if (!is_block_quant_matmul(gate) || gate->has_residual || get_input_or_absent(*gate, kGateW) != kAbsent ||
        use_def_.find_only_reader(output) != &node)
      return;
    if (gate->inputs[kX] != node.inputs[kX] || !have_same_format(*gate, node)) return;
    node.inputs.resize(kGateZero + 1, kAbsent);
    node.inputs[kResidualInput] = kAbsent;
    node.has_residual = false;
    node.inputs[kGateW] = gate->inputs[kW];
    node.inputs[kGateScale] = gate->inputs[kScale];
    node.inputs[kGateZero] = get_input_or_absent(*gate, kZero);
    node.attributes.set("gate_epilogue", gate->epilogue);
    graph_.mark_fused(gate->report, node.report, Fusion::residual);
    removed_[get_node_index(*gate)] = true;
  }

  // Fuses an RMSNormalization with constant weights if all its readers are block-quantized matmuls.
  void fuse_norm(size_t i) {
    const ProgramNode& norm = graph_.nodes[i];
    const ValueId output = norm.outputs[0];
    const auto& gain = graph_.value(norm.inputs[1]).constant;
    const auto& shape = graph_.value(norm.inputs[0]).shape;
    if (norm.epilogue != "x" || norm.has_residual || use_def_.is_output(output) || !gain || gain->desc.rank() != 1 || !shape) return;
    const int64_t axis = norm.attributes.integer("axis", -1);
    if (axis != -1 && axis != static_cast<int64_t>(shape->size()) - 1) return;
    if (graph_.value(norm.inputs[0]).dtype != graph_.value(output).dtype) return;
    std::set<const ProgramNode*> readers;
    for (const ProgramNode* reader : use_def_.readers(output))
      if (!removed_[get_node_index(*reader)]) readers.insert(reader);
    constexpr size_t kMaxNormReaders = 3;  // each reader repeats the normalization
    const auto fits = [&](const ProgramNode* reader) {
      return is_block_quant_matmul(reader) && get_input_or_absent(*reader, kGain) == kAbsent && reader->fp32 == norm.fp32 &&
             reader->inputs[kX] == output && std::ranges::count(reader->inputs, output) == 1 &&
             graph_.value(reader->inputs[kW]).shape->back() == gain->desc.shape[0];
    };
    if (readers.empty() || readers.size() > kMaxNormReaders || !std::ranges::all_of(readers, fits)) return;
    for (const ProgramNode* reader : readers) {
      ProgramNode& node = graph_.nodes[get_node_index(*reader)];
      node.inputs.resize(kGain + 1, kAbsent);
      node.inputs[kX] = norm.inputs[0];
      node.inputs[kGain] = norm.inputs[1];
      node.attributes.set("epsilon", round_to_float32(norm.attributes.real("epsilon", 1e-5)));
      graph_.mark_fused(norm.report, node.report, Fusion::block_quant);
    }
    removed_[i] = true;
  }

  ProgramGraph& graph_;
  UseDefChains use_def_;
  std::vector<bool> removed_;
};

}  // namespace

void fuse_block_quant_matmuls(ProgramGraph& graph, const FusionSet& fusions) {
  if (!fusions.has(Fusion::block_quant)) return;
  if (std::ranges::none_of(graph.nodes, [](const ProgramNode& node) { return is_block_quant_matmul(&node); })) return;
  BlockQuantFusion fusion(graph);
  if (fusions.has(Fusion::residual)) fusion.fuse_gates();
  fusion.fuse_norms();
  fusion.erase_fused_nodes();
}

}  // namespace pumice
