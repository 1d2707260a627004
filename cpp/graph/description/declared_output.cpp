#include "graph/description/declared_output.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/error.h"
#include "graph/description/node_check.h"

namespace pumice {
namespace {

void check_declared_shape(const std::string& name, const Shape& declared, const Shape& actual) {
  bool fits = declared.size() == actual.size();
  for (size_t axis = 0; fits && axis < actual.size(); ++axis)
    fits = declared[axis] == kUnknownSize || actual[axis] == kUnknownSize || declared[axis] == actual[axis];
  if (!fits)
    throw GraphError(name,
                     "the output is declared with shape " + format_shape(declared) + ", but its value has shape " + format_shape(actual));
}

struct DeclaredShapeCheck : NodeCheck {
  DeclaredShapeCheck(std::string output, Shape declared) : name(std::move(output)), shape(std::move(declared)) {}
  void check(std::span<const TensorDesc* const> inputs, std::span<const HostTensor* const>) const override {
    if (inputs[0]) check_declared_shape(name, shape, inputs[0]->shape);
  }
  std::vector<size_t> find_inputs_checked_per_call(size_t) const override { return {}; }

  std::string name;
  Shape shape;
};

void check_declared_type(const std::string& name, const GraphValue& value, const DeclaredOutput& declared) {
  if (declared.dtype && *declared.dtype != value.dtype)
    throw GraphError(name, "the output is declared as " + std::string(pumice::name(*declared.dtype)) + ", but its value is " +
                               std::string(pumice::name(value.dtype)));
  const Quantization &expected = declared.quantization, &actual = value.quantization;
  const bool scales = expected.scale.empty() || expected.scale == actual.scale;
  const bool zeros = !expected.zero_point || (!actual.scale.empty() && *expected.zero_point == actual.zero_point.value_or(0));
  if (!scales || !zeros)
    throw GraphError(name, "the output is declared with " + to_string(expected) + ", but its value has " +
                               (actual.scale.empty() ? "no scale" : to_string(actual)));
}

}  // namespace

ValueId apply_declared_output(Graph& graph, const std::string& name, ValueId value, const DeclaredOutput& declared) {
  const GraphValue& actual = graph.value(value);
  const std::string output = name.empty() ? actual.name : name;
  check_declared_type(output, actual, declared);
  if (!declared.shape) return value;
  if (actual.shape) check_declared_shape(output, *declared.shape, *actual.shape);
  if (actual.is_known()) return value;
  const ValueId checked_value =
      graph.add_check(std::make_shared<const DeclaredShapeCheck>(output, *declared.shape), {value}, output + "/Require");
  for (const ValueId id : {value, checked_value}) graph.refine_shape(id, *declared.shape);
  return checked_value;
}

}  // namespace pumice
