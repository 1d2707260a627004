#include "graph/passes/fuse_softmax.h"

#include "core/error.h"
#include "graph/passes/use_def_chains.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

class SoftmaxSearch {
 public:
  explicit SoftmaxSearch(const ProgramGraph& graph) : graph_(graph), flow_(graph) {}

  // Returns the product that the Softmax can be fused into, or null.
  const ProgramNode* maker(const ProgramNode& softmax) const {
    const ProgramNode* made = reads_rows(softmax) ? flow_.producer(softmax.inputs[0]) : nullptr;
    if (!made || made->row->with_softmax.empty() || made->on_host || made->has_residual || made->outputs.size() != 1) return nullptr;
    if (made->wide != softmax.wide || made->narrow_factors || made->halves || rank_of(made->inputs[0]) != 2) return nullptr;
    // One float dtype throughout.
    const DType floats = graph_.float_dtype_of(*made);
    if (graph_.value(softmax.inputs[0]).dtype != floats || graph_.value(softmax.outputs[0]).dtype != floats) return nullptr;
    const auto& weights = graph_.value(made->inputs[1]).constant;
    const ValueId added = made->inputs.size() > 2 ? made->inputs[2] : kAbsent;
    const auto bias = added == kAbsent ? std::nullopt : graph_.value(added).shape;
    if (!weights || (added != kAbsent && (!bias || !graph_.value(added).constant))) return nullptr;
    return made->row->takes_softmax(made->attributes, weights->desc, bias ? &*bias : nullptr) ? made : nullptr;
  }

  bool is_read_otherwise(ValueId id) const { return flow_.only_reader(id) == nullptr; }

 private:
  size_t rank_of(ValueId id) const { return graph_.value(id).shape ? graph_.value(id).shape->size() : 0; }

  bool reads_rows(const ProgramNode& node) const {
    if (!node.row->is_softmax || node.on_host || node.has_residual || node.epilogue != "x") return false;
    return node.row->is_softmax(node.attributes, rank_of(node.inputs[0]));
  }

  const ProgramGraph& graph_;
  ValueFlow flow_;
};

// Turns the product into a node with both outputs.
void add_softmax(ProgramGraph& graph, ProgramNode& product, const ProgramNode& softmax, bool keeps_product) {
  const OperatorRow* row = find_operator(product.row->with_softmax);
  if (!row) throw Error("no row '" + std::string(product.row->with_softmax) + "'");
  Attributes attributes;
  attributes.set("transB", product.attributes.integer("transB", 0));
  product.row = row;
  product.attributes = attributes;
  product.outputs = {softmax.outputs[0], keeps_product ? product.outputs[0] : kAbsent};
  graph.absorb(softmax.report, product.report, Fusion::softmax);
}

}  // namespace

void join_softmax(ProgramGraph& graph, const FusionSet& wanted) {
  if (!wanted.has(Fusion::softmax)) return;
  const SoftmaxSearch search(graph);
  std::vector<bool> gone(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ProgramNode* found = search.maker(graph.nodes[i]);
    if (!found) continue;
    const ValueId between = graph.nodes[i].inputs[0];
    add_softmax(graph, graph.nodes[static_cast<size_t>(found - graph.nodes.data())], graph.nodes[i], search.is_read_otherwise(between));
    gone[i] = true;
  }
  graph.erase_nodes(gone);
}

}  // namespace pumice
