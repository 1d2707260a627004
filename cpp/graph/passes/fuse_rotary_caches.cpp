#include "graph/passes/fuse_rotary_caches.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

enum AttentionInput : size_t { kQ, kK, kV };
enum RotaryInput : size_t { kTurned, kCosines, kSines, kPlaces };
enum ScatterInput : size_t { kPast, kUpdate, kFirsts };

// The nodes to fuse.
struct CachedRows {
  const ProgramNode *q, *k, *keys, *values;

  std::array<const ProgramNode*, 4> all() const { return {q, k, keys, values}; }
};

class CacheSearch {
 public:
  explicit CacheSearch(const ProgramGraph& graph) : graph_(graph), flow_(graph) {}

  std::optional<CachedRows> rows_of(const ProgramNode& attention) const {
    if ((attention.row->name != "Attention" && attention.row->name != "pumice::Attention") || attention.inputs.size() < 3) return {};
    const CachedRows found{flow_.producer(attention.inputs[kQ], "RotaryEmbedding"), nullptr,
                           flow_.producer(attention.inputs[kK], "TensorScatter"), flow_.producer(attention.inputs[kV], "TensorScatter")};
    if (!found.q || !found.keys || !found.values || found.keys == found.values) return {};
    CachedRows whole = found;
    whole.k = flow_.producer(found.keys->inputs[kUpdate], "RotaryEmbedding");
    if (!whole.k || whole.k == whole.q || flow_.only_reader(whole.k->outputs[0]) != whole.keys) return {};
    return fits(whole) && can_move(whole) ? std::optional(whole) : std::nullopt;
  }

  // Returns the last of the nodes in graph order: at that point all inputs have been computed.
  size_t last_of(const CachedRows& rows) const {
    size_t last = 0;
    for (const ProgramNode* node : rows.all()) last = std::max(last, place_of(*node));
    return last;
  }

 private:
  size_t place_of(const ProgramNode& node) const { return static_cast<size_t>(&node - graph_.nodes.data()); }

  // Whether the rotations and the cache updates have the same parameters, nothing is computed on the host, and the shapes match.
  bool fits(const CachedRows& rows) const {
    const auto same = [](const ProgramNode& a, const ProgramNode& b, std::initializer_list<size_t> inputs) {
      return std::ranges::all_of(inputs,
                                 [&](size_t i) { return i < a.inputs.size() && i < b.inputs.size() && a.inputs[i] == b.inputs[i]; });
    };
    if (!same(*rows.q, *rows.k, {kCosines, kSines, kPlaces}) || !same(*rows.keys, *rows.values, {kFirsts})) return false;
    for (const char* name : {"interleaved", "rotary_embedding_dim"})
      if (rows.q->attributes.integer(name, 0) != rows.k->attributes.integer(name, 0)) return false;
    for (const ValueId id : {rows.q->inputs[kPlaces], rows.keys->inputs[kFirsts]})
      if (id == kAbsent || graph_.value(id).constant || (flow_.producer(id) && flow_.producer(id)->on_host)) return false;
    for (const ProgramNode* node : rows.all())
      if (node->on_host || node->wide != rows.q->wide || !has_four_axes(node->outputs[0])) return false;
    for (const ProgramNode* node : {rows.keys, rows.values}) {
      const int64_t axis = node->attributes.integer("axis", -2);
      if ((axis != 2 && axis != -2) || node->attributes.text("mode", "linear") != "linear") return false;
    }
    return have_one_form(rows);
  }

  bool has_four_axes(ValueId id) const {
    const GraphValue& value = graph_.value(id);
    return is_working_float(value.dtype) && value.shape && value.shape->size() == 4;
  }

  // Whether both caches have the same known number of heads and head size, and caches and rows the same dtype. The number of value rows is
  // checked at binding.
  bool have_one_form(const CachedRows& rows) const {
    const Shape &keys = *graph_.value(rows.keys->outputs[0]).shape, &values = *graph_.value(rows.values->outputs[0]).shape;
    const bool is_known = keys[1] != kUnknownSize && keys[3] != kUnknownSize && keys[1] == values[1] && keys[3] == values[3];
    const DType dtype = graph_.value(rows.keys->outputs[0]).dtype;
    const auto is_same = [&](ValueId id) { return graph_.value(id).dtype == dtype; };
    const auto made_same = [&](const ProgramNode* node) { return is_same(node->outputs[0]); };
    return is_known && std::ranges::all_of(rows.all(), made_same) && is_same(rows.values->inputs[kUpdate]) &&
           is_same(rows.k->inputs[kTurned]) && is_same(rows.q->inputs[kTurned]);
  }

  // Whether no node reads a result before the last of the nodes.
  bool can_move(const CachedRows& rows) const {
    const size_t last = last_of(rows);
    for (const ProgramNode* node : {rows.q, rows.keys, rows.values})
      for (const ProgramNode* reader : flow_.readers(node->outputs[0]))
        if (place_of(*reader) <= last) return false;
    return true;
  }

  const ProgramGraph& graph_;
  ValueFlow flow_;
};

ProgramNode joined(const CachedRows& rows) {
  ProgramNode node = *rows.keys;
  node.row = find_operator("pumice::RotaryCaches");
  Attributes attributes;
  for (const char* name : {"interleaved", "rotary_embedding_dim"}) attributes.set(name, rows.q->attributes.integer(name, 0));
  node.attributes = checked_attributes(*node.row, node.name, attributes);
  node.inputs = {rows.q->inputs[kTurned],  rows.k->inputs[kTurned],    rows.values->inputs[kUpdate],
                 rows.q->inputs[kCosines], rows.q->inputs[kSines],     rows.q->inputs[kPlaces],
                 rows.keys->inputs[kPast], rows.values->inputs[kPast], rows.keys->inputs[kFirsts]};
  node.outputs = {rows.q->outputs[0], rows.keys->outputs[0], rows.values->outputs[0]};
  return node;
}

}  // namespace

void join_caches(ProgramGraph& graph, const FusionSet& wanted) {
  if (!wanted.has(Fusion::attention)) return;
  if (std::ranges::none_of(graph.nodes, [](const ProgramNode& node) { return node.row->name == "TensorScatter"; })) return;
  const CacheSearch search(graph);
  std::map<size_t, ProgramNode> made;
  std::vector<bool> gone(graph.nodes.size(), false);
  for (const ProgramNode& node : graph.nodes) {
    const auto rows = search.rows_of(node);
    if (!rows) continue;
    const auto place = [&](const ProgramNode* one) { return static_cast<size_t>(one - graph.nodes.data()); };
    if (std::ranges::any_of(rows->all(), [&](const ProgramNode* one) { return gone[place(one)]; })) continue;
    for (const ProgramNode* one : rows->all()) {
      gone[place(one)] = true;
      if (one != rows->keys) graph.absorb(one->report, rows->keys->report, Fusion::attention);
    }
    made.emplace(search.last_of(*rows), joined(*rows));
  }
  for (auto& [at, node] : made) {
    graph.nodes[at] = std::move(node);
    gone[at] = false;
  }
  graph.erase_nodes(gone);
}

}  // namespace pumice
