// NNAPI's IF and WHILE, with NNAPI's operand order.
#include "core/error.h"
#include "graph_nodes.h"

namespace pumice {
namespace {

// Parses the operands of IF or WHILE that follow the graphs, starting at index `first`.
std::vector<ValueId> parse_control_flow_operands(const std::shared_ptr<Graph>& self, const py::args& operands, size_t first,
                                                 std::string_view leading, const std::string& user) {
  if (operands.size() < first)
    throw GraphError(user, "expected " + std::string(leading) + " and inputs; given " + std::to_string(operands.size()) + " operands",
                     "G1");
  std::vector<ValueId> ids;
  for (size_t i = first; i < operands.size(); ++i) ids.push_back(get_value_id(self, operands[i], user, true));
  return ids;
}

std::vector<ValueId> add_nnapi_if(const std::shared_ptr<Graph>& self, const py::args& operands, size_t outputs, const std::string& name,
                                  std::vector<std::string> output_names) {
  const std::string user = name.empty() ? "nnapi::IF" : name;
  auto inputs = parse_control_flow_operands(self, operands, 3, "a condition, two graphs", user);
  const auto then = parse_graph(operands[1], "then", user), orelse = parse_graph(operands[2], "else", user);
  if (then && outputs != 1 && outputs != then->outputs().size())
    throw GraphError(user,
                     "the graph 'then' has " + std::to_string(then->outputs().size()) + " outputs; requested " + std::to_string(outputs));
  return self->if_(get_value_id(self, operands[0], user), then, orelse, std::move(inputs), name, std::move(output_names));
}

// The first `outputs` operands are carried values; the body's remaining outputs are state.
std::vector<ValueId> add_nnapi_while(const std::shared_ptr<Graph>& self, const py::args& operands, size_t outputs, const std::string& name,
                                     std::vector<std::string> output_names) {
  const std::string user = name.empty() ? "nnapi::WHILE" : name;
  const auto inputs = parse_control_flow_operands(self, operands, 2, "two graphs", user);
  const auto condition = parse_graph(operands[0], "condition", user), body = parse_graph(operands[1], "body", user);
  const size_t num_results = body ? body->outputs().size() : outputs;
  if (num_results < outputs || inputs.size() < num_results)
    throw GraphError(user,
                     "expected a body with an output for each of " + std::to_string(outputs) +
                         " results, and an input for each of them; the body has " + std::to_string(num_results) + " outputs, given " +
                         std::to_string(inputs.size()) + " inputs",
                     "B2.5");
  const auto at = [&](size_t i) { return inputs.begin() + static_cast<std::ptrdiff_t>(i); };
  return self->while_(condition, body, {{at(0), at(outputs)}, {at(outputs), at(num_results)}, {at(num_results), inputs.end()}}, name,
                      std::move(output_names));
}

}  // namespace

std::vector<ValueId> add_nnapi_control_flow(const std::shared_ptr<Graph>& self, const std::string& op, const py::args& operands,
                                            size_t outputs, const std::string& name, std::vector<std::string> output_names) {
  const auto add = op == "nnapi::IF" ? add_nnapi_if : add_nnapi_while;
  return add(self, operands, outputs, name, std::move(output_names));
}

}  // namespace pumice
