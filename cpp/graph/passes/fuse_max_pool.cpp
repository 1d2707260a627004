#include "graph/passes/fuse_max_pool.h"

#include <algorithm>

#include "core/error.h"
#include "graph/passes/use_def_chains.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

// Returns the windows of a plain max pooling; nullopt for other nodes.
std::optional<PoolWindow> windows_of(const ProgramNode& node) {
  const bool gives_more = std::ranges::any_of(node.outputs.begin() + 1, node.outputs.end(), [](ValueId id) { return id != kAbsent; });
  if (!node.row->largest_of || node.on_host || node.has_residual || gives_more) return {};
  return node.row->largest_of(node.attributes);
}

class PoolSearch {
 public:
  explicit PoolSearch(const ProgramGraph& graph) : graph_(graph), flow_(graph) {}

  // Returns the producer that the pooling can be fused into, or null.
  const ProgramNode* maker(const ProgramNode& pool, const PoolWindow& windows) const {
    const ValueId between = pool.inputs[0];
    const ProgramNode* made = flow_.producer(between);
    if (!made || made->row->pooled.empty() || made->on_host || made->has_residual || made->outputs.size() != 1) return nullptr;
    if (flow_.only_reader(between) != &pool || made->wide != pool.wide || made->narrow_factors) return nullptr;
    // One float dtype throughout, so that rounding does not change.
    const DType floats = graph_.float_dtype_of(*made);
    if (graph_.value(between).dtype != floats || graph_.value(pool.outputs[0]).dtype != floats) return nullptr;
    const auto& weights = graph_.value(made->inputs[1]).constant;
    return weights && made->row->takes_pool(made->attributes, weights->desc, windows) ? made : nullptr;
  }

 private:
  const ProgramGraph& graph_;
  ValueFlow flow_;
};

// Turns the producer into the fused node with the pooling's output.
void join(ProgramGraph& graph, ProgramNode& made, const ProgramNode& pool, const PoolWindow& windows) {
  const OperatorRow* row = find_operator(made.row->pooled);
  if (!row) throw Error("no row '" + std::string(made.row->pooled) + "'");
  made.row = row;
  made.attributes.set("pool_shape", std::vector<int64_t>{windows.rows, windows.columns});
  made.attributes.set("pool_epilogue", pool.epilogue);
  made.exact_epilogue |= pool.exact_epilogue;
  made.outputs[0] = pool.outputs[0];
  graph.absorb(pool.report, made.report, Fusion::pooling);
}

}  // namespace

void join_pools(ProgramGraph& graph, const FusionSet& wanted) {
  if (!wanted.has(Fusion::pooling)) return;
  const PoolSearch search(graph);
  std::vector<bool> gone(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto windows = windows_of(graph.nodes[i]);
    const ProgramNode* found = windows ? search.maker(graph.nodes[i], *windows) : nullptr;
    if (!found) continue;
    join(graph, graph.nodes[static_cast<size_t>(found - graph.nodes.data())], graph.nodes[i], *windows);
    gone[i] = true;
  }
  graph.erase_nodes(gone);
}

}  // namespace pumice
