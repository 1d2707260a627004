#include <algorithm>
#include <set>

#include "core/error.h"
#include "graph/passes/fusion_budget.h"
#include "graph/passes/passes.h"
#include "operators/elementwise/elementwise_expression.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

constexpr size_t kMaxScaledEpilogues = 8;            // maximum number of distinct epilogues with constants; each needs its own pipeline
constexpr size_t kMaxScaledKernels = 32;             // maximum number of elementwise kernels with quantization scales
constexpr int64_t kLargestExact = int64_t{1} << 53;  // largest integer that a float64 literal represents exactly

// Whether expressions compute in the stored type, so that fusion does not change rounding.
bool computes_in_stored_type(DType dtype) {
  return contains(kOperatorFloats | make_dtype_set(DType::bool_, DType::int32, DType::uint32, DType::int64, DType::uint64), dtype);
}

// The expression of an elementwise node, and its operands.
struct ElementwiseExpr {
  Expression expression;
  std::vector<ValueId> operands;
  std::vector<std::string> names;  // name of each operand in the expression
  bool scaled = false;             // whether the expression contains a quantization scale
};

using Replacements = std::map<std::string, Expression>;

class ElementwiseFusion {
 public:
  ElementwiseFusion(ProgramGraph& graph, const FusionSet& fusions, uint64_t max_buffers)
      : graph_(graph),
        fusions_(fusions),
        max_buffers_(max_buffers),
        uses_(graph.count_uses()),
        producers_(graph.values.size(), -1),
        consumers_(graph.values.size(), -1),
        removed_(graph.nodes.size(), false) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) index_node(i);
    for (const auto& [name, value] : graph.outputs) consumers_[static_cast<size_t>(value)] = -1;
  }

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (!removed_[i] && node(i).row->epilogue && !node(i).has_residual) fuse_epilogue(i);
    for (size_t i = 0; i < graph_.nodes.size() && fusions_.has(Fusion::elementwise); ++i)
      if (!removed_[i]) fuse_operands(i);
    size_t next = 0;
    std::erase_if(graph_.nodes, [&](const ProgramNode&) { return removed_[next++]; });
  }

 private:
  ProgramNode& node(size_t i) { return graph_.nodes[i]; }
  const GraphValue& value(ValueId id) const { return graph_.value(id); }

  void index_node(size_t i) {
    for (const ValueId id : node(i).outputs)
      if (id != kAbsent) producers_[static_cast<size_t>(id)] = static_cast<int32_t>(i);
    for (const ValueId id : node(i).inputs)
      if (id != kAbsent) consumers_[static_cast<size_t>(id)] = static_cast<int32_t>(i);
  }

  // Returns the index of the only node that reads the value; -1 if there is none or several.
  int32_t find_only_consumer(ValueId id) const { return uses_[static_cast<size_t>(id)] == 1 ? consumers_[static_cast<size_t>(id)] : -1; }

  // Returns the element of a constant with one element; nullopt for other values.
  std::optional<double> get_scalar_constant(ValueId id) const {
    const auto& constant = value(id).constant;
    if (!constant || constant->desc.elements() != 1) return {};
    return constant->as_double()[0];
  }

  // Returns the expression of a QuantizeLinear or DequantizeLinear with one constant scale. Integers saturate when stored.
  std::optional<ElementwiseExpr> make_quantization_expr(const ProgramNode& map) const {
    const ValueId x = map.inputs[0], zero = map.inputs.size() > 2 ? map.inputs[2] : kAbsent;
    const auto scale = get_scalar_constant(map.inputs[1]), from = zero == kAbsent ? 0 : get_scalar_constant(zero);
    if (map.on_host || map.outputs.size() != 1 || !scale || !from || map.attributes.integer("block_size", 0) != 0) return {};
    if (is_low_bit(value(x).dtype) || is_low_bit(value(map.outputs[0]).dtype)) return {};
    const Replacements parameters{{"s", Expression::literal(*scale)}, {"zero", Expression::literal(*from)}};
    return ElementwiseExpr{Expression::parse(map.row->scaled_expression).substitute(parameters), {x}, {"x"}, true};
  }

  std::optional<ElementwiseExpr> make_elementwise_expr(const ProgramNode& map) const {
    if (!map.row->scaled_expression.empty() && !map.expression) return make_quantization_expr(map);
    const OperatorRow& row = *map.row;
    const bool casts = row.casts;
    if (casts && (is_low_bit(value(map.inputs[0]).dtype) || is_low_bit(value(map.outputs[0]).dtype))) return {};
    if (map.on_host || row.skeleton != KernelKind::map || map.outputs.size() != 1 || (!map.expression && !casts && row.expression.empty()))
      return {};
    std::vector<bool> present;
    ElementwiseExpr expr{Expression::literal(0), {}, {}, scaled_nodes_.contains(&map)};
    const size_t count = casts ? 1 : map.inputs.size();  // CastLike uses only the dtype of its second operand
    const auto names = get_elementwise_input_names(row, count);
    for (size_t i = 0; i < count; ++i) {
      present.push_back(map.inputs[i] != kAbsent);
      if (!present[i]) continue;
      expr.operands.push_back(map.inputs[i]);
      expr.names.push_back(names[i]);
    }
    expr.expression = map.expression ? *map.expression
                      : casts        ? Expression::name(names[0])
                                     : make_elementwise_expression(row, map.attributes, present);
    return expr;
  }

  // Returns the literal for a constant with one element whose rank does not exceed `rank`, so that broadcasting does not change the shape.
  std::optional<Expression> make_literal(ValueId id, size_t rank) const {
    const auto& constant = value(id).constant;
    if (!constant || constant->desc.elements() != 1 || constant->desc.shape.size() > rank || !computes_in_stored_type(constant->desc.dtype))
      return {};
    if (is_float(constant->desc.dtype)) return Expression::literal(constant->as_double()[0]);
    const int64_t integer = constant->as_int64()[0];
    if (constant->desc.dtype == DType::bool_) return Expression::parse(integer != 0 ? "true" : "false");
    if (integer > kLargestExact || integer < -kLargestExact) return {};
    return Expression::literal(static_cast<double>(integer));
  }

  size_t rank_of(ValueId id) const { return value(id).shape ? value(id).shape->size() : 0; }

  static bool has_doubles(const std::map<std::string, ExprType>& types) {
    return std::ranges::any_of(types, [](const auto& entry) { return entry.second == ExprType::f64; });
  }

  // Returns the GLSL text and type of an expression that occurs `copies` times in a kernel; nullopt if it is ill-typed or too expensive to
  // compile.
  static std::optional<std::string> to_glsl(const Expression& expression, const std::map<std::string, ExprType>& types, uint64_t copies,
                                            ExprType& type) {
    if (!FusionBudget::allows_expression(expression, has_doubles(types), copies)) return {};
    try {
      return expression.to_glsl(types, &type);
    } catch (const Error&) {
      return {};
    }
  }

  // Returns the expression of the consumer applied to `chain`, which uses "x" and "residual"; nullopt if it has other varying operands.
  std::optional<Expression> append_consumer(const ElementwiseExpr& expr, ValueId varying, ValueId residual, const Expression& chain,
                                            bool& scaled) const {
    Replacements replacements;
    for (size_t k = 0; k < expr.operands.size(); ++k) {
      if (expr.operands[k] == varying || expr.operands[k] == residual) {
        replacements.emplace(expr.names[k], expr.operands[k] == varying ? chain : Expression::name("residual"));
        continue;
      }
      auto literal = make_literal(expr.operands[k], rank_of(varying));
      if (!literal) return {};
      scaled = true;
      replacements.emplace(expr.names[k], std::move(*literal));
    }
    return expr.expression.substitute(replacements);
  }

  // Whether the epilogue of the producer can read a residual: its weights are constant, its operator allows it, and the kernel may have
  // buffers for its inputs, the residual and the result.
  bool accepts_residual(const ProgramNode& producer) const {
    if (!fusions_.has(Fusion::residual) || !producer.row->residual) return false;
    const auto inputs = static_cast<uint64_t>(std::ranges::count_if(producer.inputs, [](ValueId id) { return id != kAbsent; }));
    if (inputs + 2 > max_buffers_) return false;
    const auto& weights = value(producer.inputs[1]).constant;
    return weights && producer.row->residual(producer.attributes, weights->desc);
  }

  // Skips a cast to float32 that a pass added, for kernels that read both float widths: returns the operand of the cast, or `id` if there
  // is none.
  ValueId skip_cast(ValueId id) const {
    const int32_t at = producers_[static_cast<size_t>(id)];
    if (at < 0) return id;
    const ProgramNode& cast = graph_.nodes[static_cast<size_t>(at)];
    if (!cast.row->casts || cast.expression || !graph_.report[cast.report].added || value(cast.inputs[0]).constant) return id;
    const bool widens = value(cast.inputs[0]).dtype == graph_.float_dtype && value(id).dtype == DType::float32;
    return widens ? cast.inputs[0] : id;
  }

  // Returns the value that the kernel of a node reads as the residual `id`.
  ValueId get_residual_source(const ProgramNode& node, ValueId id) const {
    return node.row->precision.stores_fp32_or_half ? skip_cast(id) : id;
  }

  bool is_defined_after(size_t at, ValueId id) const { return producers_[static_cast<size_t>(id)] > static_cast<int32_t>(at); }

  // Whether the producer of a value can absorb its only reader: it is elementwise, or a matmul that reads the other operand as residual.
  bool can_absorb_reader(ValueId id) const {
    const ProgramNode& producer_node = graph_.nodes[static_cast<size_t>(producers_[static_cast<size_t>(id)])];
    return find_only_consumer(id) >= 0 && (accepts_residual(producer_node) || make_elementwise_expr(producer_node));
  }

  // Returns the first operand other than `result` with the same shape, if known; else kAbsent. If it is computed after the producer, the
  // producer can be moved, since only the elementwise node reads its result.
  ValueId find_residual(size_t at, const ElementwiseExpr& expr, ValueId result) const {
    if (!accepts_residual(graph_.nodes[at])) return kAbsent;
    const bool accepts_either_width = graph_.nodes[at].row->precision.stores_fp32_or_half;
    const auto fits = [&](ValueId id) {
      const ValueId read = get_residual_source(graph_.nodes[at], id);
      const GraphValue& other = value(read);
      const DType dtype = other.constant ? graph_.stored_dtype(other) : other.dtype;
      // The fusion skips this cast, so the cast and its producers are not moved.
      const bool is_available = !is_defined_after(at, read) || (read == id && !can_absorb_reader(id));
      return id != result && is_available && (dtype == value(result).dtype || (accepts_either_width && is_operator_float(dtype))) &&
             other.shape && other.shape == value(result).shape && !make_literal(id, rank_of(result));
    };
    const auto found = std::ranges::find_if(expr.operands, fits);
    return found == expr.operands.end() ? kAbsent : *found;
  }

  // Whether all elementwise nodes in the chain after a value fit into an epilogue, because they read no further non-constant tensor. A node
  // that reads one would absorb the chain before it and drop the rounding in between.
  bool ends_in_epilogue(ValueId result) const {
    for (int32_t next = find_only_consumer(result); next >= 0; next = find_only_consumer(result)) {
      const ProgramNode& reader = graph_.nodes[static_cast<size_t>(next)];
      const auto expr = make_elementwise_expr(reader);
      if (!expr || !value(result).shape || value(result).shape != value(reader.outputs[0]).shape) return true;
      bool scaled = false;
      if (!append_consumer(*expr, result, kAbsent, Expression::name("x"), scaled)) return false;
      result = reader.outputs[0];
    }
    return true;
  }

  // Whether the node is a Cast that a pass added and whose only reader is elementwise; elementwise kernels read both float widths.
  bool feeds_elementwise_node(const ProgramNode& node) const {
    if (!node.row->casts || !graph_.report[node.report].added) return false;
    const int32_t next = find_only_consumer(node.outputs[0]);
    return next >= 0 && make_elementwise_expr(graph_.nodes[static_cast<size_t>(next)]).has_value();
  }

  // Whether the kernel of the producer can store the result of the consumer. `dtype`: float dtype of the producer. A Cast from 16 bits in
  // the model requests rounding, which an epilogue would skip.
  bool supports_storage(const ProgramNode& producer, const ProgramNode& consumer, DType dtype) const {
    const DType consumer_dtype = value(consumer.outputs[0]).dtype;
    if (consumer_dtype == dtype) return true;
    if (!producer.row->precision.stores_fp32_or_half || !is_operator_float(consumer_dtype)) return false;
    if (dtype != DType::float32) return consumer_dtype == DType::float32 && (!consumer.row->casts || feeds_elementwise_node(consumer));
    return consumer_dtype == graph_.float_dtype && ends_in_epilogue(consumer.outputs[0]);
  }

  // Moves a node to a removed slot later in the graph, and returns its new index.
  size_t move_node(size_t from, size_t to) {
    if (const auto kernel = kernels_.extract(&node(from))) kernels_[&node(to)] = kernel.mapped();
    node(to) = std::move(node(from));
    removed_[from] = true, removed_[to] = false;
    return to;
  }

  void add_residual_input(ProgramNode& producer, ValueId residual) {
    producer.inputs.resize(std::max(producer.inputs.size(), kResidualInput + 1), kAbsent);
    const ValueId read = get_residual_source(producer, residual);
    producer.inputs[kResidualInput] = read;
    if (read != residual) ++uses_[to_index(read)];  // prevents the cast from absorbing its producer
    producer.has_residual = true;
  }

  void fuse_epilogue(size_t at) {
    if (node(at).on_host || node(at).outputs.size() != 1) return;
    Expression chain = Expression::name("x");
    ValueId residual = kAbsent;
    for (bool scaled = false;;) {
      ProgramNode& producer = node(at);
      const ValueId result = producer.outputs[0];
      const DType dtype = value(result).dtype;
      const int32_t next = find_only_consumer(result);
      if (next < 0 || !is_operator_float(dtype)) return;
      const auto expr = make_elementwise_expr(node(static_cast<size_t>(next)));
      // The node may be a CastLike that reads only this value's dtype, not its elements.
      if (!expr || std::ranges::find(expr->operands, result) == expr->operands.end()) return;
      if (!supports_storage(producer, node(static_cast<size_t>(next)), dtype)) return;
      const ValueId residual_candidate = residual == kAbsent ? find_residual(at, *expr, result) : residual;
      const bool reads_it = std::ranges::find(expr->operands, residual_candidate) != expr->operands.end();
      const Fusion fusion = reads_it ? Fusion::residual : Fusion::epilogue;
      const auto longer = fusions_.has(fusion) ? append_consumer(*expr, result, residual_candidate, chain, scaled) : std::nullopt;
      ExprType type = ExprType::boolean;
      const auto text =
          longer ? to_glsl(*longer, {{"x", ExprType::f32}, {"residual", ExprType::f32}}, kEpilogueCopies, type) : std::nullopt;
      if (!text || type != ExprType::f32 || (scaled && !add_scaled_epilogue(*text))) return;
      FusedKernel kernel{std::string(producer.row->name) + '\n' + *text, longer->estimate_compile_cost() * kEpilogueCopies};
      if (!budget_.replace(find_fused_kernel(producer), kernel)) return;
      kernels_[&producer] = std::move(kernel);
      chain = *longer, producer.epilogue = *text;
      const ProgramNode& consumer_node = node(static_cast<size_t>(next));
      producer.exact_epilogue |= consumer_node.fp32 || has_exact_functions(consumer_node.attributes);
      if (reads_it && residual == kAbsent) {
        residual = residual_candidate;
        add_residual_input(producer, residual);
      }
      if (producer.has_residual) producer.expression = chain;
      mark_fused(static_cast<size_t>(next), producer, fusion);
      producer.outputs[0] = node(static_cast<size_t>(next)).outputs[0];
      if (residual != kAbsent && is_defined_after(at, get_residual_source(producer, residual)))
        at = move_node(at, static_cast<size_t>(next));
      index_node(at);
    }
  }

  FusedKernel find_fused_kernel(const ProgramNode& node) const {
    const auto found = kernels_.find(&node);
    return found == kernels_.end() ? FusedKernel{} : found->second;
  }

  bool add_scaled_epilogue(const std::string& text) {
    if (scaled_epilogues_.contains(text)) return true;
    if (scaled_epilogues_.size() >= kMaxScaledEpilogues) return false;
    scaled_epilogues_.insert(text);
    return true;
  }

  void mark_fused(size_t i, const ProgramNode& into, Fusion fusion) {
    removed_[i] = true;
    graph_.mark_fused(node(i).report, into.report, fusion);
  }

  std::map<std::string, ExprType> get_operand_types(const ElementwiseExpr& expr) const {
    std::map<std::string, ExprType> types;
    for (size_t k = 0; k < expr.operands.size(); ++k) types[expr.names[k]] = to_expr_type(value(expr.operands[k]).dtype);
    return types;
  }

  // Converts the value of an expression to the type of its stored dtype.
  static Expression convert_to_stored(const Expression& expression, ExprType type, DType dtype) {
    const ExprType target_type = to_expr_type(dtype);
    if (type == target_type) return expression;
    constexpr std::string_view casts[] = {"x != 0", "i32(x)", "u32(x)", "i64(x)", "u64(x)", "f32(x)", "f64(x)"};
    return Expression::parse(casts[static_cast<size_t>(target_type)]).substitute({{"x", expression}});
  }

  // Returns the index of the producer of an operand if it can be fused: it has the same shape and no other reader.
  std::optional<size_t> find_fusable_producer(ValueId operand, const ProgramNode& map) const {
    const int32_t producer = producers_[static_cast<size_t>(operand)];
    if (producer < 0 || removed_[static_cast<size_t>(producer)] || find_only_consumer(operand) < 0) return {};
    const GraphValue &inner = value(operand), &outer = value(map.outputs[0]);
    if (is_16bit_float(inner.dtype) && graph_.float_dtype != inner.dtype) return {};  // the cast requests rounding
    if (!inner.shape || inner.shape != outer.shape) return {};
    return static_cast<size_t>(producer);
  }

  // A fused elementwise node under construction: its operands are named in0, in1, ... in order of use.
  struct FusedElementwise {
    std::vector<ValueId> operands;

    Expression name_operand(ValueId id) {
      const auto found = std::find(operands.begin(), operands.end(), id);
      const auto at = static_cast<size_t>(found - operands.begin());
      if (found == operands.end()) operands.push_back(id);
      return Expression::name("in" + std::to_string(at));
    }
    Expression rename_operands(const ElementwiseExpr& expr) {
      Replacements replacements;
      for (size_t k = 0; k < expr.operands.size(); ++k) replacements.emplace(expr.names[k], name_operand(expr.operands[k]));
      return expr.expression.substitute(replacements);
    }
  };

  // Adds the fused kernel, which replaces the kernels of both nodes, to the budget. Returns false if it exceeds the budget.
  bool add_fused_elementwise(const ProgramNode& map, const ProgramNode& producer, const Expression& fused,
                             const std::map<std::string, ExprType>& types, const std::string& text) {
    const DType stored = value(map.outputs[0]).dtype;
    FusedKernel kernel{text, 0};
    for (const auto& [name, operand_type] : types) kernel.key += '\n' + std::to_string(static_cast<int>(operand_type));
    kernel.key += '\n' + std::string(pumice::name(stored));
    kernel.weight = fused.estimate_compile_cost(has_doubles(types)) * count_elementwise_copies(stored);
    const FusedKernel inner = find_fused_kernel(producer);
    budget_.remove(inner);
    if (!budget_.replace(find_fused_kernel(map), kernel)) {
      budget_.replace({}, inner);
      return false;
    }
    kernels_.erase(&producer);
    kernels_[&map] = std::move(kernel);
    return true;
  }

  // Replaces an operand of an elementwise node by the expression of its producer.
  bool fuse_operand(ProgramNode& map, const ElementwiseExpr& expr, size_t position) {
    const ValueId operand = expr.operands[position];
    const auto producer = find_fusable_producer(operand, map);
    const auto inner = producer && computes_in_stored_type(value(operand).dtype) ? make_elementwise_expr(node(*producer)) : std::nullopt;
    if (!inner) return false;
    ExprType type = ExprType::f32;
    const DType stored = value(map.outputs[0]).dtype;
    if (!to_glsl(inner->expression, get_operand_types(*inner), count_elementwise_copies(stored), type)) return false;
    FusedElementwise merged;
    Replacements replacements;
    for (size_t k = 0; k < expr.operands.size(); ++k)
      replacements.emplace(expr.names[k], k == position ? convert_to_stored(merged.rename_operands(*inner), type, value(operand).dtype)
                                                        : merged.name_operand(expr.operands[k]));
    if (merged.operands.empty() || merged.operands.size() > std::min<uint64_t>(kMaxCustomInputs, max_buffers_ - 1)) return false;
    const bool scaled = expr.scaled || inner->scaled;
    const size_t others = scaled_nodes_.size() - scaled_nodes_.count(&map) - scaled_nodes_.count(&node(*producer));
    if (scaled && others >= kMaxScaledKernels) return false;
    ElementwiseExpr fused{expr.expression.substitute(replacements), merged.operands, {}};
    for (size_t k = 0; k < fused.operands.size(); ++k) fused.names.push_back("in" + std::to_string(k));
    const auto types = get_operand_types(fused);
    const auto text = to_glsl(fused.expression, types, count_elementwise_copies(stored), type);
    if (!text || !add_fused_elementwise(map, node(*producer), fused.expression, types, *text)) return false;
    const auto dtype = static_cast<int64_t>(stored);
    const ProgramNode& producer_node = node(*producer);
    const bool has_exact = producer_node.fp32 || has_exact_functions(map.attributes) || has_exact_functions(producer_node.attributes);
    map.row = &get_custom_elementwise_row(fused.operands.size());
    map.inputs = fused.operands;
    map.attributes = {};
    map.attributes.set(std::string(kOutputDtype), dtype);
    if (has_exact) map.attributes.set(std::string(kExactFunctions), int64_t{1});
    map.expression = std::move(fused.expression);
    scaled_nodes_.erase(&node(*producer));
    if (scaled) scaled_nodes_.insert(&map);
    mark_fused(*producer, map, Fusion::elementwise);
    return true;
  }

  void fuse_operands(size_t at) {
    for (bool changed = true; changed;) {
      changed = false;
      const auto expr = make_elementwise_expr(node(at));
      for (size_t k = 0; expr && k < expr->operands.size() && !changed; ++k) changed = fuse_operand(node(at), *expr, k);
    }
    index_node(at);
  }

  ProgramGraph& graph_;
  const FusionSet& fusions_;
  uint64_t max_buffers_;  // of a kernel: operands and result
  std::vector<uint32_t> uses_;
  std::vector<int32_t> producers_;  // index of the producer of each value; -1: none
  std::vector<int32_t> consumers_;  // index of a reader of each value; -1: none, or a program output
  std::vector<bool> removed_;
  std::set<std::string> scaled_epilogues_;
  std::set<const ProgramNode*> scaled_nodes_;
  FusionBudget budget_;
  std::map<const ProgramNode*, FusedKernel> kernels_;
};

}  // namespace

void fuse_elementwise(ProgramGraph& graph, const FusionSet& fusions, uint64_t max_buffers) {
  ElementwiseFusion(graph, fusions, max_buffers).run();
}

}  // namespace pumice
