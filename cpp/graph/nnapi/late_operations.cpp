#include "graph/nnapi/late_operations.h"

#include <algorithm>
#include <exception>
#include <map>

#include "core/error.h"

namespace pumice {
namespace {

// In the order in which they are tried for operands of unknown rank: most operations take one of the first.
constexpr size_t kRanks[] = {4, 2, 1, 3, 5, 0, 6, 7, 8};

void refuse_lowering(LowerContext& node) {
  throw Error("the operation '" + std::string(node.node) + "' has not been expanded");
}

std::map<std::string_view, OperatorRow> make_late_rows() {
  std::map<std::string_view, OperatorRow> rows;
  for (const nnapi::Operation& operation : nnapi::operations()) {
    OperatorRow& row = rows[operation.name];
    row.name = operation.name;
    row.skeleton = Skeleton::copy;
    row.lower = refuse_lowering;
    for (size_t i = 0; i < operation.inputs.size(); ++i)
      if (const auto kind = operation.inputs[i].kind; kind == nnapi::OperandKind::list || kind == nnapi::OperandKind::pairs)
        row.host_inputs |= 1u << i;
  }
  return rows;
}

ValueId copied_constant(Graph& graph, HostTensor tensor, const Quantization& quantization) {
  if (!quantization.scale.empty()) tensor.desc.quantized(quantization);
  return graph.constant(std::move(tensor));
}

// The outputs with operands of these ranks; kAbsent stands for one that is left out.
std::vector<LateOutput> outputs_of_ranks(const Graph& graph, const nnapi::Operation& operation, const std::string& node,
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
      ids.push_back(copied_constant(tried, *value.constant, value.quantization));
      continue;
    }
    const Shape shape = value.shape.value_or(Shape(ranks[i], kUnknownSize));
    ids.push_back(tried.input("operand " + std::to_string(i), value.dtype, shape, {}, false, value.quantization));
  }
  std::vector<LateOutput> outputs;
  for (const nnapi::Output& made : nnapi::expand(tried, operation, node, std::move(ids), declared, true))
    outputs.push_back({tried.value(made.value).dtype, made.quantization});
  return outputs;
}

// Which ranks the operands of unknown rank may have: one for all of them first, then each its own.
std::vector<std::vector<size_t>> tried_ranks(const Graph& graph, const std::vector<ValueId>& operands) {
  std::vector<size_t> open;
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i] != kAbsent && !graph.value(operands[i]).shape) open.push_back(i);
  std::vector<std::vector<size_t>> tried;
  for (const size_t rank : kRanks) tried.emplace_back(operands.size(), rank);
  constexpr size_t kMostOpen = 3;  // more are the parts of a whole, of one rank
  if (open.size() < 2 || open.size() > kMostOpen) return tried;
  std::vector<size_t> at(open.size(), 0);
  for (;;) {
    auto& ranks = tried.emplace_back(operands.size(), 0);
    for (size_t k = 0; k < open.size(); ++k) ranks[open[k]] = kRanks[at[k]];
    size_t k = 0;
    while (k < at.size() && ++at[k] == std::size(kRanks)) at[k++] = 0;
    if (k == at.size()) return tried;
  }
}

}  // namespace

const OperatorRow& late_row(const nnapi::Operation& operation) {
  static const std::map<std::string_view, OperatorRow> rows = make_late_rows();
  return rows.at(operation.name);
}

bool is_late(const GraphNode& node) {
  return node.row && node.row->lower == refuse_lowering;
}

bool has_late(const Graph& graph, const GraphPart& part) {
  return std::ranges::any_of(part.nodes, [&](size_t i) { return is_late(graph.nodes()[i]); });
}

void refuse_late(const GraphNode& node) {
  throw UnsupportedError("node '" + node.name + "': " + std::string(node.op()) +
                         " on a rank or size that depends on what the device computes");
}

std::vector<LateOutput> late_outputs(const Graph& graph, const nnapi::Operation& operation, const std::string& node,
                                     const std::vector<ValueId>& operands, const Attributes& declared) {
  std::exception_ptr first;
  for (const auto& ranks : tried_ranks(graph, operands)) {
    try {
      return outputs_of_ranks(graph, operation, node, operands, ranks, declared);
    } catch (const Error&) {
      if (!first) first = std::current_exception();
    }
  }
  std::rethrow_exception(first);
}

bool infer_late(const Graph& graph, const GraphNode& node, ShapeInference& known) {
  Graph made;
  std::vector<ValueId> ids;
  for (const ValueId input : node.inputs) {
    if (input == kAbsent) {
      ids.push_back(kAbsent);
      continue;
    }
    const TensorDesc* desc = known.desc(input);
    const HostTensor* host = known.host(input);
    const Quantization& quantization = graph.value(input).quantization;
    if (!desc) return false;
    if (host)
      ids.push_back(copied_constant(made, *host, quantization));
    else
      ids.push_back(made.input("operand " + std::to_string(ids.size()), desc->dtype, desc->shape, {}, false, quantization));
  }
  const auto outputs = made.add(node.op(), std::move(ids), node.attributes, node.outputs.size(), node.name);
  bool all = true;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const GraphValue& value = made.value(outputs[i]);
    if (value.is_known())
      known.set(node.outputs[i], TensorDesc(value.dtype, *value.shape));
    else
      all = false;
  }
  return all;
}

std::shared_ptr<Graph> expanded(const ProgramGraph& graph, const std::vector<std::optional<Shape>>& shapes,
                                const std::vector<std::optional<HostTensor>>& values) {
  auto made = std::make_shared<Graph>(graph.name);
  std::vector<ValueId> own(graph.values.size(), kAbsent);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const GraphValue& value = graph.value(graph.inputs[i]);
    ValueId& id = own[static_cast<size_t>(graph.inputs[i])];
    id = made->input(value.name, value.dtype, shapes[i], value.dimension_names, value.owned, value.quantization);
  }
  // Before constants get names that they have.
  for (size_t i = 0; i < graph.values.size(); ++i)
    if (graph.values[i].constant) own[i] = made->constant(*graph.values[i].constant, graph.values[i].name);
  for (size_t i = 0; i < graph.inputs.size() && i < values.size(); ++i) {
    const ValueId input = graph.inputs[i];
    if (values[i]) own[static_cast<size_t>(input)] = copied_constant(*made, *values[i], graph.value(input).quantization);
  }
  const auto taken = [&](ValueId id) { return id == kAbsent ? kAbsent : own[static_cast<size_t>(id)]; };
  for (const ProgramNode& node : graph.nodes) {
    std::vector<ValueId> inputs;
    std::vector<std::string> names;
    for (const ValueId input : node.inputs) inputs.push_back(taken(input));
    for (const ValueId output : node.outputs) names.push_back(graph.value(output).name);
    const auto outputs = made->repeat(node, std::move(inputs), std::move(names));
    for (size_t j = 0; j < outputs.size(); ++j) own[static_cast<size_t>(node.outputs[j])] = outputs[j];
  }
  for (const auto& [name, value] : graph.outputs) made->output(name, taken(value));
  made->finish();
  return made;
}

}  // namespace pumice
