#include "graph/nnapi/compound_operations.h"

#include <algorithm>
#include <exception>
#include <map>

#include "core/error.h"
#include "graph/description/shape_inference.h"
#include "graph/nnapi/expansion.h"

namespace pumice {
namespace {

// Ranks to try for operands of unknown rank, in this order. Most operations accept one of the first.
constexpr size_t kCandidateRanks[] = {4, 2, 1, 3, 5, 0, 6, 7, 8};

void reject_lowering(LowerContext& node) {
  throw Error("the operation '" + std::string(node.node) + "' has not been expanded");
}

// Infers the outputs for operands of these ranks. kAbsent: omitted operands.
std::vector<DeferredOutput> infer_with_ranks(const Graph& graph, const nnapi::Operation& operation, const std::string& node,
                                             const std::vector<ValueId>& operands, const std::vector<size_t>& ranks,
                                             const Attributes& declared) {
  Graph tried;
  std::vector<ValueId> ids;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] == kAbsent) {
      ids.push_back(kAbsent);
      continue;
    }
    const GraphValue& value = graph.value(operands[i]);
    if (value.constant) {
      ids.push_back(add_quantized_constant(tried, *value.constant, value.quantization));
      continue;
    }
    const Shape shape = value.shape.value_or(Shape(ranks[i], kUnknownSize));
    ids.push_back(tried.input("operand " + std::to_string(i), value.dtype, shape, {}, {.quantization = value.quantization}));
  }
  std::vector<DeferredOutput> outputs;
  for (const nnapi::Output& output : nnapi::Expansion(tried, operation, node, std::move(ids), declared, true).run())
    outputs.push_back({tried.value(output.value).dtype, output.quantization});
  return outputs;
}

// Returns the combinations of ranks to try: the ranks that the operation's rules imply, with the same rank for all others, then with all
// combinations.
std::vector<std::vector<size_t>> list_rank_combinations(const Graph& graph, const nnapi::Operation& operation, const std::string& node,
                                                        const std::vector<ValueId>& operands) {
  nnapi::Operands rules_of_operands(operation, node, nnapi::collect_operand_info(graph, operands));
  if (operation.check) operation.check(rules_of_operands);
  std::vector<size_t> unknown;
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i] != kAbsent && !rules_of_operands.facts()[i].shape) unknown.push_back(i);
  std::vector<size_t> known(operands.size(), 0);
  for (size_t i = 0; i < operands.size(); ++i)
    if (const auto& shape = rules_of_operands.facts()[i].shape) known[i] = shape->size();
  std::vector<std::vector<size_t>> tried;
  for (const size_t rank : kCandidateRanks)
    for (auto& ranks = tried.emplace_back(known); const size_t i : unknown) ranks[i] = rank;
  constexpr size_t kMaxUnknownRanks = 3;  // if more are unknown, the operation is variadic and its inputs have the same rank
  if (unknown.size() < 2 || unknown.size() > kMaxUnknownRanks) return tried;
  std::vector<size_t> at(unknown.size(), 0);
  for (;;) {
    auto& ranks = tried.emplace_back(known);
    for (size_t k = 0; k < unknown.size(); ++k) ranks[unknown[k]] = kCandidateRanks[at[k]];
    size_t k = 0;
    while (k < at.size() && ++at[k] == std::size(kCandidateRanks)) at[k++] = 0;
    if (k == at.size()) return tried;
  }
}

// An NNAPI operation as a compound operation of a graph.
class NnapiOperation : public CompoundOperation {
 public:
  explicit NnapiOperation(const nnapi::Operation& operation) : operation_(operation) {
    row_.name = operation.name;
    row_.skeleton = KernelKind::copy;
    row_.lower = reject_lowering;
    for (size_t i = 0; i < operation.inputs.size(); ++i)
      if (const auto kind = operation.inputs[i].kind; kind == nnapi::OperandKind::list || kind == nnapi::OperandKind::pairs)
        row_.host_inputs |= operation.inputs[i].variadic ? ~0u << i : 1u << i;
  }

  std::string_view name() const override { return operation_.name; }

  std::vector<CompoundOutput> expand(Graph& graph, const std::string& node, const std::vector<ValueId>& operands,
                                     const Attributes& declared) const override {
    return nnapi::Expansion(graph, operation_, node, operands, declared, false).run();
  }

  const OperatorRow& deferred_row() const override { return row_; }

  std::vector<DeferredOutput> infer_deferred_outputs(const Graph& graph, const std::string& node, const std::vector<ValueId>& operands,
                                                     const Attributes& declared) const override {
    std::exception_ptr first;
    for (const auto& ranks : list_rank_combinations(graph, operation_, node, operands)) {
      try {
        return infer_with_ranks(graph, operation_, node, operands, ranks, declared);
      } catch (const Error&) {
        if (!first) first = std::current_exception();
      }
    }
    std::rethrow_exception(first);
  }

  bool infer_deferred_shapes(const Graph& graph, const GraphNode& node, ShapeInference& known) const override {
    Graph expanded;
    std::vector<ValueId> ids;
    for (const ValueId input : node.inputs) {
      if (input == kAbsent) {
        ids.push_back(kAbsent);
        continue;
      }
      const TensorDesc* desc = known.desc(input);
      const HostTensor* host = known.host_elements(input);
      const Quantization& quantization = graph.value(input).quantization;
      if (!desc) return false;
      if (host)
        ids.push_back(add_quantized_constant(expanded, *host, quantization));
      else
        ids.push_back(
            expanded.input("operand " + std::to_string(ids.size()), desc->dtype, desc->shape, {}, {.quantization = quantization}));
    }
    const auto outputs = expanded.add(*this, std::move(ids), node.attributes, node.outputs.size(), node.name);
    bool all = true;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const GraphValue& value = expanded.value(outputs[i]);
      if (value.is_known())
        known.set(node.outputs[i], TensorDesc(value.dtype, *value.shape));
      else
        all = false;
    }
    return all;
  }

 private:
  const nnapi::Operation& operation_;
  OperatorRow row_;
};

std::map<std::string_view, NnapiOperation> make_compound_operations() {
  std::map<std::string_view, NnapiOperation> all;
  for (const nnapi::Operation& operation : nnapi::get_operations()) all.try_emplace(operation.name, operation);
  return all;
}

}  // namespace

namespace nnapi {

const CompoundOperation& get_compound_operation(const Operation& operation) {
  static const std::map<std::string_view, NnapiOperation> all = make_compound_operations();
  return all.at(operation.name);
}

}  // namespace nnapi
}  // namespace pumice
