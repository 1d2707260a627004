#include <algorithm>
#include <cstring>

#include "bindings.h"
#include "core/error.h"
#include "operators/compiled/compiled_operator.h"
#include "operators/host/host_evaluate.h"
#include "operators/table/precision_support.h"

namespace pumice {
namespace {

[[noreturn]] void throw_attribute_error(const std::string& name, const std::string& actual) {
  throw GraphError(name,
                   "attribute '" + name + "': expected a number, a string, an array or a list of numbers or strings; given " + actual);
}

bool is_string_or_bytes(const py::handle& value) {
  return py::isinstance<py::str>(value) || py::isinstance<py::bytes>(value);
}

bool is_integer(const py::handle& value) {
  return PyIndex_Check(value.ptr()) != 0;
}

AttributeValue parse_list_attribute(const std::string& name, const py::sequence& list) {
  bool has_text = false, all_integers = true;
  for (const auto& item : list) {
    has_text = has_text || is_string_or_bytes(item);
    all_integers = all_integers && is_integer(item);
  }
  try {
    if (has_text) return list.cast<std::vector<std::string>>();
    if (all_integers) return list.cast<std::vector<int64_t>>();
    return list.cast<std::vector<double>>();
  } catch (const py::cast_error&) {
    throw_attribute_error(name, py::repr(list).cast<std::string>());
  }
}

AttributeValue parse_attribute(const std::string& name, const py::handle& value) {
  if (is_string_or_bytes(value)) return value.cast<std::string>();
  if (py::isinstance<py::array>(value)) return make_host_tensor(value.cast<py::array>(), "attribute '" + name + "'");
  try {
    if (is_integer(value)) return value.cast<int64_t>();
    if (PyNumber_Check(value.ptr()) != 0 && !py::isinstance<Tensor>(value)) return round_to_float32(value.cast<double>());
  } catch (const py::cast_error&) {
    throw_attribute_error(name, format_number(value));
  }
  if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value))
    return parse_list_attribute(name, py::reinterpret_borrow<py::sequence>(value));
  throw_attribute_error(name, get_type_name(value));
}

std::vector<std::string_view> list_dtypes(const ValueRole& role) {
  std::vector<std::string_view> dtypes;
  for (int i = 0; i < kDTypeCount; ++i)
    if (contains(role.dtypes, static_cast<DType>(i))) dtypes.push_back(name(static_cast<DType>(i)));
  return dtypes;
}

// Returns the ONNX name of an attribute's type.
std::string_view get_attribute_kind(const AttributeSchema& attribute) {
  constexpr std::string_view names[] = {"int", "float", "string", "ints", "floats", "strings", "tensor"};
  return names[static_cast<size_t>(attribute.kind)];
}

std::vector<std::pair<std::string_view, std::string_view>> find_in_place_pairs(const OperatorRow& row) {
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  for (size_t i = 0; i < row.schema.inputs.size(); ++i)
    for (size_t j = 0; j < row.schema.outputs.size(); ++j)
      if (row.schema.supports_in_place(i, j)) pairs.emplace_back(row.schema.inputs[i].name, row.schema.outputs[j].name);
  return pairs;
}

const OperatorRow& find_operator_row(const std::string& name) {
  const OperatorRow* row = find_operator(replace_deprecated_name(name));
  return row ? *row : throw UnsupportedError("operator " + name + ": expected one listed by pumice.operators()");
}

// Converts an array, a number or a list of numbers (to int64 or float32, like attributes).
HostTensor parse_host_values(const py::object& value, const std::string& label) {
  if (py::isinstance<py::array>(value)) return make_host_tensor(value.cast<py::array>(), label);
  const py::module_ numpy = py::module_::import("numpy");
  const auto array = numpy.attr("asarray")(value).cast<py::array>();
  if (py::hasattr(value, "dtype")) return make_host_tensor(array, label);
  if (array.size() == 0 || array.dtype().kind() == 'i') return make_host_tensor(array.attr("astype")("int64").cast<py::array>(), label);
  if (array.dtype().kind() == 'f') return make_host_tensor(array.attr("astype")("float32").cast<py::array>(), label);
  return make_host_tensor(array, label);
}

using OperatorInput =
    py::typing::Optional<py::typing::Union<TensorDesc, py::array, int64_t, double, std::vector<int64_t>, std::vector<double>>>;

// Operator inputs, each passed as a value, as a TensorDesc or as None.
struct OperatorInputs {
  std::vector<std::optional<HostTensor>> values;
  std::vector<std::optional<TensorDesc>> declared_descs;

  std::vector<const HostTensor*> host_tensors() const {
    std::vector<const HostTensor*> all;
    for (const auto& value : values) all.push_back(value ? &*value : nullptr);
    return all;
  }
  std::vector<const TensorDesc*> tensor_descs() const {
    std::vector<const TensorDesc*> all;
    for (size_t i = 0; i < values.size(); ++i)
      all.push_back(declared_descs[i] ? &*declared_descs[i] : values[i] ? &values[i]->desc : nullptr);
    return all;
  }
};

OperatorInputs parse_inputs(const py::typing::Iterable<OperatorInput>& args) {
  OperatorInputs inputs;
  for (const py::handle input : args) {
    auto& value = inputs.values.emplace_back();
    auto& declared_descs = inputs.declared_descs.emplace_back();
    if (input.is_none()) continue;
    if (py::isinstance<TensorDesc>(input))
      declared_descs = input.cast<TensorDesc>();
    else
      value = parse_host_values(py::reinterpret_borrow<py::object>(input), "inputs[" + std::to_string(inputs.values.size() - 1) + "]");
  }
  return inputs;
}

// The name of an activation, optionally with its attributes.
using Activation = std::variant<std::monostate, std::string, std::pair<std::string, Record>>;

Operator make_operator(const std::string& name, const py::typing::Iterable<OperatorInput>& inputs,
                       std::vector<std::optional<TensorDesc>> outputs, const Activation& activation, const py::kwargs& attributes) {
  OperatorInputs parsed = parse_inputs(inputs);
  for (auto& value : parsed.values)
    if (value) value = HostTensor::copy_of(value->desc, value->data);  // copy, so that later changes to the array have no effect
  Operator operation(replace_deprecated_name(name), std::move(parsed.declared_descs), std::move(outputs), parse_attributes(attributes),
                     std::move(parsed.values));
  if (const auto* activation_name = std::get_if<std::string>(&activation)) operation.set_activation(*activation_name, {});
  if (const auto* name_and_attributes = std::get_if<std::pair<std::string, Record>>(&activation))
    operation.set_activation(name_and_attributes->first, parse_attributes(name_and_attributes->second));
  return operation;
}

std::vector<std::optional<TensorDesc>> infer_output_descs(const std::string& op, const py::typing::Iterable<OperatorInput>& args,
                                                          const Integer& num_outputs, const py::kwargs& attributes) {
  const size_t outputs = parse_output_count(num_outputs, op);
  const OperatorRow& row = find_operator_row(op);
  const Attributes checked = validate_attributes(row, op, parse_attributes(attributes));
  const OperatorInputs inputs = parse_inputs(args);
  check_inputs(row, op, inputs.tensor_descs(), outputs);
  ShapeContext context(op, checked, inputs.tensor_descs(), inputs.host_tensors(), outputs);
  row.shape(context);
  return context.take_outputs();
}

py::typing::Optional<py::typing::List<py::array>> evaluate_node(const std::string& op, const py::typing::Iterable<OperatorInput>& args,
                                                                size_t outputs, const py::kwargs& attributes) {
  const OperatorRow& row = find_operator_row(op);
  const Attributes checked = validate_attributes(row, op, parse_attributes(attributes));
  const OperatorInputs inputs = parse_inputs(args);
  check_inputs(row, op, inputs.tensor_descs(), outputs);
  const auto values = evaluate_on_host(row, op, checked, inputs.host_tensors());
  if (!values || std::any_of(values->begin(), values->end(), [](const HostTensor& value) { return bits(value.desc.dtype) < 8; }))
    return py::none();
  py::list arrays;
  for (const HostTensor& value : *values) arrays.append(copy_to_array(value));
  return arrays;
}

ExprType parse_expr_type(const std::string& type) {
  for (const auto dtype : {DType::bool_, DType::int32, DType::uint32, DType::int64, DType::uint64, DType::float32})
    if (name(dtype) == type) return to_expr_type(dtype);
  throw GraphError("type", "'" + type + "'; expressions compute in bool, int32, uint32, int64, uint64 and float32");
}

// Returns an int if all inputs are ints, else a float.
py::typing::Union<int64_t, double> evaluate_expression(const Expression& self, const py::typing::Dict<py::str, py::object>& values) {
  std::map<std::string, int64_t> integers;
  std::map<std::string, double> reals;
  for (const auto& [key, value] : values) {
    const auto name = key.cast<std::string>();
    reals.emplace(name, value.cast<double>());
    if (is_integer(value)) integers.emplace(name, value.cast<int64_t>());
  }
  if (integers.size() == reals.size() && !reals.empty()) return py::int_(self.evaluate(integers));
  return py::float_(self.evaluate(reals));
}

py::typing::Tuple<py::str, py::str> make_expression_glsl(const Expression& self, const std::map<std::string, std::string>& types) {
  std::map<std::string, ExprType> named;
  for (const auto& [name, type] : types) named.emplace(name, parse_expr_type(type));
  ExprType result = ExprType::f32;
  const std::string text = self.to_glsl(named, &result);
  return py::make_tuple(text, std::string(get_glsl_type_name(result)));
}

// Binds operator schema classes.
void bind_schemas(py::module_& module) {
  py::class_<ValueRole>(module, "ValueRole", "An input or output of an operator.")
      .def_property_readonly("name", [](const ValueRole& self) { return self.name; })
      .def_property_readonly("dtypes", &list_dtypes,
                             "Supported element types; empty if the value exists in ONNX but the engine does not support it.")
      .def_readonly("optional", &ValueRole::optional)
      .def_readonly("variadic", &ValueRole::variadic, "Whether it stands for any number of values.")
      .def_property_readonly(
          "type", [](const ValueRole& self) { return self.type == 0 ? std::string() : std::string(1, self.type); },
          "Letter shared by values of the same element type; empty if its type is independent.")
      .def("__repr__",
           [](const ValueRole& self) { return "<ValueRole " + std::string(self.name) + ": " + join_dtype_names(self.dtypes) + ">"; });
  py::class_<AttributeSchema>(module, "AttributeSchema", "An attribute of an operator.")
      .def_property_readonly("name", [](const AttributeSchema& self) { return self.name; })
      .def_property_readonly("kind", &get_attribute_kind, "'int', 'float', 'string', 'ints', 'floats', 'strings' or 'tensor'.")
      .def_property_readonly("required", [](const AttributeSchema& self) { return !self.fallback && !self.optional; })
      .def_property_readonly(
          "default", [](const AttributeSchema& self) { return self.fallback ? make_python_attribute(*self.fallback) : py::none(); },
          "Default value; None if the attribute is required or may be omitted.")
      .def_property_readonly(
          "choices",
          [](const AttributeSchema& self) -> py::typing::List<py::object> {
            py::list choices;
            for (const AttributeValue& choice : self.choices) choices.append(make_python_attribute(choice));
            return choices;
          },
          "Supported values; empty: any.")
      .def("__repr__", [](const AttributeSchema& self) {
        return "<AttributeSchema " + std::string(self.name) + ": " + std::string(get_attribute_kind(self)) + ">";
      });
}

void bind_operator_row(py::module_& module) {
  py::class_<OperatorRow>(module, "OperatorRow", "A row of the operator table, for the newest version of its ONNX operator.")
      .def_readonly("name", &OperatorRow::name)
      .def_property_readonly(
          "skeleton", [](const OperatorRow& self) { return get_kernel_kind_name(self.skeleton); },
          "The kind of kernel that the operator lowers to.")
      .def_property_readonly("inputs", [](const OperatorRow& self) { return self.schema.inputs; })
      .def_property_readonly("outputs", [](const OperatorRow& self) { return self.schema.outputs; })
      .def_property_readonly("attributes", [](const OperatorRow& self) { return self.schema.attributes; })
      .def_property_readonly(
          "ranks", [](const OperatorRow& self) { return std::pair(self.schema.min_rank, self.schema.max_rank); },
          "Minimum and maximum rank of the first input.")
      .def_property_readonly("in_place", &find_in_place_pairs,
                             "(input, output) pairs that may share memory if the operator is one dispatch.")
      .def_property_readonly(
          "host_inputs",
          [](const OperatorRow& self) {
            std::vector<size_t> inputs;
            for (size_t i = 0; i < 32; ++i)
              if (has_bit(self.host_inputs, i)) inputs.push_back(i);
            return inputs;
          },
          "Inputs whose values must be known on the host: axes, shapes, counts.")
      .def_property_readonly(
          "index_input",
          [](const OperatorRow& self) { return self.indices ? std::optional(self.indices(Attributes(), {}).input) : std::nullopt; },
          "The input of indices or lengths that check_indices=True checks for out-of-range values; None if there is none.")
      .def_property_readonly(
          "definition", [](const OperatorRow& self) { return self.schema.definition; },
          "The operator as the body of a function of ONNX operators, in ONNX's text format; empty if ONNX or a rule of validation defines "
          "it.")
      .def_readonly("expression", &OperatorRow::expression, "The expression computed by an elementwise operator; empty for others.")
      .def("__repr__", [](const OperatorRow& self) { return "<OperatorRow " + std::string(self.name) + ">"; });
}

void bind_operator_table(py::module_& module) {
  bind_schemas(module);
  bind_operator_row(module);
  module.def(
      "operators",
      [] {
        std::vector<const OperatorRow*> rows;
        for (const auto& row : operators()) rows.push_back(&row);
        return rows;
      },
      py::return_value_policy::reference, "Return all operators, sorted by name.");
  module.def(
      "has_operator",
      [](const std::string& name, const std::string& domain) {
        return find_operator(domain.empty() || domain == "ai.onnx" ? name : domain + "::" + name) != nullptr;
      },
      py::arg("name"), py::arg("domain") = "", "Return whether the operator table has this operator in this domain (by default ONNX's).");
  module.def("output_descs", &infer_output_descs, py::arg("op"), py::arg("inputs"), py::arg("outputs") = 1,
             "Return the packed TensorDescs of an operator's outputs, as Operator expects them; None for an omitted output.\n"
             "inputs: for each a TensorDesc, an array (known values), or None if omitted.\n"
             "outputs: number of outputs.\n"
             "attributes: by name.\n"
             "Raise GraphError, UnsupportedError.");
  module.def("evaluate_on_host", &evaluate_node, py::arg("op"), py::arg("inputs"), py::arg("outputs") = 1,
             "Return the values of the outputs as arrays; None if the host cannot compute them.");
}

void bind_expression(py::module_& module) {
  py::class_<Expression>(module, "Expression",
                         "A typed scalar expression over named parameters: the definition of an elementwise operator.")
      .def(py::init(&Expression::parse), py::arg("text"), "Parse an expression. Raise Error with the position of a syntax error.")
      .def_property_readonly("names", &Expression::names, "Free names, in order of first use.")
      .def("substitute", &Expression::substitute, py::arg("replacements"))
      .def(
          "weight", &Expression::estimate_compile_cost, py::arg("has_doubles") = false,
          "Return the cost of compiling its GLSL: about the number of instructions its functions expand to, in double or float arithmetic.")
      .def("glsl", &make_expression_glsl, py::arg("types"), "Return (source, GLSL type of the result) for these dtypes of the names.")
      .def("evaluate", &evaluate_expression, py::arg("values"),
           "Evaluate one element on the host: exactly for integers, otherwise in double precision.");
}

void bind_precision(py::module_& module) {
  py::class_<PrecisionSupport>(module, "PrecisionSupport", "How a device runs operators at a precision.")
      .def_property_readonly("precision", [](const PrecisionSupport& self) { return std::string(self.precision); })
      .def_property_readonly(
          "storage", [](const PrecisionSupport& self) { return std::string(name(self.storage)); },
          "Internal storage type of floats: 'fp32', 'fp16', 'fp16_packed', 'bf16' or 'bf16_packed'.")
      .def_readonly("matrices", &PrecisionSupport::matrices,
                    "Whether cooperative matrices support this precision with float32 accumulation.")
      .def_readonly("lacks", &PrecisionSupport::lacks,
                    "Device features and shader compiler extensions missing for native storage and cooperative matrices.")
      .def("__repr__", [](const PrecisionSupport& self) {
        return "<PrecisionSupport " + std::string(self.precision) + ": " + std::string(name(self.storage)) +
               (self.matrices ? ", cooperative matrices>" : ">");
      });
  module.def("precision_support", &precision_support, py::arg("device"), py::call_guard<GilRelease>(),
             "Return how a device runs operators at each precision.\n"
             "device: from devices(), or the info of a context.");
}

constexpr const char* kOptions =
    "Compile the operator for a context.\n"
    "precision: internal type of 16-bit and 32-bit floats, \"fp32\", \"fp16\" or \"bf16\", with float32 accumulation. Bound tensors keep "
    "their described dtypes and are converted on load and store; owned tensors are converted once, by the initializer. None: the described "
    "dtypes.\n"
    "flags: names of execution flags. DESCRIPTORS_VOLATILE: bindings may change after a dispatch until the list is executed, at the cost "
    "of re-recording. ALLOW_HALF_PRECISION_COMPUTATION: precision fp16 instead of fp32 or None. DISABLE_META_COMMANDS: no effect, since "
    "there are no vendor kernels. DETERMINISTIC: apply repeated updates of an element by ScatterElements, ScatterND or MaxUnpool in "
    "order.\n"
    "Raise UnsupportedError.";

}  // namespace

py::object make_python_attribute(const AttributeValue& value) {
  return std::visit(
      [](const auto& stored_value) -> py::object {
        if constexpr (std::is_same_v<std::decay_t<decltype(stored_value)>, HostTensor>)
          return copy_to_array(stored_value);
        else
          return py::cast(stored_value);
      },
      value);
}

Attributes parse_attributes(const py::dict& dict) {
  Attributes attributes;
  for (const auto& [key, value] : dict) {
    const auto name = key.cast<std::string>();
    if (!value.is_none()) attributes.set(name, parse_attribute(name, value));
  }
  return attributes;
}

void bind_operators(py::module_& module) {
  bind_precision(module);
  bind_operator_table(module);
  bind_expression(module);
  py::class_<CompiledOperator, Dispatchable, std::shared_ptr<CompiledOperator>>(
      module, "CompiledOperator", "An operator or a whole graph, compiled for a device and a precision.");
  py::class_<Initializer, Dispatchable, std::shared_ptr<Initializer>>(
      module, "Initializer", "Initializer of compiled operators: copies their owned weights to the persistent resource, once.")
      .def(py::init<std::shared_ptr<Context>, std::vector<std::shared_ptr<const CompiledOperator>>>(), py::arg("context").none(false),
           py::arg("operators"))
      .def("reset", &Initializer::reset, py::arg("operators"),
           "Switch to other operators; existing tables and lists become invalid. Raise BindingError (I6) while an earlier initialisation "
           "is running.");
  py::class_<Operator>(module, "Operator", "An operator described by name, tensors and attributes, independent of a device.")
      .def(py::init(&make_operator), py::arg("name"), py::arg("inputs"), py::arg("outputs"), py::arg("activation") = py::none(),
           "Describe an operator. Further keywords are attributes.\n"
           "inputs, outputs: a TensorDesc, or None for an omitted optional tensor. Inputs listed in host_inputs by operators() (axes, "
           "shapes, counts) are given as values: an array, or a number or list of numbers (int64 or float32). Their slots are left "
           "unbound.\n"
           "activation: applied to each result before it is rounded and stored: the name of an elementwise operator of one float ('Relu'), "
           "or a pair of name and attributes, ('LeakyRelu', {'alpha': 0.1}).\n"
           "Raise UnsupportedError (in compile() if the kernels do not support an activation), GraphError, BindingError (K5) for arrays of "
           "a dtype that tensors do not support.")
      .def_property_readonly("name", [](const Operator& self) { return self.row().name; })
      .def(
          "compile",
          [](const Operator& self, std::shared_ptr<Context> context, const std::optional<std::string>& precision,
             const std::vector<std::string>& flags) {
            const GilRelease release;
            return self.compile(std::move(context), parse_execution_options(precision, flags));
          },
          py::arg("context").none(false), py::arg("precision") = py::none(), py::arg("flags") = std::vector<std::string>(), kOptions);
}

}  // namespace pumice
