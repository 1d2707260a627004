#include "graph_nodes.h"

#include "core/error.h"
#include "graph/description/graph_path.h"
#include "graph/nnapi/compound_operations.h"
#include "graph/nnapi/operations.h"

namespace pumice {
namespace {

// Converts a number or list of numbers to NNAPI's operand type: int32, bool or float32.
HostTensor parse_nnapi_numbers(const py::handle& value, const std::string& user) {
  const py::array array = py::module_::import("numpy").attr("asarray")(value);
  const char kind = array.dtype().kind();
  if (kind != 'i' && kind != 'f' && kind != 'b' && array.size() != 0)
    throw GraphError(user, "expected numbers; given " + get_type_name(value));
  if (kind == 'b' || py::hasattr(value, "dtype")) return make_host_tensor(array, "constant");
  const py::array converted = array.attr("astype")(kind == 'i' || array.size() == 0 ? "int32" : "float32");
  if (kind == 'i' && !converted.attr("__eq__")(array).attr("all")().cast<bool>())
    throw GraphError(user, "expected integers that fit in int32; given " + py::repr(value).cast<std::string>());
  return make_host_tensor(converted, "constant");
}

Values make_value_tuple(const std::shared_ptr<Graph>& self, const std::vector<ValueId>& ids) {
  Values values(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) values[i] = PyValue{self, ids[i]};
  return values;
}

// Returns a Value for one output, a tuple for several.
py::object unwrap_single(const std::shared_ptr<Graph>& self, const std::vector<ValueId>& results) {
  if (results.size() == 1) return py::cast(PyValue{self, results[0]});
  return make_value_tuple(self, results);
}

py::object add_operator_node(const std::shared_ptr<Graph>& self, const std::string& op, const py::args& inputs, const Integer& num_outputs,
                             NodeNames names, const py::kwargs& attributes) {
  const std::string& name = names.node;
  if (op == "nnapi::IF" || op == "nnapi::WHILE") {
    if (!attributes.empty()) throw GraphError(name.empty() ? op : name, "expected no keywords other than name, outputs and output_names");
    const size_t count = parse_output_count(num_outputs, name.empty() ? op : name);
    return unwrap_single(self, add_nnapi_control_flow(self, op, inputs, count, name, std::move(names.outputs)));
  }
  std::vector<ValueId> ids;
  const size_t outputs = parse_output_count(num_outputs, name.empty() ? op : name);
  const nnapi::Operation* operation = nnapi::find_operation(op);
  for (const auto& input : inputs) ids.push_back(get_value_id(self, input, name.empty() ? op : name, operation != nullptr));
  const Attributes parsed_attributes = parse_attributes(attributes);
  const auto results =
      operation
          ? self->add(nnapi::get_compound_operation(*operation), std::move(ids), parsed_attributes, outputs, name, std::move(names.outputs))
          : self->add(replace_deprecated_name(op), std::move(ids), parsed_attributes, outputs, name, std::move(names.outputs));
  return unwrap_single(self, results);
}

}  // namespace

ValueId get_value_id(const std::shared_ptr<Graph>& self, const py::handle& value, const std::string& user, bool numbers) {
  if (value.is_none()) return kAbsent;
  if (py::isinstance<PyValue>(value)) {
    const auto& graph_value = value.cast<const PyValue&>();
    if (graph_value.graph != self) throw GraphError(user, "value '" + graph_value.get().name + "' belongs to another graph");
    return graph_value.id;
  }
  if (py::isinstance<Graph>(value)) throw GraphError(user, "a Graph is not a value; run it with if_() or while_()", "B2.7");
  if (py::isinstance<py::array>(value)) return self->constant(make_host_tensor(value.cast<py::array>(), "constant"));
  if (numbers && !py::isinstance<Tensor>(value) &&
      (PyNumber_Check(value.ptr()) != 0 || py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)))
    return self->constant(parse_nnapi_numbers(value, user));
  throw GraphError(user, "expected a Value of this graph, an array or None; given " + get_type_name(value));
}

std::vector<ValueId> get_value_ids(const std::shared_ptr<Graph>& self, const std::vector<py::object>& values, const std::string& user) {
  std::vector<ValueId> ids;
  for (const auto& value : values) ids.push_back(get_value_id(self, value, user));
  return ids;
}

std::shared_ptr<Graph> parse_graph(const py::object& graph, const std::string& role, const std::string& user) {
  if (graph.is_none()) return {};
  if (!py::isinstance<Graph>(graph)) throw GraphError(user, role + ": expected a Graph, given " + get_type_name(graph), "B2.2");
  return graph.cast<std::shared_ptr<Graph>>();
}

Values add_if(const std::shared_ptr<Graph>& self, const py::object& condition, const py::object& then, const py::object& orelse,
              const std::vector<py::object>& inputs, NodeNames names) {
  const std::string user = names.node.empty() ? "If" : names.node;
  const auto first = parse_graph(then, "then", user), second = parse_graph(orelse, "else", user);
  const ValueId condition_id = get_value_id(self, condition, user);
  return make_value_tuple(self,
                          self->if_(condition_id, first, second, get_value_ids(self, inputs, user), names.node, std::move(names.outputs)));
}

Values add_while(const std::shared_ptr<Graph>& self, const py::object& condition, const py::object& body, const LoopArguments& args,
                 NodeNames names) {
  const std::string user = names.node.empty() ? "While" : names.node;
  const auto first = parse_graph(condition, "condition", user), second = parse_graph(body, "body", user);
  LoopValues values{get_value_ids(self, args.carried, user), get_value_ids(self, args.state, user),
                    get_value_ids(self, args.invariant, user)};
  return make_value_tuple(self, self->while_(first, second, std::move(values), names.node, std::move(names.outputs)));
}

// An NNAPI model consists of several graphs, so errors name the graph that an operation was added to, if it has a name.
py::object add_node(const std::shared_ptr<Graph>& self, const std::string& op, const py::args& inputs, const Integer& outputs,
                    NodeNames names, const py::kwargs& attributes) {
  const bool names_graph = op.starts_with("nnapi::") && !self->name().empty();
  const auto get_location = [&] { return names_graph ? "in '" + self->name() + "'" : std::string(); };
  return with_error_path(get_location, [&] { return add_operator_node(self, op, inputs, outputs, std::move(names), attributes); });
}

}  // namespace pumice
