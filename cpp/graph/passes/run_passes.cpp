// The order of the passes.
#include "graph/passes/fuse_block_quant_matmuls.h"
#include "graph/passes/block_scales.h"
#include "graph/passes/fuse_rotary_caches.h"
#include "graph/passes/concurrent_gemms.h"
#include "graph/passes/fuse_crops.h"
#include "graph/passes/fuse_elementwise.h"
#include "graph/passes/index_checks.h"
#include "graph/passes/input_checks.h"
#include "graph/passes/remove_widening_casts.h"
#include "graph/passes/passes.h"
#include "graph/passes/fuse_max_pool.h"
#include "graph/passes/recognition.h"
#include "graph/passes/fuse_bidirectional_rnn.h"
#include "graph/passes/fuse_softmax.h"

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
