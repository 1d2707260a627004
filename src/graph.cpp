#include "graph/description/graph.h"

#include <memory>

#include "core/error.h"
#include "core/files/tensor_data_stripper.h"
#include "core/mapped_file.h"
#include "graph/binding/weight_upload.h"
#include "graph/description/declared_output.h"
#include "graph/description/graph_rules.h"
#include "graph/description/nnapi_rules.h"
#include "graph/description/shape_sources.h"
#include "graph/description/trial_axis_sizes.h"
#include "graph/program/graph_operator.h"
#include "graph/program/program.h"
#include "graph_nodes.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {
namespace {

py::typing::List<PyValue> make_value_list(const std::shared_ptr<Graph>& self, const std::vector<ValueId>& ids) {
  py::typing::List<PyValue> values;
  for (const ValueId id : ids) values.append(PyValue{self, id});
  return values;
}

py::typing::List<py::typing::Optional<PyValue>> get_operands(const PyNode& self) {
  py::typing::List<py::typing::Optional<PyValue>> operands;
  for (const ValueId id : self.get().inputs) operands.append(id == kAbsent ? py::object(py::none()) : py::cast(PyValue{self.graph, id}));
  return operands;
}

Record get_node_attributes(const PyNode& self) {
  Record attributes;
  for (const auto& [name, value] : self.get().attributes.all()) attributes[py::str(name)] = make_python_attribute(value);
  return attributes;
}

PyValue add_constant_bytes(const std::shared_ptr<Graph>& self, const py::object& object, const py::object& dtype, const Integers& shape,
                           std::string name) {
  HostTensor tensor{TensorDesc(parse_dtype(dtype), parse_sizes(shape, "shape"))};
  const auto raw = object.cast<py::buffer>();
  const py::buffer_info info = raw.request();
  const auto actual_bytes = static_cast<size_t>(info.size * info.itemsize), expected_bytes = tensor.desc.element_bytes();
  if (actual_bytes != expected_bytes || !PyBuffer_IsContiguous(info.view(), 'C'))
    throw GraphError(name, "expected " + std::to_string(expected_bytes) + " contiguous bytes for " + to_string(tensor.desc) + "; given " +
                               std::to_string(actual_bytes));
  tensor.data = static_cast<const std::byte*>(info.ptr);
  tensor.file = find_mapped_file(raw);
  tensor.owner = tensor.file ? std::shared_ptr<const void>(tensor.file) : keep_alive(raw);
  return {self, self->constant(copy_if_small(std::move(tensor)), std::move(name))};
}

std::optional<py::bytes> strip_onnx_tensor_data(const py::object& object, const std::string& location) {
  const auto data = object.cast<py::buffer>();
  const py::buffer_info info = data.request();
  const auto file = find_mapped_file(data);
  const auto bytes = get_contiguous_bytes(info, "onnx_skeleton");
  std::optional<std::string> skeleton;
  {
    const py::gil_scoped_release released;
    skeleton = strip_tensor_data(bytes, file.get(), location);
  }
  return skeleton ? std::optional(py::bytes(*skeleton)) : std::nullopt;
}

using PhaseCallback = std::optional<std::function<void(const std::string&, uint64_t, uint64_t)>>;

// Returns the precision to compile a program at; defaults to the graph's.
std::string resolve_precision(const Graph& graph, const std::optional<std::string>& precision) {
  return precision.value_or(graph.relaxed_precision() ? "fp16" : "fp32");
}

// Returns about how many bytes the device stores of a graph's constants.
uint64_t estimate_device_bytes(const Graph& graph, const std::string& precision) {
  uint64_t bytes = 0;
  for (const GraphValue& value : graph.values())
    if (value.constant) bytes += value.constant->desc.element_bytes() / (value.dtype == DType::float32 && precision != "fp32" ? 2 : 1);
  return bytes;
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
  std::vector<std::string> fusions;
  if (const auto* names = std::get_if<std::vector<std::string>>(&fuse))
    for (const std::string& name : *names) fusions.emplace_back(replace_deprecated_name(name));
  const GilRelease release;
  const bool* all = std::get_if<bool>(&fuse);
  if (keep_all && !all) throw UnsupportedError("keep_all with names of fusions: nothing is fused if all values are kept");
  const FusionSet fusion_set = !all ? FusionSet::from_names(fusions) : *all ? FusionSet::all() : FusionSet::none();
  const std::set<std::string> names(float32_nodes.begin(), float32_nodes.end());
  std::shared_ptr<MeasuredVariants> variants;
  if (measured || list_variants) {
    variants = std::make_shared<MeasuredVariants>();
    if (measured) variants->fastest.insert(measured->begin(), measured->end());
    variants->lists_all = list_variants;
  }
  const std::string resolved_precision = resolve_precision(*self, precision);
  if (memory && (*memory)->context() == context) (*memory)->preallocate(estimate_device_bytes(*self, resolved_precision));
  return compile(*self, std::move(context),
                 {resolved_precision, keep_all, fusion_set, check_indices, report, memory.value_or(nullptr), deterministic,
                  std::move(variants), names});
}

std::shared_ptr<CompiledOperator> compile_graph_operator(const std::shared_ptr<Graph>& self, std::shared_ptr<Context> context,
                                                         const std::optional<std::string>& precision,
                                                         const std::vector<std::string>& flags) {
  const GilRelease release;
  return compile_operator(*self, std::move(context), parse_execution_options(resolve_precision(*self, precision), flags));
}

void bind_upload_memory(py::module_& module) {
  py::class_<UploadMemory, std::shared_ptr<UploadMemory>>(
      module, "UploadMemory",
      "Memory for a graph's constants: host staging memory and device memory. Large allocations run in the background, and Graph.compile() "
      "waits for them. Not thread-safe.\n"
      "bytes: size of the constants as far as known.")
      .def(py::init([](const std::shared_ptr<Context>& context, uint64_t bytes) {
             const GilRelease release;
             return std::make_shared<UploadMemory>(context, bytes);
           }),
           py::arg("context").none(false), py::arg("bytes"))
      .def("expect", &UploadMemory::preallocate, py::arg("device_bytes"), py::call_guard<GilRelease>(),
           "Announce about how many bytes of constants the device will store; Graph.compile() does so itself.");
}

py::typing::Dict<py::str, py::str> make_rule_dict(std::span<const RuleText> rules) {
  py::typing::Dict<py::str, py::str> texts;
  for (const auto& [id, text] : rules) texts[py::str(id.data(), id.size())] = py::str(text.data(), text.size());
  return texts;
}

// Binds functions that list rules and fusions.
void bind_graph_tables(py::module_& module) {
  module.def(
      "graph_rules", [] { return make_rule_dict(get_graph_rules()); },
      "Return the rules of IF and WHILE by id; GraphError.rule contains the id.");
  module.def(
      "nnapi_rules", [] { return make_rule_dict(get_nnapi_rules()); },
      "Return the rules of NNAPI operations by id; GraphError.rule contains the id.");
  module.def(
      "fusions",
      [] {
        py::typing::Dict<py::str, py::str> kinds;
        for (const FusionDescription& kind : list_fusions())
          kinds[py::str(kind.name.data(), kind.name.size())] = py::str(kind.summary.data(), kind.summary.size());
        return kinds;
      },
      "Return the fusions that compile() can apply: name, as accepted by `fuse`, -> summary.");
}

void bind_values(py::class_<PyValue>& value_class) {
  value_class.def_property_readonly("name", [](const PyValue& self) { return self.get().name; })
      .def_property_readonly("dtype", [](const PyValue& self) { return std::string(name(self.get().dtype)); })
      .def_property_readonly(
          "shape", [](const PyValue& self) { return make_shape_tuple(self.get().shape); },
          "The sizes, None for unknown ones; None if the rank is unknown.")
      .def_property_readonly(
          "scale", [](const PyValue& self) { return get_scale(self.get().quantization); },
          "The scale of a quantised tensor, a number or one per channel: real = (integer - zero_point) * scale.")
      .def_property_readonly("zero_point", [](const PyValue& self) { return self.get().quantization.zero_point; })
      .def_property_readonly("channel_axis", [](const PyValue& self) { return self.get().quantization.channel_axis; })
      .def_property_readonly("graph", [](const PyValue& self) { return self.graph; })
      .def_property_readonly(
          "constant",
          [](const PyValue& self) { return self.get().constant ? std::optional(copy_to_array(*self.get().constant)) : std::nullopt; },
          "A copy of a constant's elements; None for other values.")
      .def(
          "__eq__", [](const PyValue& self, const PyValue& other) { return self.graph == other.graph && self.id == other.id; },
          py::is_operator())
      .def("__hash__", [](const PyValue& self) { return std::hash<const void*>()(self.graph.get()) ^ static_cast<size_t>(self.id); })
      .def("__repr__", [](const PyValue& self) { return "<Value '" + self.get().name + "' " + to_string(self.get()) + ">"; });
}

void bind_nodes(py::class_<PyNode>& node_class) {
  node_class
      .def_property_readonly(
          "op", [](const PyNode& self) { return std::string(self.get().op()); }, "Operator name: 'Conv', 'If', 'While', ...")
      .def_property_readonly("name", [](const PyNode& self) { return self.get().name; })
      .def_property_readonly("inputs", &get_operands, "The inputs; None for omitted optional inputs.")
      .def_property_readonly("outputs", [](const PyNode& self) { return make_value_list(self.graph, self.get().outputs); })
      .def_property_readonly("attributes", &get_node_attributes, "The attributes that were given, by name; tensors as arrays.")
      .def("__repr__", [](const PyNode& self) { return "<Node '" + self.get().name + "': " + std::string(self.get().op()) + ">"; });
}

using GraphClass = py::class_<Graph, std::shared_ptr<Graph>>;

// Binds inputs.
void bind_graph_inputs(GraphClass& graph_class) {
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
            return PyValue{self, self->input(std::move(name), parse_dtype(dtype), parse_optional_shape(shape),
                                             std::move(dimension_names).value_or(std::vector<std::string>()),
                                             {owned, parse_quantization(scale, zero_point, channel_axis), assumed})};
          },
          py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("dimension_names") = py::none(), py::arg("owned") = false,
          py::arg("scale") = py::none(), py::arg("zero_point") = py::none(), py::arg("channel_axis") = py::none(),
          py::arg("assumed") = false,
          "Add an input to the graph.\n"
          "shape: None or 0 for an unknown size; shape=None for an unknown rank.\n"
          "dimension_names: symbolic names of the sizes.\n"
          "owned: a weight that is read by the initializer of a compiled operator only, not by executions.\n"
          "scale, zero_point: quantisation, real = (integer - zero_point) * scale; scale is a number, or one per channel of channel_axis.\n"
          "assumed: sizes may differ when a node runs this graph.\n"
          "Raise GraphError.");
}

// Binds methods that add constants.
void bind_graph_constants(GraphClass& graph_class) {
  graph_class
      .def(
          "constant",
          [](const std::shared_ptr<Graph>& self, const py::array& array, std::string name, const Scale& scale,
             const std::optional<Integer>& zero_point, const std::optional<Integer>& channel_axis) {
            HostTensor tensor = make_host_tensor(array, "constant");
            tensor.desc.quantized(parse_quantization(scale, zero_point, channel_axis));
            return PyValue{self, self->constant(std::move(tensor), std::move(name))};
          },
          py::arg("array"), py::arg("name") = "", py::arg("scale") = py::none(), py::arg("zero_point") = py::none(),
          py::arg("channel_axis") = py::none(),
          "Add a constant with the array's elements.\n"
          "scale, zero_point, channel_axis: see input().\n"
          "Raise GraphError.")
      .def("constant_bytes", &add_constant_bytes, py::arg("raw"), py::arg("dtype"), py::arg("shape"), py::arg("name") = "",
           "Add a constant from bytes, without a copy. Large ones from a MappedFile are read only when they are uploaded.\n"
           "raw: elements as in ONNX files: row-major, little-endian, 4-bit elements two per byte.\n"
           "Raise GraphError.");
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
      "Add a node by its ONNX operator name. Return a Value for one output, or a tuple for several.\n"
      "inputs: Values, arrays (constants), or None for omitted optional inputs.\n"
      "attributes: by name.\n"
      "NNAPI operations ('nnapi::ADD') take NNAPI's operands in NNAPI's order: numbers and lists of numbers are int32, float32 or bool "
      "constants; scale, zero_point and dtype describe the output. 'nnapi::IF' takes a condition, two Graphs and their inputs. "
      "'nnapi::WHILE' takes the condition and body Graphs, then the carried values (as many as outputs), the body's states, and the "
      "invariant values.\n"
      "Raise UnsupportedError for an unknown operator or dtype, GraphError for wrong inputs, attributes or known shapes.");
}

// Binds control flow nodes (if, while).
void bind_graph_control_flow(GraphClass& graph_class) {
  graph_class
      .def(
          "if_",
          [](const std::shared_ptr<Graph>& self, const py::object& condition, const py::object& then, const py::object& orelse,
             const std::vector<py::object>& inputs, std::string name, std::vector<std::string> output_names) {
            return add_if(self, condition, then, orelse, inputs, {std::move(name), std::move(output_names)});
          },
          py::arg("condition"), py::arg("then"), py::arg("orelse"), py::arg("inputs") = std::vector<py::object>(), py::arg("name") = "",
          py::arg("output_names") = std::vector<std::string>(),
          "Add an IF node: run the Graph `then` if the condition (bool, shape [1]) is true, or else `orelse`. Both take the inputs and "
          "return the results; this call finishes them. With condition=None the node fails at run time.\n"
          "Raise GraphError and StateError with the rule id (pumice.graph_rules()).")
      .def(
          "while_",
          [](const std::shared_ptr<Graph>& self, const py::object& condition, const py::object& body, std::vector<py::object> carried,
             std::vector<py::object> state, std::vector<py::object> invariant, std::string name, std::vector<std::string> output_names) {
            return add_while(self, condition, body, {std::move(carried), std::move(state), std::move(invariant)},
                             {std::move(name), std::move(output_names)});
          },
          py::arg("condition"), py::arg("body"), py::arg("carried"), py::arg("state") = std::vector<py::object>(),
          py::arg("invariant") = std::vector<py::object>(), py::arg("name") = "", py::arg("output_names") = std::vector<std::string>(),
          "Add a WHILE node: run the Graph `body` while the Graph `condition` returns true (bool, shape [1]), evaluated before every "
          "iteration. Both take the carried, state and invariant values in this order; the body returns the next carried and state values. "
          "The results are the final carried values, or the initial ones after zero iterations.\n"
          "Raise GraphError and StateError with the rule id (pumice.graph_rules()).");
}

void bind_graph_outputs(GraphClass& graph_class) {
  graph_class.def(
      "output",
      [](const std::shared_ptr<Graph>& self, std::string name, const py::object& value,
         const std::optional<std::vector<std::optional<Integer>>>& shape, const std::optional<py::object>& dtype, const Scale& scale,
         const std::optional<Integer>& zero_point) {
        const ValueId id = get_value_id(self, value, name);
        if (id == kAbsent) throw GraphError(name, "an output needs a value", "G7");
        const DeclaredOutput declared{parse_optional_shape(shape), dtype ? std::optional(parse_dtype(*dtype)) : std::nullopt,
                                      parse_quantization(scale, zero_point, {})};
        const ValueId output_id = declared.is_empty() ? id : apply_declared_output(*self, name, id, declared);
        self->output(std::move(name), output_id);
      },
      py::arg("name"), py::arg("value"), py::arg("shape") = py::none(), py::arg("dtype") = py::none(), py::arg("scale") = py::none(),
      py::arg("zero_point") = py::none(),
      "Make a value an output of the graph.\n"
      "shape, dtype, scale, zero_point: the declared type; None or 0 in shape means any size. Unknown sizes are assumed to be as declared "
      "and checked when a program is bound.\n"
      "Raise GraphError, also at binding, if the value does not match.");
}

// Binds subgraph copies and hints.
void bind_graph_hints(GraphClass& graph_class) {
  graph_class
      .def(
          "shape_sources",
          [](const std::shared_ptr<Graph>& self, const PyValue& value, bool elements) {
            const auto found = find_shape_sources(*self, value.id, elements);
            return found ? std::optional(make_value_list(self, *found)) : std::nullopt;
          },
          py::arg("value"), py::arg("elements") = false,
          "Return the inputs whose elements determine the shape of a value (or its elements, if `elements`), in addition to the shapes of "
          "all inputs. Return None if it also depends on results of a device-only operator, IF or WHILE.")
      .def(
          "graft",
          [](const std::shared_ptr<Graph>& self, const PyValue& value, const std::vector<py::object>& inputs, const std::string& stem) {
            return PyValue{self, self->copy_computation(*value.graph, value.id, get_value_ids(self, inputs, stem), stem)};
          },
          py::arg("value"), py::arg("inputs"), py::arg("stem"),
          "Copy the nodes that compute a value of another Graph (without IF and WHILE), with `inputs` in place of that graph's inputs. "
          "Node names are derived from `stem`. Raise GraphError if the nodes cannot take these inputs.")
      .def(
          "expect",
          [](const std::shared_ptr<Graph>& self, const PyValue& value, const std::vector<std::optional<Integer>>& shape) {
            self->set_shape_hint(value.id, *parse_optional_shape(shape));
          },
          py::arg("value"), py::arg("shape"),
          "Suggest likely values for unknown sizes of a value (None: no suggestion). The graph still accepts other sizes at run time.");
}

// Binds properties of a graph.
void bind_graph_properties(GraphClass& graph_class) {
  graph_class
      .def_property_readonly("exact", &Graph::has_static_shapes, "Whether all sizes are known and none depends on results of the device.")
      .def("finish", &Graph::finish, "Finish the graph: later changes raise StateError. Idempotent.")
      .def_property_readonly("finished", &Graph::finished)
      .def_property_readonly("inputs", [](const std::shared_ptr<Graph>& self) { return make_value_list(self, self->inputs()); })
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
          "The nodes in topological order.")
      .def(
          "node_names",
          [](const Graph& self, size_t first) {
            std::vector<std::string> names;
            for (size_t i = first; i < self.nodes().size(); ++i) names.push_back(self.nodes()[i].name);
            return names;
          },
          py::arg("first"), "Return the names of the nodes from index `first` on.")
      .def_property(
          "relaxed_precision", &Graph::relaxed_precision, &Graph::set_relaxed_precision,
          "Whether compile() without a precision uses 'fp16' instead of 'fp32'. Graphs of IF and WHILE nodes follow the compiled graph.");
}

// Binds compilation to programs.
void bind_graph_programs(GraphClass& graph_class) {
  graph_class
      .def("compile", &compile_graph, py::arg("context").none(false), py::arg("precision") = py::none(), py::arg("keep_all") = false,
           py::arg("fuse").noconvert() = true, py::arg("progress") = py::none(), py::arg("memory") = py::none(),
           py::arg("check_indices") = false, py::arg("deterministic").noconvert() = false,
           py::arg("float32_nodes") = std::vector<std::string>(), py::arg("measured") = py::none(), py::arg("list_variants") = false,
           "Compile the graph to a Program.\n"
           "precision: 'fp32', 'fp16' or 'bf16'; defaults to the one of relaxed_precision.\n"
           "keep_all: make the outputs of all nodes outputs of the program, and fuse nothing.\n"
           "fuse: whether to fuse nodes, or the names of the allowed fusions; see fusions().\n"
           "progress: called regularly with the phase ('weights', 'kernels'), the amount done and the total.\n"
           "memory: an UploadMemory of the same context, already allocating.\n"
           "check_indices: raise IndexRangeError at calls if an index that only the device knows is out of range. Every call then waits, "
           "and the host drives all control flow.\n"
           "deterministic: apply repeated updates of an element by ScatterElements, ScatterND and MaxUnpool in order, for bitwise "
           "reproducible results.\n"
           "float32_nodes: names of nodes, as in report(), to compute in float32 at any precision, including the nodes in their IF and "
           "WHILE graphs. Other nodes round what they read from them.\n"
           "measured: kind of step -> variant to use where possible, as named by plan(); report() shows the choice.\n"
           "list_variants: plan() lists all variants of steps that have several.\n"
           "Raise UnsupportedError listing everything unsupported, GraphError for an unknown node name.")
      .def("compile_operator", &compile_graph_operator, py::arg("context").none(false), py::arg("precision") = py::none(),
           py::arg("flags") = std::vector<std::string>(),
           "Compile the whole graph to one operator for binding tables, initializers and command lists, with a slot per input, by name. "
           "Owned inputs and constants go to the persistent resource, intermediate values to the temporary one. All input sizes must be "
           "known.\n"
           "flags: see Operator.compile.\n"
           "Raise GraphError, or UnsupportedError naming the nodes that need the host.")
      .def(
          "__len__", [](const Graph& self) { return self.nodes().size(); }, "Return the number of nodes.")
      .def("__repr__", [](const Graph& self) {
        return "<Graph '" + self.name() + "': " + std::to_string(self.inputs().size()) + " inputs, " + std::to_string(self.nodes().size()) +
               " nodes, " + std::to_string(self.outputs().size()) + " outputs>";
      });
}

using TrialSizeArray = std::array<int64_t, kTrialCount>;

void set_trial_size_arrays(const std::optional<TrialSizeArray>& sizes, const std::optional<TrialSizeArray>& batches) {
  set_trial_sizes(sizes ? std::optional(TrialSizes{*sizes, batches.value_or(*sizes)}) : std::nullopt);
}

}  // namespace

std::optional<Shape> parse_optional_shape(const std::optional<std::vector<std::optional<Integer>>>& sizes) {
  if (!sizes) return {};
  Shape shape;
  for (const auto& size : *sizes) {
    const int64_t known = size ? parse_sizes({*size}, "shape")[0] : 0;
    if (known < kUnknownSize) throw GraphError("shape", "expected a non-negative size, or None; given " + size->text(), "R8");
    shape.push_back(known > 0 ? known : kUnknownSize);
  }
  return shape;
}

HostTensor copy_if_small(HostTensor tensor) {
  // Shape inference reads small constants often, and a mapped read past the end of a truncated file would kill the process (SIGBUS).
  constexpr size_t kMaxCopiedBytes = 1 << 16;
  const size_t size = tensor.desc.element_bytes();
  if (!tensor.file || size > kMaxCopiedBytes) return tensor;
  const auto read = std::make_unique_for_overwrite<std::byte[]>(size);  // heap: user threads may have small stacks
  tensor.file->read(tensor.data, {read.get(), size});
  return HostTensor::copy_of(tensor.desc, read.get());
}

KnownSizes make_shape_tuple(const std::optional<Shape>& shape) {
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
  py::class_<PyValue> value_class(module, "Value", "A value of a Graph: an input, a constant or the output of a node.");
  py::class_<PyNode> node_class(module, "Node", "A node of a Graph.");
  GraphClass graph_class(module, "Graph",
                         "Values and nodes, checked when they are added. Compiles to a Program. Not thread-safe until finished.");
  bind_values(value_class);
  bind_nodes(node_class);
  bind_graph_inputs(graph_class);
  bind_graph_constants(graph_class);
  bind_graph_nodes(graph_class);
  bind_graph_control_flow(graph_class);
  bind_graph_outputs(graph_class);
  bind_graph_hints(graph_class);
  bind_graph_properties(graph_class);
  bind_graph_programs(graph_class);
  bind_cached_graph(module);
  module.def("onnx_skeleton", &strip_onnx_tensor_data, py::arg("data"), py::arg("location"),
             "Return the bytes of an ONNX file with the elements of large tensors replaced by external data at `location`; None if it is "
             "not a ModelProto or is very small. Raise Error if the file has been truncated.");
  module.def(
      "_set_trial_sizes", &set_trial_size_arrays, py::arg("sizes") = py::none(), py::arg("batches") = py::none(),
      "Set the sizes that shape inference tries for unknown axes, and for unknown first axes; None restores the default. For tests.");
}

}  // namespace pumice
