#include <algorithm>

#include "core/error.h"
#include "graph/passes/passes.h"
#include "graph/passes/use_def_chains.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

// Returns the window of a max pooling without other outputs; nullopt for other nodes.
std::optional<PoolWindow> match_max_pool(const ProgramNode& node) {
  const bool has_other_outputs =
      std::ranges::any_of(node.outputs.begin() + 1, node.outputs.end(), [](ValueId id) { return id != kAbsent; });
  if (!node.row->max_pool_window || node.on_host || node.has_residual || has_other_outputs) return {};
  return node.row->max_pool_window(node.attributes);
}

class MaxPoolMatcher {
 public:
  explicit MaxPoolMatcher(const ProgramGraph& graph) : graph_(graph), use_def_(graph) {}

  // Returns the node that the pooling can be fused into, or null.
  const ProgramNode* find_fusable_producer(const ProgramNode& pool, const PoolWindow& windows) const {
    const ValueId pooled_value = pool.inputs[0];
    const ProgramNode* source = use_def_.find_producer(pooled_value);
    if (!source || source->row->pooled_operator.empty() || source->on_host || source->has_residual || source->outputs.size() != 1)
      return nullptr;
    if (use_def_.find_only_reader(pooled_value) != &pool || source->fp32 != pool.fp32 || source->low_precision_factors) return nullptr;
    // All floats must have one dtype, so that rounding does not change.
    const DType floats = graph_.float_dtype_of(*source);
    if (graph_.value(pooled_value).dtype != floats || graph_.value(pool.outputs[0]).dtype != floats) return nullptr;
    const auto& weights = graph_.value(source->inputs[1]).constant;
    return weights && source->row->supports_pool(source->attributes, weights->desc, windows) ? source : nullptr;
  }

 private:
  const ProgramGraph& graph_;
  UseDefChains use_def_;
};

// Turns the producer into the fused node with the output of the pooling.
void fuse_pool_into(ProgramGraph& graph, ProgramNode& source, const ProgramNode& pool, const PoolWindow& windows) {
  const OperatorRow* row = find_operator(source.row->pooled_operator);
  if (!row) throw Error("no row '" + std::string(source.row->pooled_operator) + "'");
  source.row = row;
  source.attributes.set("pool_shape", std::vector<int64_t>{windows.rows, windows.columns});
  source.attributes.set("pool_epilogue", pool.epilogue);
  source.exact_epilogue |= pool.exact_epilogue;
  source.outputs[0] = pool.outputs[0];
  graph.mark_fused(pool.report, source.report, Fusion::pooling);
}

}  // namespace

void fuse_max_pool(ProgramGraph& graph, const FusionSet& fusions) {
  if (!fusions.has(Fusion::pooling)) return;
  const MaxPoolMatcher matcher(graph);
  std::vector<bool> removed(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto windows = match_max_pool(graph.nodes[i]);
    const ProgramNode* fusable = windows ? matcher.find_fusable_producer(graph.nodes[i], *windows) : nullptr;
    if (!fusable) continue;
    fuse_pool_into(graph, graph.nodes[static_cast<size_t>(fusable - graph.nodes.data())], graph.nodes[i], *windows);
    removed[i] = true;
  }
  graph.erase_nodes(removed);
}

}  // namespace pumice
