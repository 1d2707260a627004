#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "graph/passes/passes.h"
#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

constexpr uint64_t kRotaryCacheBuffers = 10;  // storage buffers of rotary_kv_cache.comp

enum AttentionInput : size_t { kQ, kK, kV };
enum RotaryInput : size_t { kRotaryInput, kCosines, kSines, kPositionIds };
enum ScatterInput : size_t { kPast, kUpdate, kWriteIndices };

// The nodes to fuse: RoPE of q and k, and the cache updates of keys and values.
struct RotaryCacheMatch {
  const ProgramNode *q, *k, *keys, *values;

  std::array<const ProgramNode*, 4> nodes() const { return {q, k, keys, values}; }
};

class RotaryCacheMatcher {
 public:
  explicit RotaryCacheMatcher(const ProgramGraph& graph) : graph_(graph), use_def_(graph) {}

  std::optional<RotaryCacheMatch> match(const ProgramNode& attention) const {
    if ((attention.row->name != "Attention" && attention.row->name != "pumice::Attention") || attention.inputs.size() < 3) return {};
    const RotaryCacheMatch found{use_def_.find_producer(attention.inputs[kQ], "RotaryEmbedding"), nullptr,
                                 use_def_.find_producer(attention.inputs[kK], "TensorScatter"),
                                 use_def_.find_producer(attention.inputs[kV], "TensorScatter")};
    if (!found.q || !found.keys || !found.values || found.keys == found.values) return {};
    RotaryCacheMatch complete = found;
    complete.k = use_def_.find_producer(found.keys->inputs[kUpdate], "RotaryEmbedding");
    if (!complete.k || complete.k == complete.q || use_def_.find_only_reader(complete.k->outputs[0]) != complete.keys) return {};
    return is_fusable(complete) && can_move(complete) ? std::optional(complete) : std::nullopt;
  }

  // Returns the index of the last node of the match, where the inputs of all nodes have been computed.
  size_t find_last_node(const RotaryCacheMatch& match) const {
    size_t last = 0;
    for (const ProgramNode* node : match.nodes()) last = std::max(last, get_node_index(*node));
    return last;
  }

 private:
  size_t get_node_index(const ProgramNode& node) const { return static_cast<size_t>(&node - graph_.nodes.data()); }

  // Whether both rotations and both cache updates have the same parameters, nothing is computed on the host, and the shapes match.
  bool is_fusable(const RotaryCacheMatch& match) const {
    const auto same = [](const ProgramNode& a, const ProgramNode& b, std::initializer_list<size_t> inputs) {
      return std::ranges::all_of(inputs,
                                 [&](size_t i) { return i < a.inputs.size() && i < b.inputs.size() && a.inputs[i] == b.inputs[i]; });
    };
    if (!same(*match.q, *match.k, {kCosines, kSines, kPositionIds}) || !same(*match.keys, *match.values, {kWriteIndices})) return false;
    for (const char* name : {"interleaved", "rotary_embedding_dim"})
      if (match.q->attributes.integer(name, 0) != match.k->attributes.integer(name, 0)) return false;
    for (const ValueId id : {match.q->inputs[kPositionIds], match.keys->inputs[kWriteIndices]})
      if (id == kAbsent || graph_.value(id).constant || (use_def_.find_producer(id) && use_def_.find_producer(id)->on_host)) return false;
    for (const ProgramNode* node : match.nodes())
      if (node->on_host || node->fp32 != match.q->fp32 || !has_four_axes(node->outputs[0])) return false;
    for (const ProgramNode* node : {match.keys, match.values}) {
      const int64_t axis = node->attributes.integer("axis", -2);
      if ((axis != 2 && axis != -2) || node->attributes.text("mode", "linear") != "linear") return false;
    }
    return have_matching_heads(match);
  }

  bool has_four_axes(ValueId id) const {
    const GraphValue& value = graph_.value(id);
    return is_operator_float(value.dtype) && value.shape && value.shape->size() == 4;
  }

  // Whether both caches have the same known number of heads and head size, and all values the same dtype. The number of rows of the values
  // is checked at binding.
  bool have_matching_heads(const RotaryCacheMatch& match) const {
    const Shape &keys = *graph_.value(match.keys->outputs[0]).shape, &values = *graph_.value(match.values->outputs[0]).shape;
    const bool is_known = keys[1] != kUnknownSize && keys[3] != kUnknownSize && keys[1] == values[1] && keys[3] == values[3];
    const DType dtype = graph_.value(match.keys->outputs[0]).dtype;
    const auto is_same = [&](ValueId id) { return graph_.value(id).dtype == dtype; };
    const auto makes_same = [&](const ProgramNode* node) { return is_same(node->outputs[0]); };
    return is_known && std::ranges::all_of(match.nodes(), makes_same) && is_same(match.values->inputs[kUpdate]) &&
           is_same(match.k->inputs[kRotaryInput]) && is_same(match.q->inputs[kRotaryInput]);
  }

  // Whether no node before the last node of the match reads a result of the match.
  bool can_move(const RotaryCacheMatch& match) const {
    const size_t last = find_last_node(match);
    for (const ProgramNode* node : {match.q, match.keys, match.values})
      for (const ProgramNode* reader : use_def_.readers(node->outputs[0]))
        if (get_node_index(*reader) <= last) return false;
    return true;
  }

  const ProgramGraph& graph_;
  UseDefChains use_def_;
};

ProgramNode make_rotary_caches(const RotaryCacheMatch& match) {
  ProgramNode node = *match.keys;
  node.row = find_operator("pumice::RotaryCaches");
  Attributes attributes;
  for (const char* name : {"interleaved", "rotary_embedding_dim"}) attributes.set(name, match.q->attributes.integer(name, 0));
  node.attributes = validate_attributes(*node.row, node.name, attributes);
  node.inputs = {match.q->inputs[kRotaryInput], match.k->inputs[kRotaryInput], match.values->inputs[kUpdate],
                 match.q->inputs[kCosines],     match.q->inputs[kSines],       match.q->inputs[kPositionIds],
                 match.keys->inputs[kPast],     match.values->inputs[kPast],   match.keys->inputs[kWriteIndices]};
  node.outputs = {match.q->outputs[0], match.keys->outputs[0], match.values->outputs[0]};
  return node;
}

}  // namespace

void fuse_rotary_caches(ProgramGraph& graph, const FusionSet& fusions, uint64_t max_buffers) {
  if (!fusions.has(Fusion::attention) || max_buffers < kRotaryCacheBuffers) return;
  if (std::ranges::none_of(graph.nodes, [](const ProgramNode& node) { return node.row->name == "TensorScatter"; })) return;
  const RotaryCacheMatcher matcher(graph);
  std::map<size_t, ProgramNode> fused;
  std::vector<bool> removed(graph.nodes.size(), false);
  for (const ProgramNode& node : graph.nodes) {
    const auto match = matcher.match(node);
    if (!match) continue;
    const auto get_node_index = [&](const ProgramNode* member) { return static_cast<size_t>(member - graph.nodes.data()); };
    if (std::ranges::any_of(match->nodes(), [&](const ProgramNode* member) { return removed[get_node_index(member)]; })) continue;
    for (const ProgramNode* member : match->nodes()) {
      removed[get_node_index(member)] = true;
      if (member != match->keys) graph.mark_fused(member->report, match->keys->report, Fusion::attention);
    }
    fused.emplace(matcher.find_last_node(*match), make_rotary_caches(*match));
  }
  for (auto& [at, node] : fused) {
    graph.nodes[at] = std::move(node);
    removed[at] = false;
  }
  graph.erase_nodes(removed);
}

}  // namespace pumice
