#include "core/error.h"
#include "graph/passes/passes.h"
#include "graph/passes/use_def_chains.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

class SoftmaxMatcher {
 public:
  explicit SoftmaxMatcher(const ProgramGraph& graph) : graph_(graph), use_def_(graph) {}

  // Returns the MatMul that the Softmax can be fused into, or null.
  const ProgramNode* find_matmul(const ProgramNode& softmax) const {
    const ProgramNode* matmul = is_row_softmax(softmax) ? use_def_.find_producer(softmax.inputs[0]) : nullptr;
    if (!matmul || matmul->row->softmax_operator.empty() || matmul->on_host || matmul->has_residual || matmul->outputs.size() != 1)
      return nullptr;
    if (matmul->fp32 != softmax.fp32 || matmul->low_precision_factors || matmul->split_fp16 || rank_of(matmul->inputs[0]) != 2)
      return nullptr;
    // All floats must have one dtype.
    const DType floats = graph_.float_dtype_of(*matmul);
    if (graph_.value(softmax.inputs[0]).dtype != floats || graph_.value(softmax.outputs[0]).dtype != floats) return nullptr;
    const auto& weights = graph_.value(matmul->inputs[1]).constant;
    const ValueId added = matmul->inputs.size() > 2 ? matmul->inputs[2] : kAbsent;
    const auto bias = added == kAbsent ? std::nullopt : graph_.value(added).shape;
    if (!weights || (added != kAbsent && (!bias || !graph_.value(added).constant))) return nullptr;
    return matmul->row->supports_softmax(matmul->attributes, weights->desc, bias ? &*bias : nullptr) ? matmul : nullptr;
  }

  bool has_other_readers(ValueId id) const { return use_def_.find_only_reader(id) == nullptr; }

 private:
  size_t rank_of(ValueId id) const { return graph_.value(id).shape ? graph_.value(id).shape->size() : 0; }

  bool is_row_softmax(const ProgramNode& node) const {
    if (!node.row->is_softmax || node.on_host || node.has_residual || node.epilogue != "x") return false;
    return node.row->is_softmax(node.attributes, rank_of(node.inputs[0]));
  }

  const ProgramGraph& graph_;
  UseDefChains use_def_;
};

// Turns the MatMul into a fused node whose outputs are the Softmax and, if `keep_matmul_output`, the matrix product.
void fuse_softmax_into(ProgramGraph& graph, ProgramNode& matmul, const ProgramNode& softmax, bool keep_matmul_output) {
  const OperatorRow* row = find_operator(matmul.row->softmax_operator);
  if (!row) throw Error("no row '" + std::string(matmul.row->softmax_operator) + "'");
  Attributes attributes;
  attributes.set("transB", matmul.attributes.integer("transB", 0));
  matmul.row = row;
  matmul.attributes = attributes;
  matmul.outputs = {softmax.outputs[0], keep_matmul_output ? matmul.outputs[0] : kAbsent};
  graph.mark_fused(softmax.report, matmul.report, Fusion::softmax);
}

}  // namespace

void fuse_softmax(ProgramGraph& graph, const FusionSet& fusions) {
  if (!fusions.has(Fusion::softmax)) return;
  const SoftmaxMatcher matcher(graph);
  std::vector<bool> removed(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ProgramNode* match = matcher.find_matmul(graph.nodes[i]);
    if (!match) continue;
    const ValueId matmul_output = graph.nodes[i].inputs[0];
    fuse_softmax_into(graph, graph.nodes[static_cast<size_t>(match - graph.nodes.data())], graph.nodes[i],
                      matcher.has_other_readers(matmul_output));
    removed[i] = true;
  }
  graph.erase_nodes(removed);
}

}  // namespace pumice
