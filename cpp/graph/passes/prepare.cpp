// The order of the passes.
#include "graph/passes/fusion.h"
#include "graph/passes/index_checks.h"
#include "graph/passes/input_checks.h"
#include "graph/passes/passes.h"
#include "graph/passes/recognition.h"

namespace pumice {
namespace {

// Validation reads what every node makes.
void make_all_outputs(ProgramGraph& graph) {
  std::vector<bool> is_output(graph.values.size(), false);
  for (const auto& [name, value] : graph.outputs) is_output[static_cast<size_t>(value)] = true;
  for (const ProgramNode& node : graph.nodes)
    for (const ValueId output : node.outputs)
      if (output != kAbsent && !is_output[static_cast<size_t>(output)]) graph.outputs.emplace_back(graph.value(output).name, output);
}

}  // namespace

ProgramGraph prepare(const Graph& graph, const GraphPart& part, const ProgramOptions& options) {
  ProgramGraph prepared(graph, part, options);
  if (options.keep_all) make_all_outputs(prepared);
  const FusionSet fuse = options.keep_all ? FusionSet::none() : options.fuse;
  if (fuse.has(Fusion::integer_products)) recognise_integers(prepared);
  if (fuse.has(Fusion::block_products)) recognise_blocks(prepared);
  fold_constants(prepared);
  remove_dead_nodes(prepared);
  if (fuse.has(Fusion::batch_normalization)) recognise_norms(prepared);
  if (fuse.has(Fusion::attention)) recognise_attention(prepared);
  recognise_patterns(prepared, fuse);
  set_precision(prepared);
  if (!options.keep_all) drop_idle_casts(prepared);
  find_host_nodes(prepared);
  prepared.checks = input_checks(prepared);
  fuse_maps(prepared, fuse);
  if (options.check_indices) add_index_checks(prepared);
  return prepared;
}

}  // namespace pumice
