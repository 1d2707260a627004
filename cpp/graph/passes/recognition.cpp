#include "graph/passes/recognition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "graph/passes/passes.h"
#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

using Perm = std::vector<int64_t>;

Perm identity(size_t rank) {
  Perm perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  return perm;
}

Perm swapped_last(size_t rank) {
  Perm perm = identity(rank);
  std::swap(perm[rank - 1], perm[rank - 2]);
  return perm;
}

// Maps axes of a transposed value to axes of its source.
Perm through(const Perm& axes, const Perm& perm) {
  Perm result;
  for (const int64_t axis : axes) result.push_back(perm[static_cast<size_t>(axis)]);
  return result;
}

// q, k or v: a value, and the order in which its axes become [.., rows, size].
struct Side {
  ValueId value;
  Perm axes;
  ValueId sizes = kAbsent;  // the shape that its heads are repeated to
};

// The factor of attention scores: a number, and scalars known at binding.
struct Scale {
  double number = 1;
  std::vector<ValueId> factors, divisors;
};

struct Match {
  const ProgramNode* product = nullptr;  // the product of the probabilities and v
  Side q, k, v;
  Scale scale;
  ValueId mask = kAbsent;
  bool mask_hides = false;                                   // a bool mask is true for hidden positions
  double hidden = -std::numeric_limits<double>::infinity();  // score of positions hidden by a bool mask
  bool zero_empty = false;
  const ProgramNode* transposed = nullptr;  // Transpose of the result
  const ProgramNode* whole = nullptr;       // the ONNX Attention node, if any
  std::vector<uint32_t> rows;               // report rows of the replaced nodes
};

class AttentionSearch {
 public:
  explicit AttentionSearch(const ProgramGraph& graph) : graph_(graph), flow_(graph) {}

  std::optional<Match> match(const ProgramNode& softmax) {
    takes_repeats_ = true;
    const auto found = match_written(softmax);
    takes_repeats_ = false;
    // The heads of k and v must either both be repeated or neither.
    return found && (found->k.sizes == kAbsent) != (found->v.sizes == kAbsent) ? match_written(softmax) : found;
  }

  // Matches an ONNX Attention node between Transposes.
  std::optional<Match> match_whole(const ProgramNode& node) {
    found_ = {};
    const auto given = [](const std::vector<ValueId>& values, size_t i) { return i < values.size() && values[i] != kAbsent; };
    for (size_t i = 1; i < 4; ++i)
      if (given(node.outputs, i) || given(node.inputs, i + 3)) return {};
    const auto shape = graph_.value(node.inputs[0]).shape;
    if (!shape || shape->size() != 4 || shape->back() < 1) return {};
    found_.whole = found_.product = &node;
    found_.scale.number = node.attributes.real("scale", 1 / std::sqrt(static_cast<double>(shape->back())));
    found_.q = side(node.inputs[0], identity(4), nullptr), found_.k = side(node.inputs[1], identity(4), nullptr);
    found_.v = side(node.inputs[2], identity(4), nullptr);
    if (given(node.inputs, 3)) found_.mask = node.inputs[3];
    find_transposed();
    const bool all_ranks = found_.q.axes.size() == 4 && found_.k.axes.size() == 4 && found_.v.axes.size() == 4;
    return all_ranks && all_floats() && !found_.rows.empty() ? std::optional(found_) : std::nullopt;
  }

 private:
  std::optional<Match> match_written(const ProgramNode& softmax) {
    found_ = {};
    const size_t rank = rank_of(softmax.inputs[0]);
    const int64_t axis = softmax.attributes.integer("axis", -1);
    if (rank < 2 || rank > 4 || (axis != -1 && axis != static_cast<int64_t>(rank) - 1)) return {};
    take(softmax);
    if (!find_product(softmax.outputs[0]) || !find_scores(softmax.inputs[0], rank)) return {};
    found_.v = side(found_.product->inputs[1], identity(rank), nullptr);
    if (found_.v.axes.size() != rank || !all_floats()) return {};
    find_transposed();
    return found_;
  }

  const GraphValue& value(ValueId id) const { return graph_.value(id); }
  size_t rank_of(ValueId id) const { return value(id).shape ? value(id).shape->size() : 0; }
  void take(const ProgramNode& node) { found_.rows.push_back(node.report); }

  bool all_floats() const {
    const auto is_working = [&](ValueId id) { return is_working_float(value(id).dtype); };
    return is_working(found_.q.value) && is_working(found_.k.value) && is_working(found_.v.value);
  }

  // Kernels write rows, so the last axis must stay last.
  void find_transposed() {
    const ProgramNode* reader = flow_.only_reader(found_.product->outputs[0]);
    if (!reader || reader->row->name != "Transpose") return;
    const Perm perm = perm_of(*reader);
    if (perm.empty() || perm.back() != static_cast<int64_t>(perm.size()) - 1) return;
    found_.transposed = reader;
    take(*reader);
  }

  // Whether the node returns its input, possibly with another float dtype.
  bool is_passed(const ProgramNode& node) const {
    if (node.row->passes == RowPasses::tensor) return node.outputs.size() == 1 || node.outputs[1] == kAbsent;
    return node.row->casts && is_working_float(value(node.inputs[0]).dtype) && is_working_float(value(node.outputs[0]).dtype);
  }

  // Follows the probabilities to their product with v.
  bool find_product(ValueId probabilities) {
    for (;;) {
      if (const ProgramNode* guard = guard_of(probabilities)) {
        found_.zero_empty = true;
        probabilities = guard->outputs[0];
        continue;
      }
      const ProgramNode* reader = flow_.only_reader(probabilities);
      if (!reader) return false;
      if (!is_passed(*reader)) {
        found_.product = reader;
        take(*reader);
        return reader->row->name == "MatMul" && reader->inputs[0] == probabilities && reader->inputs[1] != probabilities;
      }
      take(*reader);
      probabilities = reader->outputs[0];
    }
  }

  // Matches Where(IsNaN(p), 0, p) if p has no other reader.
  const ProgramNode* guard_of(ValueId p) {
    const auto& readers = flow_.readers(p);
    if (readers.size() != 2 || flow_.is_output(p)) return nullptr;
    for (size_t i = 0; i < 2; ++i) {
      const ProgramNode &nan = *readers[i], &where = *readers[1 - i];
      if (nan.row->name != "IsNaN" || where.row->name != "Where" || where.inputs[0] != nan.outputs[0] || where.inputs[2] != p) continue;
      if (flow_.only_reader(nan.outputs[0]) != &where || flow_.number(where.inputs[1]) != 0.0) continue;
      if (rank_of(where.inputs[1]) > rank_of(p)) continue;  // the zero would add axes
      take(nan);
      take(where);
      return &where;
    }
    return nullptr;
  }

  // Goes back from the softmax input through mask and scale to the product of q and k.
  bool find_scores(ValueId scores, size_t rank) {
    if (rank_of(scores) != rank || (flow_.only_reader(scores) == nullptr)) return false;
    const ProgramNode* node = flow_.producer(scores);
    if (!node) return false;
    const Match before = found_;
    take(*node);
    const std::string_view op = node->row->name;
    const auto undo = [&] {
      found_ = before;
      return false;
    };
    if (is_passed(*node)) return find_scores(node->inputs[0], rank) || undo();
    if (op == "MatMul") return find_sides(*node, rank) || undo();
    if (op == "Mul" || op == "Div") {
      const auto inner = scaled(*node, found_.scale);
      if (!inner) return undo();
      is_scaled_ = true;
      const bool found = find_scores(*inner, rank);
      is_scaled_ = false;
      return found || undo();
    }
    return (found_.mask == kAbsent && !is_scaled_ && find_under_mask(*node, scores, rank)) || undo();
  }

  // Matches a mask that is added to the scores or selects between them and a number.
  bool find_under_mask(const ProgramNode& node, ValueId scores, size_t rank) {
    const std::string_view op = node.row->name;
    if (op == "Add") {
      for (size_t i = 0; i < 2; ++i) {
        const ValueId mask = node.inputs[1 - i];
        if (!is_working_float(value(mask).dtype) || !broadcasts(mask, scores)) continue;
        const Match here = found_;
        found_.mask = mask;
        if (find_scores(node.inputs[i], rank)) return true;
        found_ = here;
      }
    }
    if (op == "Where" && broadcasts(node.inputs[0], scores)) {
      for (size_t i = 1; i < 3; ++i) {
        const auto fill = flow_.number(node.inputs[3 - i]);
        if (!fill || *fill > kHiddenAtMost) continue;
        found_.mask = node.inputs[0], found_.mask_hides = i == 2, found_.hidden = *fill;
        if (find_scores(node.inputs[i], rank)) return true;
      }
    }
    return false;
  }

  // Whether the mask broadcasts to the scores without changing their shape.
  bool broadcasts(ValueId mask, ValueId scores) const {
    const auto& shape = value(mask).shape;
    if (!shape || shape->empty() || shape->size() > rank_of(scores)) return false;
    const Shape& whole = *value(scores).shape;
    for (size_t back = 1; back <= shape->size(); ++back) {
      const int64_t size = (*shape)[shape->size() - back], full = whole[whole.size() - back];
      if (full != kUnknownSize && size != kUnknownSize && size != 1 && size != full) return false;
      if (full == 1 && size != 1) return false;
    }
    return true;
  }

  // Returns the operand that a scalar multiplies or divides; nullopt if there is no such scalar.
  std::optional<ValueId> scaled(const ProgramNode& node, Scale& scale) const {
    const bool divides = node.row->name == "Div";
    for (size_t i = 0; i < (divides ? 1u : 2u); ++i) {
      const ValueId factor = node.inputs[1 - i];
      if (!is_working_float(value(node.inputs[i]).dtype) || rank_of(factor) > rank_of(node.inputs[i])) continue;
      if (const auto number = flow_.number(factor)) {
        scale.number = divides ? scale.number / *number : scale.number * *number;
        return node.inputs[i];
      }
      if (flow_.is_known_number(factor)) {
        (divides ? scale.divisors : scale.factors).push_back(factor);
        return node.inputs[i];
      }
    }
    return {};
  }

  bool find_sides(const ProgramNode& product, size_t rank) {
    if (rank_of(product.inputs[0]) != rank || rank_of(product.inputs[1]) != rank) return false;
    const bool takes_repeats = std::exchange(takes_repeats_, false);
    found_.q = side(product.inputs[0], identity(rank), &found_.scale);
    takes_repeats_ = takes_repeats;
    found_.k = side(product.inputs[1], swapped_last(rank), &found_.scale);
    return found_.scale.factors.size() + found_.scale.divisors.size() <= kMostScales;
  }

  // Goes back through Transposes and scales.
  Side side(ValueId id, Perm axes, Scale* scale) {
    if (rank_of(id) != axes.size()) return {id, {}};
    ValueId sizes = kAbsent;
    for (;;) {
      const ProgramNode* node = flow_.producer(id);
      if (!node) return {id, axes, sizes};
      const std::string_view op = node->row->name;
      ValueId inner = kAbsent;
      if (op == "Transpose") {
        axes = through(axes, perm_of(*node));
        inner = node->inputs[0];
      } else if (op == "Reshape") {
        inner = swapped_in_rows(*node);
        if (inner != kAbsent) axes = through(axes, swapped_last(axes.size()));
        if (inner == kAbsent && takes_repeats_ && sizes == kAbsent && axes == identity(4)) {
          inner = repeated_heads(*node);
          if (inner != kAbsent) sizes = node->inputs[1];
        }
      } else if (scale && (op == "Mul" || op == "Div")) {
        const auto found = scaled(*node, *scale);
        if (found) inner = *found;
      }
      if (inner == kAbsent || rank_of(inner) != axes.size()) return {id, axes, sizes};
      take(*node);
      id = inner;
    }
  }

  Perm perm_of(const ProgramNode& transpose) const {
    const size_t rank = rank_of(transpose.outputs[0]);
    if (!transpose.attributes.has("perm")) {
      Perm perm = identity(rank);
      std::reverse(perm.begin(), perm.end());
      return perm;
    }
    Perm perm = transpose.attributes.integers("perm");
    for (int64_t& axis : perm) axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
    return perm;
  }

  // Returns x if `last` ends Reshape(x, [-1, rows, size]), Transpose, Reshape to x's shape with the last two axes swapped. This is how
  // exporters transpose batched matrices.
  ValueId swapped_in_rows(const ProgramNode& last) {
    const ProgramNode* transpose = flow_.producer(last.inputs[0], "Transpose");
    const ProgramNode* first = transpose ? flow_.producer(transpose->inputs[0], "Reshape") : nullptr;
    if (!first || perm_of(*transpose) != Perm{0, 2, 1} || rank_of(first->inputs[0]) != 4) return kAbsent;
    const ValueId x = first->inputs[0];
    const auto whole = flow_.sizes_of(x);
    const auto flat = flow_.sizes_in(first->inputs[1]), made = flow_.sizes_in(last.inputs[1]);
    const std::vector<ValueFlow::Size> wanted{whole[0], whole[1], whole[3], whole[2]};
    if (!flat || !made || flat->size() != 3 || (*flat)[1] != whole[2] || (*flat)[2] != whole[3] || *made != wanted) return kAbsent;
    take(*transpose);
    take(*first);
    return x;
  }

  // Returns x if `last` ends Unsqueeze(x, 2), Expand, Reshape, which repeats each head. The target shape is checked at binding.
  ValueId repeated_heads(const ProgramNode& last) {
    const ProgramNode* expand = flow_.producer(last.inputs[0], "Expand");
    const ProgramNode* unsqueeze = expand ? flow_.producer(expand->inputs[0], "Unsqueeze") : nullptr;
    if (!unsqueeze || rank_of(unsqueeze->inputs[0]) != 4 || rank_of(last.outputs[0]) != 4) return kAbsent;
    const auto& axes = value(unsqueeze->inputs[1]).constant;
    if (!axes || axes->desc.elements() != 1 || (axes->as_int64()[0] != 2 && axes->as_int64()[0] != -3)) return kAbsent;
    const Shape &from = *value(unsqueeze->inputs[0]).shape, &made = *value(last.outputs[0]).shape;
    if (from[1] < 1 || made[1] < 1 || made[1] % from[1] != 0 || from[0] != made[0] || from[2] != made[2] || from[3] != made[3])
      return kAbsent;
    take(*expand);
    take(*unsqueeze);
    return unsqueeze->inputs[0];
  }

  static constexpr double kHiddenAtMost = -1000;  // small enough to vanish next to real scores
  static constexpr size_t kMostScales = 3;

  const ProgramGraph& graph_;
  ValueFlow flow_;
  Match found_;
  bool is_scaled_ = false;      // inside a scale, where no mask may follow
  bool takes_repeats_ = false;  // allows repeated heads
};

Attributes attributes_of(const Match& match, size_t rank) {
  Attributes attributes;
  attributes.set("scale", match.scale.number);
  attributes.set("divisors", static_cast<int64_t>(match.scale.divisors.size()));
  attributes.set("hidden", match.hidden);
  attributes.set("mask_hides", static_cast<int64_t>(match.mask_hides));
  attributes.set("zero_empty", static_cast<int64_t>(match.zero_empty));
  attributes.set("grouped", static_cast<int64_t>(match.whole || match.k.sizes != kAbsent));
  if (match.whole) {
    const Attributes& given = match.whole->attributes;
    attributes.set("zero_empty", int64_t{1});
    attributes.set("short_mask", int64_t{1});
    attributes.set("softcap", given.real("softcap", 0));
    for (const auto name : {"is_causal", "left_window_size", "right_window_size"}) attributes.set(name, given.integer(name));
  }
  attributes.set("q_axes", match.q.axes);
  attributes.set("k_axes", match.k.axes);
  attributes.set("v_axes", match.v.axes);
  Perm made = identity(rank);
  if (match.transposed && match.transposed->attributes.has("perm"))
    made = match.transposed->attributes.integers("perm");
  else if (match.transposed)
    std::reverse(made.begin(), made.end());
  for (int64_t& axis : made) axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
  attributes.set("y_axes", made);
  return attributes;
}

ProgramNode fused(const Match& match) {
  ProgramNode node = *match.product;
  node.row = find_operator("pumice::Attention");
  node.attributes = checked_attributes(*node.row, node.name, attributes_of(match, match.q.axes.size()));
  node.inputs = {match.q.value, match.k.value, match.v.value, match.mask, match.k.sizes, match.v.sizes};
  for (const auto* numbers : {&match.scale.divisors, &match.scale.factors})
    node.inputs.insert(node.inputs.end(), numbers->begin(), numbers->end());
  if (match.transposed) node.outputs = match.transposed->outputs;
  return node;
}

}  // namespace

void Absorbed::note(const std::vector<uint32_t>& rows, const ProgramNode& into, Fusion fusion) {
  for (const uint32_t row : rows) {
    if (row == into.report) continue;
    graph_.absorb(row, into.report, fusion);
    rows_.insert(row);
  }
}

void Absorbed::remove() {
  if (rows_.empty()) return;
  remove_dead_nodes(graph_);
  for (const ProgramNode& node : graph_.nodes)
    if (rows_.contains(node.report)) graph_.report[node.report].note.clear(), graph_.report[node.report].fusion = {};
}

void recognise_attention(ProgramGraph& graph) {
  const auto is_root = [](const ProgramNode& node) { return node.row->name == "Softmax" || node.row->name == "Attention"; };
  Absorbed absorbed(graph);
  // An attention may separate another from its inputs: repeat until no more are found.
  for (bool again = std::ranges::any_of(graph.nodes, is_root); again;) {
    AttentionSearch search(graph);
    std::vector<std::pair<size_t, ProgramNode>> made;
    std::set<ValueId> lost;  // values that have no producer after this round
    std::vector<bool> gone(graph.nodes.size(), false);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const ProgramNode& root = graph.nodes[i];
      if (!is_root(root)) continue;
      const auto match = root.row->name == "Softmax" ? search.match(root) : search.match_whole(root);
      if (!match) continue;
      ProgramNode node = fused(*match);
      if (std::ranges::any_of(node.inputs, [&](ValueId input) { return lost.contains(input); })) continue;
      absorbed.note(match->rows, *match->product, Fusion::attention);
      if (match->transposed)
        lost.insert(match->product->outputs[0]), gone[static_cast<size_t>(match->transposed - graph.nodes.data())] = true;
      made.emplace_back(static_cast<size_t>(match->product - graph.nodes.data()), std::move(node));
    }
    for (auto& [at, node] : made) graph.nodes[at] = std::move(node);
    graph.erase_nodes(gone);
    again = !made.empty();
  }
  absorbed.remove();
}

}  // namespace pumice
