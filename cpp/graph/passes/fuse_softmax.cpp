#include "graph/passes/fuse_softmax.h"

#include "core/error.h"
#include "graph/passes/use_def_chains.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

class SoftmaxSearch {
 public:
  explicit SoftmaxSearch(const ProgramGraph& graph) : graph_(graph), use_def_(graph) {}

  // Returns the product that the Softmax can be fused into, or null.
  const ProgramNode* find_matmul(const ProgramNode& softmax) const {
    const ProgramNode* matmul = reads_rows(softmax) ? use_def_.producer(softmax.inputs[0]) : nullptr;
    if (!matmul || matmul->row->softmax_operator.empty() || matmul->on_host || matmul->has_residual || matmul->outputs.size() != 1)
      return nullptr;
    if (matmul->fp32 != softmax.fp32 || matmul->low_precision_factors || matmul->split_fp16 || rank_of(matmul->inputs[0]) != 2)
      return nullptr;
    // One float dtype throughout.
    const DType floats = graph_.float_dtype_of(*matmul);
    if (graph_.value(softmax.inputs[0]).dtype != floats || graph_.value(softmax.outputs[0]).dtype != floats) return nullptr;
    const auto& weights = graph_.value(matmul->inputs[1]).constant;
    const ValueId added = matmul->inputs.size() > 2 ? matmul->inputs[2] : kAbsent;
    const auto bias = added == kAbsent ? std::nullopt : graph_.value(added).shape;
    if (!weights || (added != kAbsent && (!bias || !graph_.value(added).constant))) return nullptr;
    return matmul->row->supports_softmax(matmul->attributes, weights->desc, bias ? &*bias : nullptr) ? matmul : nullptr;
  }

  bool is_read_otherwise(ValueId id) const { return use_def_.only_reader(id) == nullptr; }

 private:
  size_t rank_of(ValueId id) const { return graph_.value(id).shape ? graph_.value(id).shape->size() : 0; }

  bool reads_rows(const ProgramNode& node) const {
    if (!node.row->is_softmax || node.on_host || node.has_residual || node.epilogue != "x") return false;
    return node.row->is_softmax(node.attributes, rank_of(node.inputs[0]));
  }

  const ProgramGraph& graph_;
  UseDefChains use_def_;
};

// Turns the product into a node with both outputs.
void add_softmax(ProgramGraph& graph, ProgramNode& product, const ProgramNode& softmax, bool keeps_product) {
  const OperatorRow* row = find_operator(product.row->softmax_operator);
  if (!row) throw Error("no row '" + std::string(product.row->softmax_operator) + "'");
  Attributes attributes;
  attributes.set("transB", product.attributes.integer("transB", 0));
  product.row = row;
  product.attributes = attributes;
  product.outputs = {softmax.outputs[0], keeps_product ? product.outputs[0] : kAbsent};
  graph.mark_fused(softmax.report, product.report, Fusion::softmax);
}

}  // namespace

void fuse_softmax(ProgramGraph& graph, const FusionSet& fusions) {
  if (!fusions.has(Fusion::softmax)) return;
  const SoftmaxSearch search(graph);
  std::vector<bool> removed(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ProgramNode* match = search.find_matmul(graph.nodes[i]);
    if (!match) continue;
    const ValueId product_output = graph.nodes[i].inputs[0];
    add_softmax(graph, graph.nodes[static_cast<size_t>(match - graph.nodes.data())], graph.nodes[i],
                search.is_read_otherwise(product_output));
    removed[i] = true;
  }
  graph.erase_nodes(removed);
}

}  // namespace pumice
