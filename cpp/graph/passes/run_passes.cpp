// Runs all graph passes in order.
#include "graph/passes/index_checks.h"
#include "graph/passes/input_checks.h"
#include "graph/passes/passes.h"
#include "graph/passes/recognise_patterns.h"

namespace pumice {
namespace {

// Makes the outputs of all nodes program outputs, because validation reads them.
void output_all_values(ProgramGraph& graph) {
  std::vector<bool> is_output(graph.values.size(), false);
  for (const auto& [name, value] : graph.outputs) is_output[static_cast<size_t>(value)] = true;
  for (const ProgramNode& node : graph.nodes)
    for (const ValueId output : node.outputs)
      if (output != kAbsent && !is_output[static_cast<size_t>(output)]) graph.outputs.emplace_back(graph.value(output).name, output);
}

}  // namespace

ProgramGraph run_passes(const Graph& graph, const Subgraph& subgraph, const ProgramOptions& options, uint64_t max_buffers) {
  ProgramGraph program(graph, subgraph, options);
  if (options.keep_all) output_all_values(program);
  const FusionSet fuse = options.keep_all ? FusionSet::none() : options.fuse;
  if (fuse.has(Fusion::qlinear)) recognise_qlinear(program);
  if (fuse.has(Fusion::block_quant)) recognise_block_quant(program);
  fold_constants(program);
  remove_dead_nodes(program);
  if (fuse.has(Fusion::batch_normalization)) fold_batch_norm(program);
  fuse_crops(program, fuse);
  if (fuse.has(Fusion::attention)) recognise_attention(program);
  recognise_patterns(program, fuse);
  fuse_bidirectional_rnn(program, fuse);
  set_precision(program);
  round_block_scales(program);
  if (!options.keep_all) remove_redundant_casts(program);
  find_host_nodes(program);
  program.checks = find_input_checks(program);
  if (!options.check_indices) fuse_rotary_caches(program, fuse, max_buffers);
  fuse_elementwise(program, fuse, max_buffers);
  remove_widening_casts(program);
  fuse_block_quant_matmuls(program, fuse);
  fuse_pairs(program, fuse);
  count_concurrent_gemms(program);
  if (options.check_indices) add_index_checks(program);
  return program;
}

}  // namespace pumice
