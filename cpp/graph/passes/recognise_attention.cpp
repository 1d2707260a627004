#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "graph/passes/passes.h"
#include "graph/passes/recognise_patterns.h"
#include "graph/passes/use_def_chains.h"

namespace pumice {
namespace {

using Perm = std::vector<int64_t>;

Perm make_identity_permutation(size_t rank) {
  Perm perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  return perm;
}

Perm make_swap_permutation(size_t rank) {
  Perm perm = make_identity_permutation(rank);
  std::swap(perm[rank - 1], perm[rank - 2]);
  return perm;
}

// Maps axes of a transposed value to axes of its source.
Perm compose_permutation(const Perm& axes, const Perm& perm) {
  Perm result;
  for (const int64_t axis : axes) result.push_back(perm[static_cast<size_t>(axis)]);
  return result;
}

// q, k or v: a value, and the axis order that makes it [.., rows, head size].
struct AttentionOperand {
  ValueId value;
  Perm axes;
  ValueId sizes = kAbsent;  // value with the shape to which the heads are repeated (grouped-query attention), or kAbsent
};

// The scale of attention scores: a constant, times factors and divided by divisors known at binding.
struct ScoreScale {
  double number = 1;
  std::vector<ValueId> factors, divisors;
};

struct AttentionMatch {
  const ProgramNode* product = nullptr;  // the MatMul of the probabilities and v
  AttentionOperand q, k, v;
  ScoreScale scale;
  ValueId mask = kAbsent;
  bool mask_hides = false;                                   // whether true in a bool mask means hidden (not visible)
  double hidden = -std::numeric_limits<double>::infinity();  // score assigned to positions that a bool mask hides
  bool zero_empty = false;
  const ProgramNode* transposed = nullptr;      // Transpose of the result, if any
  const ProgramNode* onnx_attention = nullptr;  // the ONNX Attention node, if any
  std::vector<uint32_t> rows;                   // rows in the fusion report of the nodes to replace
};

class AttentionMatcher {
 public:
  explicit AttentionMatcher(const ProgramGraph& graph) : graph_(graph), use_def_(graph) {}

  std::optional<AttentionMatch> match(const ProgramNode& softmax) {
    allow_repeated_heads_ = true;
    const auto found = match_decomposed_attention(softmax);
    allow_repeated_heads_ = false;
    // The heads must be repeated for both k and v or for neither.
    return found && (found->k.sizes == kAbsent) != (found->v.sizes == kAbsent) ? match_decomposed_attention(softmax) : found;
  }

  // Matches an ONNX Attention node with Transposes before or after it.
  std::optional<AttentionMatch> match_attention_node(const ProgramNode& node) {
    match_ = {};
    const auto is_present = [](const std::vector<ValueId>& values, size_t i) { return i < values.size() && values[i] != kAbsent; };
    for (size_t i = 1; i < 4; ++i)
      if (is_present(node.outputs, i) || is_present(node.inputs, i + 3)) return {};
    const auto shape = graph_.value(node.inputs[0]).shape;
    if (!shape || shape->size() != 4 || shape->back() < 1) return {};
    match_.onnx_attention = match_.product = &node;
    match_.scale.number = node.attributes.real("scale", 1 / std::sqrt(static_cast<double>(shape->back())));
    match_.q = trace_operand(node.inputs[0], make_identity_permutation(4), nullptr),
    match_.k = trace_operand(node.inputs[1], make_identity_permutation(4), nullptr);
    match_.v = trace_operand(node.inputs[2], make_identity_permutation(4), nullptr);
    if (is_present(node.inputs, 3)) match_.mask = node.inputs[3];
    find_output_transpose();
    const bool all_ranks = match_.q.axes.size() == 4 && match_.k.axes.size() == 4 && match_.v.axes.size() == 4;
    return all_ranks && has_float_operands() && !match_.rows.empty() ? std::optional(match_) : std::nullopt;
  }

 private:
  std::optional<AttentionMatch> match_decomposed_attention(const ProgramNode& softmax) {
    match_ = {};
    const size_t rank = rank_of(softmax.inputs[0]);
    const int64_t axis = softmax.attributes.integer("axis", -1);
    if (rank < 2 || rank > 4 || (axis != -1 && axis != static_cast<int64_t>(rank) - 1)) return {};
    add_report_row(softmax);
    if (!find_value_matmul(softmax.outputs[0]) || !match_scores(softmax.inputs[0], rank)) return {};
    match_.v = trace_operand(match_.product->inputs[1], make_identity_permutation(rank), nullptr);
    if (match_.v.axes.size() != rank || !has_float_operands()) return {};
    find_output_transpose();
    return match_;
  }

  const GraphValue& value(ValueId id) const { return graph_.value(id); }
  size_t rank_of(ValueId id) const { return value(id).shape ? value(id).shape->size() : 0; }
  void add_report_row(const ProgramNode& node) { match_.rows.push_back(node.report); }

  bool has_float_operands() const {
    const auto is_working = [&](ValueId id) { return is_operator_float(value(id).dtype); };
    return is_working(match_.q.value) && is_working(match_.k.value) && is_working(match_.v.value);
  }

  // Matches a Transpose of the result. Kernels write whole rows, so the last axis must stay last.
  void find_output_transpose() {
    const ProgramNode* reader = use_def_.find_only_reader(match_.product->outputs[0]);
    if (!reader || reader->row->name != "Transpose") return;
    const Perm perm = get_permutation(*reader);
    if (perm.empty() || perm.back() != static_cast<int64_t>(perm.size()) - 1) return;
    match_.transposed = reader;
    add_report_row(*reader);
  }

  // Whether the node only returns its input, possibly with another float dtype.
  bool is_passthrough(const ProgramNode& node) const {
    if (node.row->alias.forwards == ForwardedInput::tensor) return node.outputs.size() == 1 || node.outputs[1] == kAbsent;
    return node.row->casts && is_operator_float(value(node.inputs[0]).dtype) && is_operator_float(value(node.outputs[0]).dtype);
  }

  // Follows the probabilities to their MatMul with v.
  bool find_value_matmul(ValueId probabilities) {
    for (;;) {
      if (const ProgramNode* guard = match_nan_guard(probabilities)) {
        match_.zero_empty = true;
        probabilities = guard->outputs[0];
        continue;
      }
      const ProgramNode* reader = use_def_.find_only_reader(probabilities);
      if (!reader) return false;
      if (!is_passthrough(*reader)) {
        match_.product = reader;
        add_report_row(*reader);
        return reader->row->name == "MatMul" && reader->inputs[0] == probabilities && reader->inputs[1] != probabilities;
      }
      add_report_row(*reader);
      probabilities = reader->outputs[0];
    }
  }

  // Matches Where(IsNaN(p), 0, p) if p has no other reader.
  const ProgramNode* match_nan_guard(ValueId p) {
    const auto& readers = use_def_.readers(p);
    if (readers.size() != 2 || use_def_.is_output(p)) return nullptr;
    for (size_t i = 0; i < 2; ++i) {
      const ProgramNode &nan = *readers[i], &where = *readers[1 - i];
      if (nan.row->name != "IsNaN" || where.row->name != "Where" || where.inputs[0] != nan.outputs[0] || where.inputs[2] != p) continue;
      if (use_def_.find_only_reader(nan.outputs[0]) != &where || use_def_.get_float_scalar(where.inputs[1]) != 0.0) continue;
      if (rank_of(where.inputs[1]) > rank_of(p)) continue;  // a zero of higher rank would add axes
      add_report_row(nan);
      add_report_row(where);
      return &where;
    }
    return nullptr;
  }

  // Traces the Softmax input back through mask and scale to the MatMul of q and k.
  bool match_scores(ValueId scores, size_t rank) {
    if (rank_of(scores) != rank || (use_def_.find_only_reader(scores) == nullptr)) return false;
    const ProgramNode* node = use_def_.find_producer(scores);
    if (!node) return false;
    const AttentionMatch before = match_;
    add_report_row(*node);
    const std::string_view op = node->row->name;
    const auto undo = [&] {
      match_ = before;
      return false;
    };
    if (is_passthrough(*node)) return match_scores(node->inputs[0], rank) || undo();
    if (op == "MatMul") return match_qk_matmul(*node, rank) || undo();
    if (op == "Mul" || op == "Div") {
      const auto inner = match_scalar_factor(*node, match_.scale);
      if (!inner) return undo();
      is_scaled_ = true;
      const bool found = match_scores(*inner, rank);
      is_scaled_ = false;
      return found || undo();
    }
    return (match_.mask == kAbsent && !is_scaled_ && match_masked_scores(*node, scores, rank)) || undo();
  }

  // Matches a mask that is added to the scores, or that selects between scores and a constant.
  bool match_masked_scores(const ProgramNode& node, ValueId scores, size_t rank) {
    const std::string_view op = node.row->name;
    if (op == "Add") {
      for (size_t i = 0; i < 2; ++i) {
        const ValueId mask = node.inputs[1 - i];
        if (!is_operator_float(value(mask).dtype) || !broadcasts_to(mask, scores)) continue;
        const AttentionMatch here = match_;
        match_.mask = mask;
        if (match_scores(node.inputs[i], rank)) return true;
        match_ = here;
      }
    }
    if (op == "Where" && broadcasts_to(node.inputs[0], scores)) {
      for (size_t i = 1; i < 3; ++i) {
        const auto fill = use_def_.get_float_scalar(node.inputs[3 - i]);
        if (!fill || *fill > kMaxHiddenScore) continue;
        match_.mask = node.inputs[0], match_.mask_hides = i == 2, match_.hidden = *fill;
        if (match_scores(node.inputs[i], rank)) return true;
      }
    }
    return false;
  }

  // Whether the mask broadcasts to the scores without changing their shape.
  bool broadcasts_to(ValueId mask, ValueId scores) const {
    const auto& shape = value(mask).shape;
    if (!shape || shape->empty() || shape->size() > rank_of(scores)) return false;
    const Shape& scores_shape = *value(scores).shape;
    for (size_t back = 1; back <= shape->size(); ++back) {
      const int64_t size = (*shape)[shape->size() - back], full = scores_shape[scores_shape.size() - back];
      if (full != kUnknownSize && size != kUnknownSize && size != 1 && size != full) return false;
      if (full == 1 && size != 1) return false;
    }
    return true;
  }

  // Returns the operand that is multiplied or divided by a scalar; nullopt if no operand is scalar.
  std::optional<ValueId> match_scalar_factor(const ProgramNode& node, ScoreScale& scale) const {
    const bool divides = node.row->name == "Div";
    for (size_t i = 0; i < (divides ? 1u : 2u); ++i) {
      const ValueId factor = node.inputs[1 - i];
      if (!is_operator_float(value(node.inputs[i]).dtype) || rank_of(factor) > rank_of(node.inputs[i])) continue;
      if (const auto number = use_def_.get_float_scalar(factor)) {
        scale.number = divides ? scale.number / *number : scale.number * *number;
        return node.inputs[i];
      }
      if (use_def_.is_known_scalar(factor)) {
        (divides ? scale.divisors : scale.factors).push_back(factor);
        return node.inputs[i];
      }
    }
    return {};
  }

  bool match_qk_matmul(const ProgramNode& product, size_t rank) {
    if (rank_of(product.inputs[0]) != rank || rank_of(product.inputs[1]) != rank) return false;
    const bool allow_repeated_heads = std::exchange(allow_repeated_heads_, false);
    match_.q = trace_operand(product.inputs[0], make_identity_permutation(rank), &match_.scale);
    allow_repeated_heads_ = allow_repeated_heads;
    match_.k = trace_operand(product.inputs[1], make_swap_permutation(rank), &match_.scale);
    return match_.scale.factors.size() + match_.scale.divisors.size() <= kMaxScales;
  }

  // Traces an operand back through Transposes and scales.
  AttentionOperand trace_operand(ValueId id, Perm axes, ScoreScale* scale) {
    if (rank_of(id) != axes.size()) return {id, {}};
    ValueId sizes = kAbsent;
    for (;;) {
      const ProgramNode* node = use_def_.find_producer(id);
      if (!node) return {id, axes, sizes};
      const std::string_view op = node->row->name;
      ValueId inner = kAbsent;
      if (op == "Transpose") {
        axes = compose_permutation(axes, get_permutation(*node));
        inner = node->inputs[0];
      } else if (op == "Reshape") {
        inner = match_batched_transpose(*node);
        if (inner != kAbsent) axes = compose_permutation(axes, make_swap_permutation(axes.size()));
        if (inner == kAbsent && allow_repeated_heads_ && sizes == kAbsent && axes == make_identity_permutation(4)) {
          inner = match_repeated_heads(*node);
          if (inner != kAbsent) sizes = node->inputs[1];
        }
      } else if (scale && (op == "Mul" || op == "Div")) {
        const auto found = match_scalar_factor(*node, *scale);
        if (found) inner = *found;
      }
      if (inner == kAbsent || rank_of(inner) != axes.size()) return {id, axes, sizes};
      add_report_row(*node);
      id = inner;
    }
  }

  Perm get_permutation(const ProgramNode& transpose) const {
    const size_t rank = rank_of(transpose.outputs[0]);
    if (!transpose.attributes.has("perm")) {
      Perm perm = make_identity_permutation(rank);
      std::reverse(perm.begin(), perm.end());
      return perm;
    }
    Perm perm = transpose.attributes.integers("perm");
    for (int64_t& axis : perm) axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
    return perm;
  }

  // Returns x if `last` is the end of Reshape(x, [-1, rows, size]), Transpose, Reshape to the shape of x with its last two axes swapped.
  // Exporters transpose batched matrices like this.
  ValueId match_batched_transpose(const ProgramNode& last) {
    const ProgramNode* transpose = use_def_.find_producer(last.inputs[0], "Transpose");
    const ProgramNode* first = transpose ? use_def_.find_producer(transpose->inputs[0], "Reshape") : nullptr;
    if (!first || get_permutation(*transpose) != Perm{0, 2, 1} || rank_of(first->inputs[0]) != 4) return kAbsent;
    const ValueId x = first->inputs[0];
    const auto x_sizes = use_def_.get_sizes(x);
    const auto flat = use_def_.trace_sizes(first->inputs[1]), target_sizes = use_def_.trace_sizes(last.inputs[1]);
    const std::vector<UseDefChains::SymbolicSize> expected_sizes{x_sizes[0], x_sizes[1], x_sizes[3], x_sizes[2]};
    if (!flat || !target_sizes || flat->size() != 3 || (*flat)[1] != x_sizes[2] || (*flat)[2] != x_sizes[3] ||
        *target_sizes != expected_sizes)
      return kAbsent;
    add_report_row(*transpose);
    add_report_row(*first);
    return x;
  }

  // Returns x if `last` is the end of Unsqueeze(x, 2), Expand, Reshape, which repeats each head. The target shape is checked at binding.
  ValueId match_repeated_heads(const ProgramNode& last) {
    const ProgramNode* expand = use_def_.find_producer(last.inputs[0], "Expand");
    const ProgramNode* unsqueeze = expand ? use_def_.find_producer(expand->inputs[0], "Unsqueeze") : nullptr;
    if (!unsqueeze || rank_of(unsqueeze->inputs[0]) != 4 || rank_of(last.outputs[0]) != 4) return kAbsent;
    const auto& axes = value(unsqueeze->inputs[1]).constant;
    if (!axes || axes->desc.elements() != 1 || (axes->as_int64()[0] != 2 && axes->as_int64()[0] != -3)) return kAbsent;
    const Shape &from = *value(unsqueeze->inputs[0]).shape, &repeated = *value(last.outputs[0]).shape;
    if (from[1] < 1 || repeated[1] < 1 || repeated[1] % from[1] != 0 || from[0] != repeated[0] || from[2] != repeated[2] ||
        from[3] != repeated[3])
      return kAbsent;
    add_report_row(*expand);
    add_report_row(*unsqueeze);
    return unsqueeze->inputs[0];
  }

  static constexpr double kMaxHiddenScore = -1000;  // scores up to this value count as hidden: exp() makes them negligible
  static constexpr size_t kMaxScales = 3;

  const ProgramGraph& graph_;
  UseDefChains use_def_;
  AttentionMatch match_;
  bool is_scaled_ = false;             // whether the search is inside a scale, where no mask may be matched
  bool allow_repeated_heads_ = false;  // whether repeated heads may be matched
};

Attributes make_attention_attributes(const AttentionMatch& match, size_t rank) {
  Attributes attributes;
  attributes.set("scale", match.scale.number);
  attributes.set("divisors", static_cast<int64_t>(match.scale.divisors.size()));
  attributes.set("hidden", match.hidden);
  attributes.set("mask_hides", static_cast<int64_t>(match.mask_hides));
  attributes.set("zero_empty", static_cast<int64_t>(match.zero_empty));
  attributes.set("grouped", static_cast<int64_t>(match.onnx_attention || match.k.sizes != kAbsent));
  if (match.onnx_attention) {
    const Attributes& source = match.onnx_attention->attributes;
    attributes.set("zero_empty", int64_t{1});
    attributes.set("short_mask", int64_t{1});
    attributes.set("softcap", source.real("softcap", 0));
    for (const auto name : {"is_causal", "left_window_size", "right_window_size"}) attributes.set(name, source.integer(name));
  }
  attributes.set("q_axes", match.q.axes);
  attributes.set("k_axes", match.k.axes);
  attributes.set("v_axes", match.v.axes);
  Perm y_axes = make_identity_permutation(rank);
  if (match.transposed && match.transposed->attributes.has("perm"))
    y_axes = match.transposed->attributes.integers("perm");
  else if (match.transposed)
    std::reverse(y_axes.begin(), y_axes.end());
  for (int64_t& axis : y_axes) axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
  attributes.set("y_axes", y_axes);
  return attributes;
}

ProgramNode make_attention_node(const AttentionMatch& match) {
  ProgramNode node = *match.product;
  node.row = find_operator("pumice::Attention");
  node.attributes = validate_attributes(*node.row, node.name, make_attention_attributes(match, match.q.axes.size()));
  node.inputs = {match.q.value, match.k.value, match.v.value, match.mask, match.k.sizes, match.v.sizes};
  for (const auto* numbers : {&match.scale.divisors, &match.scale.factors})
    node.inputs.insert(node.inputs.end(), numbers->begin(), numbers->end());
  if (match.transposed) node.outputs = match.transposed->outputs;
  return node;
}

}  // namespace

void ReplacedNodes::report_fused_rows(const std::vector<uint32_t>& rows, const ProgramNode& into, Fusion fusion) {
  for (const uint32_t row : rows) {
    if (row == into.report) continue;
    graph_.mark_fused(row, into.report, fusion);
    rows_.insert(row);
  }
}

void ReplacedNodes::erase_unread_nodes() {
  if (rows_.empty()) return;
  remove_dead_nodes(graph_);
  for (const ProgramNode& node : graph_.nodes)
    if (rows_.contains(node.report)) graph_.report[node.report].note.clear(), graph_.report[node.report].fusion = {};
}

void recognise_attention(ProgramGraph& graph) {
  const auto is_root = [](const ProgramNode& node) { return node.row->name == "Softmax" || node.row->name == "Attention"; };
  ReplacedNodes replaced(graph);
  // A match may need the result of another match of this round as its input, so repeat until no more are found.
  for (bool again = std::ranges::any_of(graph.nodes, is_root); again;) {
    AttentionMatcher matcher(graph);
    std::vector<std::pair<size_t, ProgramNode>> replacements;
    std::set<ValueId> unavailable;  // values without a producer after this round
    std::vector<bool> removed(graph.nodes.size(), false);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const ProgramNode& root = graph.nodes[i];
      if (!is_root(root)) continue;
      const auto match = root.row->name == "Softmax" ? matcher.match(root) : matcher.match_attention_node(root);
      if (!match) continue;
      ProgramNode node = make_attention_node(*match);
      if (std::ranges::any_of(node.inputs, [&](ValueId input) { return unavailable.contains(input); })) continue;
      replaced.report_fused_rows(match->rows, *match->product, Fusion::attention);
      if (match->transposed)
        unavailable.insert(match->product->outputs[0]), removed[static_cast<size_t>(match->transposed - graph.nodes.data())] = true;
      replacements.emplace_back(static_cast<size_t>(match->product - graph.nodes.data()), std::move(node));
    }
    for (auto& [at, node] : replacements) graph.nodes[at] = std::move(node);
    graph.erase_nodes(removed);
    again = !replacements.empty();
  }
  replaced.erase_unread_nodes();
}

}  // namespace pumice
