#include "graph/passes/index_checks.h"

#include "core/error.h"
#include "graph/description/shape_inference.h"
#include "operators/compiled/index_check.h"
#include "operators/geometry/index_bounds.h"

namespace pumice {
namespace {

// Whether the indices of a node are known only on the device. Constants, and values that the host computes for shapes, are checked at
// binding.
bool has_unchecked_indices(const ProgramGraph& graph, const ProgramNode& node) {
  if (!node.row->indices || node.host_required || node.only_shape || node.may_fail) return false;
  const size_t input = node.row->indices(node.attributes, {}).input;
  return input < node.inputs.size() && node.inputs[input] != kAbsent && !graph.value(node.inputs[input]).constant;
}

ProgramNode make_check_node(ProgramGraph& graph, const ProgramNode& node) {
  GraphNode check;
  check.name = "indices of '" + node.name + "'";
  check.row = &get_index_check_row();
  check.attributes = node.attributes;
  check.attributes.set(std::string(kCheckedOperator), std::string(node.row->name));
  check.inputs = node.inputs;
  check.outputs = {graph.add_value({check.name, DType::int32, Shape{4}})};
  graph.report.push_back(
      {.node = check.name, .op = std::string(check.row->name), .note = "out of range or not", .added = true, .dtype = DType::int32});
  return {std::move(check), static_cast<uint32_t>(graph.report.size() - 1)};
}

}  // namespace

void add_index_checks(ProgramGraph& graph) {
  std::vector<ProgramNode> nodes;
  for (ProgramNode& node : graph.nodes) {
    if (has_unchecked_indices(graph, node)) {
      nodes.push_back(make_check_node(graph, node));
      graph.outputs.emplace_back(nodes.back().name, nodes.back().outputs[0]);
      ++graph.index_checks;
    }
    nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
}

std::vector<IndexCheck> bind_index_checks(const ProgramGraph& graph, const ShapeInference& shapes) {
  std::vector<IndexCheck> checks;
  for (size_t i = 0; i + 1 < graph.nodes.size(); ++i) {
    if (graph.nodes[i].row != &get_index_check_row()) continue;
    const ProgramNode& node = graph.nodes[i + 1];  // the node after a check is the one it checks
    std::vector<Shape> sizes;
    for (const ValueId input : node.inputs) sizes.push_back(input == kAbsent ? Shape{} : shapes.desc(input)->shape);
    IndexBounds bounds = node.row->indices(node.attributes, sizes);
    const ValueId indices = node.inputs[bounds.input];
    const TensorDesc& desc = *shapes.desc(indices);
    checks.push_back({graph.report[node.report].node, graph.value(indices).name, std::move(bounds), desc.shape, is_float(desc.dtype)});
  }
  return checks;
}

void throw_index_error(const IndexCheck& check, uint64_t count, int64_t position, int64_t index, const std::string& text) {
  throw IndexRangeError("'" + check.node + "': input " + std::to_string(check.bounds.input) + ", '" + check.value + "', has the index " +
                            describe_index_error(check.bounds, check.shape, position, text) + "; " + std::to_string(count) + " of " +
                            std::to_string(element_count(check.shape)) + " are out of range",
                        {check.node, check.value, index, unravel_index(check.shape, position), count});
}

void throw_failed_checks(const std::vector<IndexCheck>& checks, const std::function<const std::byte*(size_t)>& get_output) {
  for (size_t k = 0; k < checks.size(); ++k) {
    const IndexCheckResult found = decode_index_check(get_output(k), checks[k].is_real);
    if (found.count > 0) throw_index_error(checks[k], found.count, found.position, found.index, found.text);
  }
}

}  // namespace pumice
