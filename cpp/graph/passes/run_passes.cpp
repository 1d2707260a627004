// The order of the passes.
#include "graph/passes/block_joins.h"
#include "graph/passes/block_scales.h"
#include "graph/passes/cache_joins.h"
#include "graph/passes/concurrent_products.h"
#include "graph/passes/crop_joins.h"
#include "graph/passes/fusion.h"
#include "graph/passes/index_checks.h"
#include "graph/passes/input_checks.h"
#include "graph/passes/narrow_reads.h"
#include "graph/passes/passes.h"
#include "graph/passes/pool_joins.h"
#include "graph/passes/recognition.h"
#include "graph/passes/recurrent_joins.h"
#include "graph/passes/softmax_joins.h"

namespace pumice {
namespace {

// Makes every node's outputs program outputs, because validation reads them.
void make_all_outputs(ProgramGraph& graph) {
  std::vector<bool> is_output(graph.values.size(), false);
  for (const auto& [name, value] : graph.outputs) is_output[static_cast<size_t>(value)] = true;
  for (const ProgramNode& node : graph.nodes)
    for (const ValueId output : node.outputs)
      if (output != kAbsent && !is_output[static_cast<size_t>(output)]) graph.outputs.emplace_back(graph.value(output).name, output);
}

}  // namespace

ProgramGraph run_passes(const Graph& graph, const GraphPart& part, const ProgramOptions& options) {
  ProgramGraph program(graph, part, options);
  if (options.keep_all) make_all_outputs(program);
  const FusionSet fuse = options.keep_all ? FusionSet::none() : options.fuse;
  if (fuse.has(Fusion::integer_products)) recognise_integers(program);
  if (fuse.has(Fusion::block_products)) recognise_blocks(program);
  fold_constants(program);
  remove_dead_nodes(program);
  if (fuse.has(Fusion::batch_normalization)) recognise_norms(program);
  join_crops(program, fuse);
  if (fuse.has(Fusion::attention)) recognise_attention(program);
  recognise_patterns(program, fuse);
  join_recurrences(program, fuse);
  set_precision(program);
  round_block_scales(program);
  if (!options.keep_all) drop_idle_casts(program);
  find_host_nodes(program);
  program.checks = input_checks(program);
  if (!options.check_indices) join_caches(program, fuse);
  fuse_maps(program, fuse);
  read_narrow_floats(program);
  join_block_products(program, fuse);
  join_pools(program, fuse);
  join_softmax(program, fuse);
  count_concurrent_products(program);
  if (options.check_indices) add_index_checks(program);
  return program;
}

}  // namespace pumice
