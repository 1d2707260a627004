#include "graph/description/graph.h"

#include <memory>

#include "core/error.h"
#include "core/files/onnx_skeleton.h"
#include "core/mapped_file.h"
#include "graph/binding/weight_upload.h"
#include "graph/description/declared_output.h"
#include "graph/description/graph_rules.h"
#include "graph/description/nnapi_rules.h"
#include "graph/description/shape_sources.h"
#include "graph/description/trial_sizes.h"
#include "graph/program/graph_operator.h"
#include "graph/program/program.h"
#include "graph_nodes.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {
namespace {

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

// File constants up to this size are copied. Shape inference reads small ones often, and a mapped read past the end of a truncated file
// would kill the process (SIGBUS).
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
    const auto read = std::make_unique_for_overwrite<std::byte[]>(expected);  // heap: user threads may have small stacks
    const std::span bytes(read.get(), expected);
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

// Precision to compile a program at; defaults to the graph's.
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

void bind_upload_memory(py::module_& module) {
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
}

py::typing::Dict<py::str, py::str> by_id(std::span<const Rule> rules) {
  py::typing::Dict<py::str, py::str> texts;
  for (const auto& [id, text] : rules) texts[py::str(id.data(), id.size())] = py::str(text.data(), text.size());
  return texts;
}

// Binds functions that list rules and fusions.
void bind_graph_tables(py::module_& module) {
  module.def(
      "graph_rules", [] { return by_id(graph_rules()); },
      "The rules of IF and WHILE and what each says, by id: what GraphError.rule names.");
  module.def(
      "nnapi_rules", [] { return by_id(nnapi_rules()); },
      "The rules of NNAPI's operations and what each says, by id: what GraphError.rule names.");
  module.def(
      "fusions",
      [] {
        py::typing::Dict<py::str, py::str> kinds;
        for (const FusionKind& kind : fusions())
          kinds[py::str(kind.name.data(), kind.name.size())] = py::str(kind.summary.data(), kind.summary.size());
        return kinds;
      },
      "The fusions that a program may make of several nodes, by the names that `fuse` takes, with what each does.");
}

void bind_values(py::class_<PyValue>& value_class) {
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
}

void bind_nodes(py::class_<PyNode>& node_class) {
  node_class.def_property_readonly(
                "op", [](const PyNode& self) { return std::string(self.get().op()); }, "'Conv', 'If', 'While' ..")
      .def_property_readonly("name", [](const PyNode& self) { return self.get().name; })
      .def_property_readonly("inputs", &operands_of, "The inputs; None for optional ones that are left out.")
      .def_property_readonly("outputs", [](const PyNode& self) { return values_of(self.graph, self.get().outputs); })
      .def_property_readonly("attributes", &attributes_of_node, "The attributes that were given, by name; tensors as arrays.")
      .def("__repr__", [](const PyNode& self) { return "<Node '" + self.get().name + "': " + std::string(self.get().op()) + ">"; });
}

using GraphClass = py::class_<Graph, std::shared_ptr<Graph>>;

// Binds inputs and constants.
void bind_graph_values(GraphClass& graph_class) {
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
                                             std::move(dimension_names).value_or(std::vector<std::string>()),
                                             {owned, quantization_argument(scale, zero_point, channel_axis), assumed})};
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
           "Raises GraphError.");
}

// Binds methods that add nodes.
void bind_graph_nodes(GraphClass& graph_class) {
  graph_class.def(
      "add",
      [](const std::shared_ptr<Graph>& self, const std::string& op, const py::args& inputs, const Integer& outputs, std::string name,
         std::vector<std::string> output_names, const py::kwargs& attributes) {
        return add_node(self, op, inputs, outputs, {std::move(name), std::move(output_names)}, attributes);
      },
      py::arg("op"), py::arg("outputs") = 1, py::arg("name") = "", py::arg("output_names") = std::vector<std::string>(),
      "Adds a node by its ONNX name. inputs: Values, arrays (constants), None for optional ones left out; "
      "attributes by name. One output gives a Value, several a tuple. An operation of NNAPI by its own "
      "('nnapi::ADD') has that system's operands in its own order: numbers and lists of numbers are constants of "
      "int32, float32 or bool, and scale, zero_point and dtype are the output's. 'nnapi::IF' takes a condition, two "
      "Graphs and their inputs, 'nnapi::WHILE' the Graphs of condition and body, then the carried values, of which there are as "
      "many as outputs, the body's states, and what does not change.\n"
      "Raises UnsupportedError (no such operator, a dtype that it lacks), GraphError (wrong inputs, attributes, "
      "shapes where they are known).");
}

// Binds control flow nodes (if, while).
void bind_graph_flow(GraphClass& graph_class) {
  graph_class
      .def(
          "if_",
          [](const std::shared_ptr<Graph>& self, const py::object& condition, const py::object& then, const py::object& orelse,
             const std::vector<py::object>& inputs, std::string name, std::vector<std::string> output_names) {
            return add_if(self, condition, then, orelse, inputs, {std::move(name), std::move(output_names)});
          },
          py::arg("condition"), py::arg("then"), py::arg("orelse"), py::arg("inputs") = std::vector<py::object>(), py::arg("name") = "",
          py::arg("output_names") = std::vector<std::string>(),
          "Runs the Graph `then` where the condition (bool, shape [1]) is true, else `orelse`; both take the inputs and give the results. "
          "Without a condition (None) it fails when it runs. A graph that it names is finished.\n"
          "Raises GraphError and StateError with the rule's id (pumice.graph_rules()).")
      .def(
          "while_",
          [](const std::shared_ptr<Graph>& self, const py::object& condition, const py::object& body, std::vector<py::object> carried,
             std::vector<py::object> state, std::vector<py::object> invariant, std::string name, std::vector<std::string> output_names) {
            return add_while(self, condition, body, {std::move(carried), std::move(state), std::move(invariant)},
                             {std::move(name), std::move(output_names)});
          },
          py::arg("condition"), py::arg("body"), py::arg("carried"), py::arg("state") = std::vector<py::object>(),
          py::arg("invariant") = std::vector<py::object>(), py::arg("name") = "", py::arg("output_names") = std::vector<std::string>(),
          "Runs the Graph `body` as long as the Graph `condition` gives true (bool, shape [1]), asked before every iteration. Both take "
          "carried, state and invariant values in this order; the body gives the next carried and state values. The results are the "
          "carried "
          "ones, after no iteration as they were given.\n"
          "Raises GraphError and StateError with the rule's id (pumice.graph_rules()).");
}

void bind_graph_outputs(GraphClass& graph_class) {
  graph_class.def(
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
      "known are taken to be the declared ones, and looked at when a program is bound. Raises GraphError, then too, where it is not.");
}

// Binds subgraph copies and hints.
void bind_graph_hints(GraphClass& graph_class) {
  graph_class
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
          "value of others is as good when the graph runs.");
}

// Binds properties of a graph.
void bind_graph_facts(GraphClass& graph_class) {
  graph_class.def_property_readonly("exact", &Graph::exact, "Whether all sizes are known, and none depends on what only a device knows.")
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
                    "graphs that an IF or WHILE runs follow the one that is compiled.");
}

// Binds compilation to programs.
void bind_graph_programs(GraphClass& graph_class) {
  graph_class
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
}

using TriedSizes = std::array<int64_t, kTrialCount>;

void set_trial_sizes_of(const std::optional<TriedSizes>& sizes, const std::optional<TriedSizes>& batches) {
  set_trial_sizes(sizes ? std::optional(TrialSizes{*sizes, batches.value_or(*sizes)}) : std::nullopt);
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
  bind_upload_memory(module);
  bind_graph_tables(module);
  // Declare all classes before the methods, whose signatures refer to each other.
  py::class_<PyValue> value_class(module, "Value", "A value of a Graph: an input, a constant or a node's output.");
  py::class_<PyNode> node_class(module, "Node", "A node of a Graph.");
  GraphClass graph_class(module, "Graph",
                         "Values and nodes, checked as they are added; compiled into a Program. Not thread-safe until finished.");
  bind_values(value_class);
  bind_nodes(node_class);
  bind_graph_values(graph_class);
  bind_graph_nodes(graph_class);
  bind_graph_flow(graph_class);
  bind_graph_outputs(graph_class);
  bind_graph_hints(graph_class);
  bind_graph_facts(graph_class);
  bind_graph_programs(graph_class);
  module.def(
      "onnx_skeleton", &skeleton_of, py::arg("data"), py::arg("location"),
      "An ONNX file's bytes with the elements of large tensors as external data at `location`; None where they are no ModelProto, or a "
      "very small one. Raises Error where the file has become shorter.");
  module.def(
      "_set_trial_sizes", &set_trial_sizes_of, py::arg("sizes") = py::none(), py::arg("batches") = py::none(),
      "Set the sizes that shape inference tries for unknown axes, and for unknown first axes; None restores the default. For tests.");
}

}  // namespace pumice
