#include "graph/control_flow/scalar_loop_source.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "operators/elementwise/elementwise_expression.h"

namespace pumice {
namespace {

constexpr size_t kMaxScalarNodes = 64;

bool is_scalar(DType dtype) {
  return contains(make_dtype_set(DType::bool_, DType::int32, DType::uint32, DType::float32), dtype);
}

// Returns the GLSL expression that converts a uint32 word to a value of this type.
std::string decode_word(const std::string& word, DType dtype) {
  switch (dtype) {
    case DType::bool_:
      return "((" + word + " & 255u) != 0u)";
    case DType::int32:
      return "int(" + word + ")";
    case DType::float32:
      return "uintBitsToFloat(" + word + ")";
    default:
      return word;
  }
}

std::string encode_word(const std::string& value, DType dtype) {
  return dtype == DType::bool_     ? "(" + value + " ? 1u : 0u)"
         : dtype == DType::float32 ? "floatBitsToUint(" + value + ")"
                                   : "uint(" + value + ")";
}

std::string make_literal(const HostTensor& constant) {
  uint32_t word = 0;
  std::copy_n(constant.data, constant.desc.element_bytes(), reinterpret_cast<std::byte*>(&word));
  return decode_word(std::to_string(word) + "u", constant.desc.dtype);
}

// Generates GLSL statements for one graph, given GLSL names for its inputs.
class ScalarCodeGenerator {
 public:
  // `prefix`: prefix of the generated variable names.
  ScalarCodeGenerator(const Graph& graph, std::string prefix, const std::vector<std::string>& inputs)
      : graph_(graph), prefix_(std::move(prefix)), names_(graph.values().size()) {
    for (size_t i = 0; i < inputs.size(); ++i) names_[to_index(graph.inputs()[i])] = inputs[i];
  }

  bool generate() {
    if (graph_.nodes().size() > kMaxScalarNodes) return false;
    for (const GraphValue& value : graph_.values())
      if (!is_scalar(value.dtype) || (value.constant && value.constant->desc.shape != Shape{1} && value.constant->desc.rank() != 0))
        return false;
    return std::ranges::all_of(graph_.nodes(), [&](const GraphNode& node) { return add_node(node); });
  }

  std::string statements;

  const std::string& get_output_variable(size_t j) const { return names_[to_index(graph_.outputs()[j].second)]; }

 private:
  const std::string& get_variable_name(ValueId id) {
    std::string& known = names_[to_index(id)];
    if (known.empty()) known = declare_variable(graph_.value(id).dtype, make_literal(*graph_.value(id).constant));
    return known;
  }

  std::string declare_variable(DType dtype, const std::string& value) {
    std::string variable = prefix_ + std::to_string(next_++);
    const std::string qualifier =
        dtype == DType::float32 ? "precise " : "const ";  // `precise`: each operation rounds separately, without fused multiply-add
    statements += qualifier + std::string(get_glsl_type_name(to_expr_type(dtype))) + " " + variable + " = " + value + "; ";
    return variable;
  }

  bool add_node(const GraphNode& node) {
    if (node.control || node.outputs.size() != 1) return false;
    const GraphValue& output_value = graph_.value(node.outputs[0]);
    if (node.row->alias.forwards == ForwardedInput::tensor) {
      names_[to_index(node.outputs[0])] = get_variable_name(node.inputs[0]);
      return true;
    }
    if (node.row->skeleton != KernelKind::map || node.row->expression.empty() || node.row->host_inputs != 0) return false;
    std::vector<bool> present;
    std::map<std::string, Expression> operands;
    std::map<std::string, ExprType> types;
    const auto roles = get_elementwise_input_names(*node.row, node.inputs.size());
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      present.push_back(node.inputs[k] != kAbsent);
      if (!present[k]) continue;
      const std::string& name = get_variable_name(node.inputs[k]);
      operands.emplace(roles[k], Expression::name(name));
      types[name] = to_expr_type(graph_.value(node.inputs[k]).dtype);
    }
    ExprType type = ExprType::f32;
    std::string text;
    try {
      text = make_elementwise_expression(*node.row, node.attributes, present).substitute(operands).to_glsl(types, &type);
    } catch (const Error&) {
      return false;  // incompatible types
    }
    if (type != to_expr_type(output_value.dtype)) return false;
    names_[to_index(node.outputs[0])] = declare_variable(output_value.dtype, text);
    return true;
  }

  const Graph& graph_;
  std::string prefix_;
  std::vector<std::string> names_;  // GLSL variable of each value
  size_t next_ = 0;
};

std::string join_strings(const std::vector<std::string>& strings) {
  std::string text;
  for (const std::string& string_part : strings) text += string_part;
  return text;
}

}  // namespace

std::optional<Macros> make_scalar_loop_macros(const ControlFlow& flow) {
  std::vector<std::string> names, load, store, next;
  const Graph& body = *flow.second;
  for (size_t i = 0; i < body.inputs().size(); ++i) names.push_back("s" + std::to_string(i));
  ScalarCodeGenerator condition(*flow.first, "c", names), steps(body, "n", names);
  if (!condition.generate() || !steps.generate()) return {};
  for (size_t i = 0; i < names.size(); ++i) {
    const DType dtype = body.value(body.inputs()[i]).dtype;
    const std::string word = "words[" + std::to_string(i) + "]";
    load.push_back(std::string(get_glsl_type_name(to_expr_type(dtype))) + " " + names[i] + " = " + decode_word(word, dtype) + "; ");
    if (i >= flow.carried + flow.state) continue;
    // Computes all next values before assigning any, because a next value may depend on the current value of another variable.
    const std::string temporary = "h" + std::to_string(i);
    next.push_back("const " + std::string(get_glsl_type_name(to_expr_type(dtype))) + " " + temporary + " = " +
                   steps.get_output_variable(i) + "; ");
    store.push_back(word + " = " + encode_word(names[i], dtype) + "; ");
  }
  for (size_t i = 0; i < store.size(); ++i) next.push_back(names[i] + " = h" + std::to_string(i) + "; ");
  return Macros{{"VALUES", std::to_string(names.size()) + "u"},
                {"LOAD", join_strings(load)},
                {"CONDITION", condition.statements + "continues = " + condition.get_output_variable(0) + ";"},
                {"BODY", steps.statements + join_strings(next)},
                {"STORE", join_strings(store)}};
}

}  // namespace pumice
