#include "graph/description/graph.h"

#include "bindings.h"
#include "core/error.h"
#include "core/files/onnx_skeleton.h"
#include "core/mapped_file.h"
#include "graph/binding/weight_upload.h"
#include "graph/description/declared_output.h"
#include "graph/description/graph_path.h"
#include "graph/description/graph_rules.h"
#include "graph/description/shape_sources.h"
#include "graph/nnapi/compounds.h"
#include "graph/nnapi/operations.h"
#include "graph/program/graph_operator.h"
#include "graph/program/program.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {
namespace {

// A value of a graph, as Python holds it: it keeps its graph alive.
struct PyValue {
  std::shared_ptr<Graph> graph;
  ValueId id;

  const GraphValue& get() const { return graph->values()[static_cast<size_t>(id)]; }
};

// A node of a graph, to be looked at.
struct PyNode {
  std::shared_ptr<Graph> graph;
  size_t index;

  const GraphNode& get() const { return graph->nodes()[index]; }
};

std::optional<Shape> shape_argument(const std::optional<std::vector<std::optional<Integer>>>& sizes) {
  if (!sizes) return {};
  Shape shape;
  for (const auto& size : *sizes) {
    const int64_t known = size ? sizes_argument({*size}, "shape")[0] : 0;
    if (known < kUnknownSize) throw GraphError("shape", "a size from 0 on, or None, expected; given " + size->text(), "R8");
    shape.push_back(known > 0 ? known : kUnknownSize);
  }
  return shape;
}

// A number, or a list of numbers, as the operand that NNAPI has of them: int32, bool or float32.
HostTensor numbers_argument(const py::handle& given, const std::string& user) {
  const py::array array = py::module_::import("numpy").attr("asarray")(given);
  const char kind = array.dtype().kind();
  if (kind != 'i' && kind != 'f' && kind != 'b' && array.size() != 0) throw GraphError(user, "numbers expected; given " + type_name(given));
  if (kind == 'b' || py::hasattr(given, "dtype")) return host_tensor(array, "constant");
  const py::array narrow = array.attr("astype")(kind == 'i' || array.size() == 0 ? "int32" : "float32");
  if (kind == 'i' && !narrow.attr("__eq__")(array).attr("all")().cast<bool>())
    throw GraphError(user, "integers of int32 expected; given " + py::repr(given).cast<std::string>());
  return host_tensor(narrow, "constant");
}

ValueId value_argument(const std::shared_ptr<Graph>& self, const py::handle& value, const std::string& user, bool numbers = false) {
  if (value.is_none()) return kAbsent;
  if (py::isinstance<PyValue>(value)) {
    const auto& given = value.cast<const PyValue&>();
    if (given.graph != self) throw GraphError(user, "value '" + given.get().name + "' belongs to another graph");
    return given.id;
  }
  if (py::isinstance<Graph>(value)) throw GraphError(user, "a Graph is no value; if_() and while_() run it", "B2.7");
  if (py::isinstance<py::array>(value)) return self->constant(host_tensor(value.cast<py::array>(), "constant"));
  if (numbers && !py::isinstance<Tensor>(value) &&
      (PyNumber_Check(value.ptr()) != 0 || py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)))
    return self->constant(numbers_argument(value, user));
  throw GraphError(user, "a Value of this graph, an array or None expected; given " + type_name(value));
}

std::vector<ValueId> value_arguments(const std::shared_ptr<Graph>& self, const std::vector<py::object>& values, const std::string& user) {
  std::vector<ValueId> ids;
  for (const auto& value : values) ids.push_back(value_argument(self, value, user));
  return ids;
}

// A graph given as an argument; null for None.
std::shared_ptr<Graph> graph_argument(const py::object& graph, const std::string& role, const std::string& user) {
  if (graph.is_none()) return {};
  if (!py::isinstance<Graph>(graph)) throw GraphError(user, role + ": a Graph expected, given " + type_name(graph), "B2.2");
  return graph.cast<std::shared_ptr<Graph>>();
}

using Values = py::typing::Tuple<PyValue, py::ellipsis>;

Values tuple_of(const std::shared_ptr<Graph>& self, const std::vector<ValueId>& ids) {
  Values values(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) values[i] = PyValue{self, ids[i]};
  return values;
}

py::typing::List<PyValue> values_of(const std::shared_ptr<Graph>& self, const std::vector<ValueId>& ids) {
  py::typing::List<PyValue> values;
  for (const ValueId id : ids) values.append(PyValue{self, id});
  return values;
}

py::typing::List<py::typing::Optional<PyValue>> operands_of(const PyNode& self) {
  py::typing::List<py::typing::Optional<PyValue>> operands;
  for (const ValueId id : self.get().inputs) operands.append(id == kAbsent ? py::object(py::none()) : py::cast(PyValue{self.graph, id}));
  return operands;
}

Record attributes_of_node(const PyNode& self) {
  Record attributes;
  for (const auto& [name, value] : self.get().attributes.all()) attributes[py::str(name)] = attribute_object(value);
  return attributes;
}

Values add_if(const std::shared_ptr<Graph>& self, const py::object& condition, const py::object& then, const py::object& orelse,
              const std::vector<py::object>& inputs, const std::string& name, std::vector<std::string> output_names) {
  const std::string user = name.empty() ? "If" : name;
  const auto first = graph_argument(then, "then", user), second = graph_argument(orelse, "else", user);
  const ValueId decides = value_argument(self, condition, user);
  return tuple_of(self, self->if_(decides, first, second, value_arguments(self, inputs, user), name, std::move(output_names)));
}

Values add_while(const std::shared_ptr<Graph>& self, const py::object& condition, const py::object& body,
                 const std::vector<py::object>& carried, const std::vector<py::object>& state, const std::vector<py::object>& invariant,
                 const std::string& name, std::vector<std::string> output_names) {
  const std::string user = name.empty() ? "While" : name;
  const auto first = graph_argument(condition, "condition", user), second = graph_argument(body, "body", user);
  return tuple_of(self, self->while_(first, second, value_arguments(self, carried, user), value_arguments(self, state, user),
                                     value_arguments(self, invariant, user), name, std::move(output_names)));
}

// One output as a Value, several as a tuple.
py::object result_of(const std::shared_ptr<Graph>& self, const std::vector<ValueId>& made) {
  if (made.size() == 1) return py::cast(PyValue{self, made[0]});
  return tuple_of(self, made);
}

// Operands of NNAPI's IF and WHILE from `first` on, behind the graphs.
std::vector<ValueId> flow_operands(const std::shared_ptr<Graph>& self, const py::args& operands, size_t first, std::string_view leading,
                                   const std::string& user) {
  if (operands.size() < first)
    throw GraphError(user, std::string(leading) + " and inputs expected; given " + std::to_string(operands.size()) + " operands", "G1");
  std::vector<ValueId> ids;
  for (size_t i = first; i < operands.size(); ++i) ids.push_back(value_argument(self, operands[i], user, true));
  return ids;
}

py::object add_nnapi_if(const std::shared_ptr<Graph>& self, const py::args& operands, size_t outputs, const std::string& name,
                        std::vector<std::string> output_names) {
  const std::string user = name.empty() ? "nnapi::IF" : name;
  auto inputs = flow_operands(self, operands, 3, "a condition, two graphs", user);
  const auto then = graph_argument(operands[1], "then", user), orelse = graph_argument(operands[2], "else", user);
  if (then && outputs != 1 && outputs != then->outputs().size())
    throw GraphError(user,
                     std::to_string(then->outputs().size()) + " outputs are given by 'then'; " + std::to_string(outputs) + " asked for");
  return result_of(self,
                   self->if_(value_argument(self, operands[0], user), then, orelse, std::move(inputs), name, std::move(output_names)));
}

// As many operands are carried as there are outputs; those of the body's outputs that are left are states.
py::object add_nnapi_while(const std::shared_ptr<Graph>& self, const py::args& operands, size_t outputs, const std::string& name,
                           std::vector<std::string> output_names) {
  const std::string user = name.empty() ? "nnapi::WHILE" : name;
  const auto inputs = flow_operands(self, operands, 2, "two graphs", user);
  const auto condition = graph_argument(operands[0], "condition", user), body = graph_argument(operands[1], "body", user);
  const size_t made = body ? body->outputs().size() : outputs;
  if (made < outputs || inputs.size() < made)
    throw GraphError(user,
                     "a body expected with an output for each of " + std::to_string(outputs) +
                         " results, and an input for each of them; it has " + std::to_string(made) + " outputs, given " +
                         std::to_string(inputs.size()) + " inputs",
                     "B2.5");
  const auto at = [&](size_t i) { return inputs.begin() + static_cast<std::ptrdiff_t>(i); };
  return result_of(self, self->while_(condition, body, {at(0), at(outputs)}, {at(outputs), at(made)}, {at(made), inputs.end()}, name,
                                      std::move(output_names)));
}

py::object add_operation(const std::shared_ptr<Graph>& self, const std::string& op, const py::args& inputs, const Integer& given_outputs,
                         const std::string& name, std::vector<std::string> output_names, const py::kwargs& attributes) {
  if (op == "nnapi::IF" || op == "nnapi::WHILE") {
    if (!attributes.empty()) throw GraphError(name.empty() ? op : name, "no keywords expected beside name, outputs and output_names");
    const size_t count = outputs_argument(given_outputs, name.empty() ? op : name);
    return op == "nnapi::IF" ? add_nnapi_if(self, inputs, count, name, std::move(output_names))
                             : add_nnapi_while(self, inputs, count, name, std::move(output_names));
  }
  std::vector<ValueId> ids;
  const size_t outputs = outputs_argument(given_outputs, name.empty() ? op : name);
  const nnapi::Operation* operation = nnapi::find_operation(op);
  for (const auto& input : inputs) ids.push_back(value_argument(self, input, name.empty() ? op : name, operation != nullptr));
  const Attributes given = attributes_of(attributes);
  const auto made = operation ? self->add(nnapi::compound_of(*operation), std::move(ids), given, outputs, name, std::move(output_names))
                              : self->add(op, std::move(ids), given, outputs, name, std::move(output_names));
  return result_of(self, made);
}

// A model of NNAPI is several graphs, so that errors of its operations name the one that they were added to, where it has a name.
py::object add(const std::shared_ptr<Graph>& self, const std::string& op, const py::args& inputs, const Integer& outputs,
               const std::string& name, std::vector<std::string> output_names, const py::kwargs& attributes) {
  const bool names_graph = op.starts_with("nnapi::") && !self->name().empty();
  const auto place = [&] { return names_graph ? "in '" + self->name() + "'" : std::string(); };
  return told_of_path(place, [&] { return add_operation(self, op, inputs, outputs, name, std::move(output_names), attributes); });
}

// Constants of a file of at most so many bytes are copied. Shapes may depend on small ones, which are read often: a read past the end of a
// file that was cut would end the process.
constexpr size_t kMostCopiedBytes = 1 << 16;

PyValue constant_bytes(const std::shared_ptr<Graph>& self, const py::object& object, const py::object& dtype, const Integers& shape,
                       std::string name) {
  HostTensor tensor{TensorDesc(dtype_argument(dtype), sizes_argument(shape, "shape"))};
  const auto raw = object.cast<py::buffer>();
  const py::buffer_info info = raw.request();
  const auto given = static_cast<size_t>(info.size * info.itemsize), expected = tensor.desc.element_bytes();
  if (given != expected || !PyBuffer_IsContiguous(info.view(), 'C'))
    throw GraphError(
        name, std::to_string(expected) + " contiguous bytes expected for " + to_string(tensor.desc) + "; given " + std::to_string(given));
  tensor.data = static_cast<const std::byte*>(info.ptr);
  tensor.file = mapped_file_of(raw);
  tensor.owner = tensor.file ? std::shared_ptr<const void>(tensor.file) : keep(raw);
  if (tensor.file && expected <= kMostCopiedBytes) {
    std::vector<std::byte> bytes(expected);
    tensor.file->read(tensor.data, bytes);
    tensor = HostTensor::copy_of(tensor.desc, bytes.data());
  }
  return {self, self->constant(std::move(tensor), std::move(name))};
}

std::optional<py::bytes> skeleton_of(const py::object& object, const std::string& location) {
  const auto data = object.cast<py::buffer>();
  const py::buffer_info info = data.request();
  const auto file = mapped_file_of(data);
  const auto bytes = contiguous_bytes(info, "onnx_skeleton");
  std::optional<std::string> small;
  {
    const py::gil_scoped_release released;
    small = onnx_skeleton(bytes, file.get(), location);
  }
  return small ? std::optional(py::bytes(*small)) : std::nullopt;
}

using PhaseCallback = std::optional<std::function<void(const std::string&, uint64_t, uint64_t)>>;

// What a program is compiled at where nothing is said.
std::string precision_of(const Graph& graph, const std::optional<std::string>& given) {
  return given.value_or(graph.relaxed_precision() ? "fp16" : "fp32");
}

std::shared_ptr<Program> compile_graph(const std::shared_ptr<Graph>& self, std::shared_ptr<Context> context,
                                       const std::optional<std::string>& precision, bool keep_all,
                                       const std::variant<bool, std::vector<std::string>>& fuse, const PhaseCallback& progress,
                                       std::optional<std::shared_ptr<UploadMemory>> memory, bool check_indices, bool deterministic,
                                       const std::vector<std::string>& float32_nodes,
                                       const std::optional<std::map<std::string, std::string>>& measured, bool list_variants) {
  CompileProgress report;
  if (progress)
    report = [&](const char* phase, uint64_t done, uint64_t total) {
      const py::gil_scoped_acquire gil;
      (*progress)(phase, done, total);
    };
  const ReleasedGil release;
  const bool* all = std::get_if<bool>(&fuse);
  if (keep_all && !all) throw UnsupportedError("keep_all with the names of fusions: nothing is fused where all values are kept");
  const FusionSet wanted = !all ? FusionSet::named(std::get<1>(fuse)) : *all ? FusionSet::all() : FusionSet::none();
  const std::set<std::string> names(float32_nodes.begin(), float32_nodes.end());
  std::shared_ptr<MeasuredVariants> variants;
  if (measured || list_variants) {
    variants = std::make_shared<MeasuredVariants>();
    if (measured) variants->taken.insert(measured->begin(), measured->end());
    variants->lists = list_variants;
  }
  return compile(*self, std::move(context),
                 {precision_of(*self, precision), keep_all, wanted, check_indices, report, memory.value_or(nullptr), deterministic,
                  std::move(variants), names});
}

std::shared_ptr<CompiledOperator> compile_graph_operator(const std::shared_ptr<Graph>& self, std::shared_ptr<Context> context,
                                                         const std::optional<std::string>& precision,
                                                         const std::vector<std::string>& flags) {
  const ReleasedGil release;
  return compile_operator(*self, std::move(context), execution_options(precision_of(*self, precision), flags));
}

}  // namespace

KnownSizes shape_object(const std::optional<Shape>& shape) {
  if (!shape) return py::none();
  py::tuple sizes(shape->size());
  for (size_t i = 0; i < shape->size(); ++i)
    sizes[i] = (*shape)[i] == kUnknownSize ? py::object(py::none()) : py::object(py::int_((*shape)[i]));
  return sizes;
}

void bind_graph(py::module_& module) {
  bind_program(module);
  py::class_<UploadMemory, std::shared_ptr<UploadMemory>>(
      module, "UploadMemory",
      "The memory of a graph's constants: staging memory on the host, and their place on the device. Where they are "
      "many it is made in the background, and Graph.compile waits for it. bytes: the size of the constants, as far "
      "as it is known yet. Not thread-safe.")
      .def(py::init([](const std::shared_ptr<Context>& context, uint64_t bytes) {
             const ReleasedGil release;
             return std::make_shared<UploadMemory>(context, bytes);
           }),
           py::arg("context").none(false), py::arg("bytes"))
      .def("expect", &UploadMemory::expect, py::arg("device_bytes"), py::call_guard<ReleasedGil>(),
           "Says about how many bytes of constants there will be on the device.");
  module.def(
      "graph_rules",
      [] {
        py::typing::Dict<py::str, py::str> rules;
        for (const auto& [id, text] : graph_rules()) rules[py::str(id.data(), id.size())] = py::str(text.data(), text.size());
        return rules;
      },
      "The rules of IF and WHILE and what each says, by id: what GraphError.rule names.");
  module.def(
      "fusions",
      [] {
        py::typing::Dict<py::str, py::str> kinds;
        for (const FusionKind& kind : fusions())
          kinds[py::str(kind.name.data(), kind.name.size())] = py::str(kind.summary.data(), kind.summary.size());
        return kinds;
      },
      "The fusions that a program may make of several nodes, by the names that `fuse` takes, with what each does.");
  // All classes come before their functions, which name each other in signatures.
  py::class_<PyValue> value_class(module, "Value", "A value of a Graph: an input, a constant or a node's output.");
  py::class_<PyNode> node_class(module, "Node", "A node of a Graph.");
  py::class_<Graph, std::shared_ptr<Graph>> graph_class(
      module, "Graph", "Values and nodes, checked as they are added; compiled into a Program. Not thread-safe until finished.");
  value_class.def_property_readonly("name", [](const PyValue& self) { return self.get().name; })
      .def_property_readonly("dtype", [](const PyValue& self) { return std::string(name(self.get().dtype)); })
      .def_property_readonly(
          "shape", [](const PyValue& self) { return shape_object(self.get().shape); },
          "The sizes, None for unknown ones; None alone for an unknown rank.")
      .def_property_readonly(
          "scale", [](const PyValue& self) { return scale_of(self.get().quantization); },
          "The scale of a quantized tensor, whose integers stand for (integer - zero_point) * scale: a number, or one "
          "for each channel.")
      .def_property_readonly("zero_point", [](const PyValue& self) { return self.get().quantization.zero_point; })
      .def_property_readonly("channel_axis", [](const PyValue& self) { return self.get().quantization.channel_axis; })
      .def_property_readonly("graph", [](const PyValue& self) { return self.graph; })
      .def_property_readonly(
          "constant",
          [](const PyValue& self) { return self.get().constant ? std::optional(array_of(*self.get().constant)) : std::nullopt; },
          "A copy of a constant's elements; None for other values.")
      .def(
          "__eq__", [](const PyValue& self, const PyValue& other) { return self.graph == other.graph && self.id == other.id; },
          py::is_operator())
      .def("__hash__", [](const PyValue& self) { return std::hash<const void*>()(self.graph.get()) ^ static_cast<size_t>(self.id); })
      .def("__repr__", [](const PyValue& self) { return "<Value '" + self.get().name + "' " + to_string(self.get()) + ">"; });
  node_class.def_property_readonly(
                "op", [](const PyNode& self) { return std::string(self.get().op()); }, "'Conv', 'If', 'While' ..")
      .def_property_readonly("name", [](const PyNode& self) { return self.get().name; })
      .def_property_readonly("inputs", &operands_of, "The inputs; None for optional ones that are left out.")
      .def_property_readonly("outputs", [](const PyNode& self) { return values_of(self.graph, self.get().outputs); })
      .def_property_readonly("attributes", &attributes_of_node, "The attributes that were given, by name; tensors as arrays.")
      .def("__repr__", [](const PyNode& self) { return "<Node '" + self.get().name + "': " + std::string(self.get().op()) + ">"; });
  graph_class
      .def(py::init([](const std::optional<std::string>& name) { return std::make_shared<Graph>(name.value_or("")); }),
           py::arg("name") = py::none())
      .def_property_readonly("name", &Graph::name)
      .def(
          "input",
          [](const std::shared_ptr<Graph>& self, std::string name, const py::object& dtype,
             const std::optional<std::vector<std::optional<Integer>>>& shape, std::optional<std::vector<std::string>> dimension_names,
             bool owned, const Scale& scale, const std::optional<Integer>& zero_point, const std::optional<Integer>& channel_axis,
             bool assumed) {
            return PyValue{self, self->input(std::move(name), dtype_argument(dtype), shape_argument(shape),
                                             std::move(dimension_names).value_or(std::vector<std::string>()), owned,
                                             quantization_argument(scale, zero_point, channel_axis), assumed)};
          },
          py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("dimension_names") = py::none(), py::arg("owned") = false,
          py::arg("scale") = py::none(), py::arg("zero_point") = py::none(), py::arg("channel_axis") = py::none(),
          py::arg("assumed") = false,
          "An input of the graph. shape: None or 0 for an unknown size; None alone: unknown rank. dimension_names: "
          "symbolic names of the sizes. owned: a weight that the initializer of a compiled operator reads, and "
          "executions do not. scale, zero_point: of a quantized tensor, whose integers stand for (integer - zero_point) "
          "* scale; scale is a number, or one for each channel of channel_axis. assumed: the sizes may turn out to be "
          "others when a node runs this graph. Raises GraphError.")
      .def(
          "constant",
          [](const std::shared_ptr<Graph>& self, const py::array& array, std::string name, const Scale& scale,
             const std::optional<Integer>& zero_point, const std::optional<Integer>& channel_axis) {
            HostTensor tensor = host_tensor(array, "constant");
            tensor.desc.quantized(quantization_argument(scale, zero_point, channel_axis));
            return PyValue{self, self->constant(std::move(tensor), std::move(name))};
          },
          py::arg("array"), py::arg("name") = "", py::arg("scale") = py::none(), py::arg("zero_point") = py::none(),
          py::arg("channel_axis") = py::none(),
          "A constant with the array's elements. scale, zero_point, channel_axis: see input(). Raises GraphError.")
      .def("constant_bytes", &constant_bytes, py::arg("raw"), py::arg("dtype"), py::arg("shape"), py::arg("name") = "",
           "A constant of bytes. raw: the elements as ONNX files keep them: row-major and little-endian, those of 4 bits "
           "two to a byte. They are not copied, and large ones of a MappedFile not read before the device gets them. "
           "Raises GraphError.")
      .def("add", &add, py::arg("op"), py::arg("outputs") = 1, py::arg("name") = "", py::arg("output_names") = std::vector<std::string>(),
           "Adds a node by its ONNX name. inputs: Values, arrays (constants), None for optional ones left out; "
           "attributes by name. One output gives a Value, several a tuple. An operation of NNAPI by its own "
           "('nnapi::ADD') has that system's operands in its own order: numbers and lists of numbers are constants of "
           "int32, float32 or bool, and scale, zero_point and dtype are the output's. 'nnapi::IF' takes a condition, two "
           "Graphs and their inputs, 'nnapi::WHILE' the Graphs of condition and body, then the carried values, of which there are as "
           "many as outputs, the body's states, and what does not change.\n"
           "Raises UnsupportedError (no such operator, a dtype that it lacks), GraphError (wrong inputs, attributes, "
           "shapes where they are known).")
      .def("if_", &add_if, py::arg("condition"), py::arg("then"), py::arg("orelse"), py::arg("inputs") = std::vector<py::object>(),
           py::arg("name") = "", py::arg("output_names") = std::vector<std::string>(),
           "Runs the Graph `then` where the condition (bool, shape [1]) is true, else `orelse`; both take the inputs and give the results. "
           "Without a condition (None) it fails when it runs. A graph that it names is finished.\n"
           "Raises GraphError and StateError with the rule's id (pumice.graph_rules()).")
      .def("while_", &add_while, py::arg("condition"), py::arg("body"), py::arg("carried"), py::arg("state") = std::vector<py::object>(),
           py::arg("invariant") = std::vector<py::object>(), py::arg("name") = "", py::arg("output_names") = std::vector<std::string>(),
           "Runs the Graph `body` as long as the Graph `condition` gives true (bool, shape [1]), asked before every iteration. Both take "
           "carried, state and invariant values in this order; the body gives the next carried and state values. The results are the "
           "carried "
           "ones, after no iteration as they were given.\n"
           "Raises GraphError and StateError with the rule's id (pumice.graph_rules()).")
      .def(
          "output",
          [](const std::shared_ptr<Graph>& self, std::string name, const py::object& value,
             const std::optional<std::vector<std::optional<Integer>>>& shape, const std::optional<py::object>& dtype, const Scale& scale,
             const std::optional<Integer>& zero_point) {
            const ValueId id = value_argument(self, value, name);
            if (id == kAbsent) throw GraphError(name, "an output needs a value", "G7");
            const DeclaredOutput declared{shape_argument(shape), dtype ? std::optional(dtype_argument(*dtype)) : std::nullopt,
                                          quantization_argument(scale, zero_point, {})};
            const ValueId given = declared.is_empty() ? id : declared_output(*self, name, id, declared);
            self->output(std::move(name), given);
          },
          py::arg("name"), py::arg("value"), py::arg("shape") = py::none(), py::arg("dtype") = py::none(), py::arg("scale") = py::none(),
          py::arg("zero_point") = py::none(),
          "Gives a value as an output. shape (None or 0 for any size), dtype, scale and zero_point declare what it is: sizes that are not "
          "known are taken to be the declared ones, and looked at when a program is bound. Raises GraphError, then too, where it is not.")
      .def(
          "shape_sources",
          [](const std::shared_ptr<Graph>& self, const PyValue& value, bool elements) {
            const auto found = shape_sources(*self, value.id, elements);
            return found ? std::optional(values_of(self, *found)) : std::nullopt;
          },
          py::arg("value"), py::arg("elements") = false,
          "The inputs whose elements decide about the shape of a value, or about its elements, beside the shapes of all inputs; None where "
          "what only a device or an IF or WHILE makes decides about it.")
      .def(
          "graft",
          [](const std::shared_ptr<Graph>& self, const PyValue& value, const std::vector<py::object>& inputs, const std::string& stem) {
            return PyValue{self, self->graft(*value.graph, value.id, value_arguments(self, inputs, stem), stem)};
          },
          py::arg("value"), py::arg("inputs"), py::arg("stem"),
          "A copy of what makes a value of another Graph, without IF and WHILE, on these values in the place of that one's inputs; its "
          "nodes are named after stem. Raises GraphError where they cannot take them.")
      .def(
          "expect",
          [](const std::shared_ptr<Graph>& self, const PyValue& value, const std::vector<std::optional<Integer>>& shape) {
            self->expect(value.id, *shape_argument(shape));
          },
          py::arg("value"), py::arg("shape"),
          "Tells the sizes that a value is likely to have, where they are not known (None: nothing more is known): a "
          "value of others is as good when the graph runs.")
      .def_property_readonly("exact", &Graph::exact, "Whether all sizes are known, and none depends on what only a device knows.")
      .def("finish", &Graph::finish, "Ends the graph: later changes raise StateError. Idempotent.")
      .def_property_readonly("finished", &Graph::finished)
      .def_property_readonly("inputs", [](const std::shared_ptr<Graph>& self) { return values_of(self, self->inputs()); })
      .def_property_readonly("outputs",
                             [](const std::shared_ptr<Graph>& self) {
                               py::typing::Dict<py::str, PyValue> outputs;
                               for (const auto& [name, id] : self->outputs()) outputs[py::str(name)] = PyValue{self, id};
                               return outputs;
                             })
      .def_property_readonly(
          "nodes",
          [](const std::shared_ptr<Graph>& self) {
            py::typing::List<PyNode> nodes;
            for (size_t i = 0; i < self->nodes().size(); ++i) nodes.append(PyNode{self, i});
            return nodes;
          },
          "The nodes, in an order in which they can run.")
      .def(
          "node_names",
          [](const Graph& self, size_t first) {
            std::vector<std::string> names;
            for (size_t i = first; i < self.nodes().size(); ++i) names.push_back(self.nodes()[i].name);
            return names;
          },
          py::arg("first"), "The names of the nodes from that position on.")
      .def_property("relaxed_precision", &Graph::relaxed_precision, &Graph::set_relaxed_precision,
                    "Whether floats may be computed in 16 bits where compile() is told no precision: it is 'fp16' then, else 'fp32'. The "
                    "graphs that an IF or WHILE runs follow the one that is compiled.")
      .def("compile", &compile_graph, py::arg("context").none(false), py::arg("precision") = py::none(), py::arg("keep_all") = false,
           py::arg("fuse").noconvert() = true, py::arg("progress") = py::none(), py::arg("memory") = py::none(),
           py::arg("check_indices") = false, py::arg("deterministic").noconvert() = false,
           py::arg("float32_nodes") = std::vector<std::string>(), py::arg("measured") = py::none(), py::arg("list_variants") = false,
           "Compiles the graph for a context. precision: 'fp32', 'fp16' or 'bf16'; by default that of relaxed_precision. keep_all: every "
           "node's outputs become "
           "outputs of the program, and nothing is fused. fuse: whether nodes become one another's parts; or the names "
           "of the fusions that may, of fusions(). progress: called now and then with the work that is being done "
           "('weights', 'kernels'), how much of it is done, and of how much. memory: an UploadMemory of the same "
           "context, begun before. check_indices: a call raises IndexRangeError where an index that only the device "
           "knows is out of range; every call then waits, and the host drives all control flow. deterministic: "
           "ScatterElements, ScatterND and MaxUnpool take several updates of one element in their order, so that every "
           "run gives the same bits. float32_nodes: names of nodes, as in report(), that compute in float32 whatever "
           "the precision is, with the nodes in the graphs of an IF or WHILE among them; other nodes round what they read "
           "of them. measured: variants of steps by kind, as plan() names them, which steps take that can; report() says which. "
           "list_variants: plan() lists all variants of each step that has several. Raises UnsupportedError with all that is not "
           "supported, GraphError for a name that no node has.")
      .def("compile_operator", &compile_graph_operator, py::arg("context").none(false), py::arg("precision") = py::none(),
           py::arg("flags") = std::vector<std::string>(),
           "Compiles the whole graph as one operator for binding tables, initializers and command lists: a slot for "
           "every input, by name. Owned inputs and constants go to the persistent resource, intermediate values to the "
           "temporary one. All sizes of the inputs have to be known.\n"
           "flags: see Operator.compile. Raises GraphError, UnsupportedError (nodes that need the host, by name).")
      .def(
          "__len__", [](const Graph& self) { return self.nodes().size(); }, "The number of nodes.")
      .def("__repr__", [](const Graph& self) {
        return "<Graph '" + self.name() + "': " + std::to_string(self.inputs().size()) + " inputs, " + std::to_string(self.nodes().size()) +
               " nodes, " + std::to_string(self.outputs().size()) + " outputs>";
      });
  module.def(
      "onnx_skeleton", &skeleton_of, py::arg("data"), py::arg("location"),
      "An ONNX file's bytes with the elements of large tensors as external data at `location`; None where they are no ModelProto, or a "
      "very small one. Raises Error where the file has become shorter.");
}

}  // namespace pumice
