// Replaces adjacent nodes by the fused operators in the table of fused pairs.
#include <algorithm>

#include "core/error.h"
#include "graph/passes/passes.h"
#include "graph/passes/use_def_chains.h"
#include "operators/table/fused_pairs.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

struct MatchedPair {
  const FusedPair* pair;
  const ProgramNode* producer;
  Attributes attributes;  // of the fused node
  bool keep_producer_output;
};

class PairMatcher {
 public:
  PairMatcher(const ProgramGraph& graph, const FusionSet& fusions) : graph_(graph), fusions_(fusions), use_def_(graph) {}

  std::optional<MatchedPair> match(const ProgramNode& consumer) const {
    for (const FusedPair& pair : get_fused_pairs()) {
      if (pair.consumer != consumer.op() || !fusions_.has(get_fusion(pair.fusion))) continue;
      const ProgramNode* producer = can_fuse(consumer) ? use_def_.find_producer(consumer.inputs[0], pair.producer) : nullptr;
      if (!producer || !can_fuse(*producer) || producer->fp32 != consumer.fp32) continue;
      const bool keep_producer_output = use_def_.find_only_reader(consumer.inputs[0]) != &consumer;
      if ((keep_producer_output && !pair.keeps_producer_output) || !has_one_float_dtype(*producer, consumer)) continue;
      if (auto attributes = match_kernel(pair, *producer, consumer)) return MatchedPair{&pair, producer, *attributes, keep_producer_output};
    }
    return {};
  }

 private:
  // Whether the node has one output, and reads only operands that a fused operator can also read.
  static bool can_fuse(const ProgramNode& node) {
    return !node.on_host && !node.has_residual && !node.low_precision_factors && !node.split_fp16 &&
           std::ranges::all_of(node.outputs.begin() + 1, node.outputs.end(), [](ValueId id) { return id == kAbsent; });
  }

  // Whether all floats have one dtype, so that rounding does not change.
  bool has_one_float_dtype(const ProgramNode& producer, const ProgramNode& consumer) const {
    const DType floats = graph_.float_dtype_of(producer);
    return graph_.value(consumer.inputs[0]).dtype == floats && graph_.value(consumer.outputs[0]).dtype == floats;
  }

  std::optional<Attributes> match_kernel(const FusedPair& pair, const ProgramNode& producer, const ProgramNode& consumer) const {
    const auto& weights = graph_.value(producer.inputs[1]).constant;
    if (!weights) return {};
    const ValueId bias = producer.inputs.size() > 2 ? producer.inputs[2] : kAbsent;
    const bool has_constant_bias = bias != kAbsent && graph_.value(bias).constant;
    const auto& result = graph_.value(consumer.inputs[0]).shape;
    return pair.match({.producer = producer.attributes,
                       .consumer = consumer.attributes,
                       .weights = weights->desc,
                       .has_bias = bias != kAbsent,
                       .bias = has_constant_bias && graph_.value(bias).shape ? &*graph_.value(bias).shape : nullptr,
                       .rank = result ? std::optional(result->size()) : std::nullopt,
                       .consumer_epilogue = consumer.epilogue});
  }

  const ProgramGraph& graph_;
  const FusionSet& fusions_;
  UseDefChains use_def_;
};

// Turns the producer into the fused node.
void fuse_into_producer(ProgramGraph& graph, ProgramNode& producer, const ProgramNode& consumer, MatchedPair match) {
  const OperatorRow* row = find_operator(match.pair->fused);
  if (!row) throw Error("no row '" + std::string(match.pair->fused) + "'");
  const ValueId producer_output = producer.outputs[0];
  producer.row = row;
  producer.attributes = std::move(match.attributes);
  producer.exact_epilogue |= consumer.exact_epilogue;
  producer.outputs = {consumer.outputs[0]};
  if (match.pair->keeps_producer_output) producer.outputs.push_back(match.keep_producer_output ? producer_output : kAbsent);
  graph.mark_fused(consumer.report, producer.report, get_fusion(match.pair->fusion));
}

}  // namespace

void fuse_pairs(ProgramGraph& graph, const FusionSet& fusions) {
  const PairMatcher matcher(graph, fusions);
  std::vector<bool> removed(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    auto match = matcher.match(graph.nodes[i]);
    if (!match) continue;
    const auto producer = static_cast<size_t>(match->producer - graph.nodes.data());
    fuse_into_producer(graph, graph.nodes[producer], graph.nodes[i], std::move(*match));
    removed[i] = true;
  }
  graph.erase_nodes(removed);
}

}  // namespace pumice
