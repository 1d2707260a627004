#include "operators/elementwise/elementwise_expression.h"

#include <array>
#include <map>

#include "operators/elementwise/lowerings.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

bool is_variadic(const OperatorRow& row) {
  return row.schema.inputs.back().variadic;
}

void add_attribute_literals(const Attributes& attributes, std::map<std::string, Expression>& replacements) {
  for (const auto& [name, value] : attributes.all()) {
    if (const auto* integer = std::get_if<int64_t>(&value)) replacements.emplace(name, Expression::literal(static_cast<double>(*integer)));
    if (const auto* real = std::get_if<double>(&value)) replacements.emplace(name, Expression::literal(*real));
    if (const auto* text = std::get_if<std::string>(&value)) replacements.emplace(name, Expression::text(*text));
  }
}

void infer_custom_elementwise_shape(ShapeContext& node) {
  node.output(0, static_cast<DType>(node.attributes().integer(kOutputDtype)), broadcast_inputs(node));
}

}  // namespace

const OperatorRow& get_custom_elementwise_row(size_t operands) {
  constexpr std::array<std::string_view, kMaxCustomInputs> names{"in0", "in1", "in2", "in3"};
  static const auto rows = [&] {
    std::array<OperatorRow, kMaxCustomInputs> custom_rows;
    for (size_t count = 1; count <= kMaxCustomInputs; ++count) {
      OperatorRow& row = custom_rows[count - 1];
      row.name = "Map";
      for (size_t i = 0; i < count; ++i) row.schema.inputs.push_back({names[i], kAny});
      row.schema.outputs.push_back({"y", kAny});
      row.shape = infer_custom_elementwise_shape;
      set_elementwise_properties(row);
    }
    return custom_rows;
  }();
  return rows.at(operands - 1);
}

std::vector<std::string> get_elementwise_input_names(const OperatorRow& row, size_t inputs) {
  const auto& roles = row.schema.inputs;
  std::vector<std::string> names;
  for (size_t i = 0; i < inputs; ++i)
    names.push_back(is_variadic(row) && i + 1 >= roles.size() ? std::string(roles.back().name) + std::to_string(i + 1 - roles.size())
                                                              : std::string(roles.at(i).name));
  return names;
}

// Left fold: f(f(a0, a1), a2) for "f(a, b)"; a suffix "; g(y, count)" is applied to the result and the input count.
Expression make_fold_expression(std::string_view text, const std::vector<std::string>& names, size_t count) {
  const size_t end = text.find(';');
  const Expression binary = Expression::parse(text.substr(0, end));
  Expression result = Expression::name(names[0]);
  for (size_t i = 1; i < names.size(); ++i) result = binary.substitute({{"a", result}, {"b", Expression::name(names[i])}});
  if (end == std::string_view::npos || count == 0) return result;
  return Expression::parse(text.substr(end + 1)).substitute({{"y", result}, {"count", Expression::literal(static_cast<double>(count))}});
}

Expression make_elementwise_expression(const OperatorRow& row, const Attributes& attributes, const std::vector<bool>& present) {
  if (is_variadic(row)) return make_fold_expression(row.expression, get_elementwise_input_names(row, present.size()), present.size());
  const Expression expression = Expression::parse(row.expression);
  std::map<std::string, Expression> replacements;
  add_attribute_literals(attributes, replacements);
  for (size_t i = 0; i < row.schema.inputs.size(); ++i)
    if (i >= present.size() || !present[i]) replacements.insert_or_assign(std::string(row.schema.inputs[i].name), Expression::absent());
  return expression.substitute(replacements);
}

}  // namespace pumice
