#include "graph/description/declared_output.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/error.h"
#include "graph/description/node_check.h"

namespace pumice {
namespace {

void check_shape(const std::string& name, const Shape& declared, const Shape& given) {
  bool fits = declared.size() == given.size();
  for (size_t axis = 0; fits && axis < given.size(); ++axis)
    fits = declared[axis] == kUnknownSize || given[axis] == kUnknownSize || declared[axis] == given[axis];
  if (!fits) throw GraphError(name, "the output is declared of shape " + shape_text(declared) + "; its value is of " + shape_text(given));
}

struct ShapeCheck : NodeCheck {
  ShapeCheck(std::string output, Shape declared) : name(std::move(output)), shape(std::move(declared)) {}
  void check(std::span<const TensorDesc* const> inputs, std::span<const HostTensor* const>) const override {
    if (inputs[0]) check_shape(name, shape, inputs[0]->shape);
  }
  std::vector<size_t> unread_lists(size_t) const override { return {}; }

  std::string name;
  Shape shape;
};

void check_type(const std::string& name, const GraphValue& value, const DeclaredOutput& declared) {
  if (declared.dtype && *declared.dtype != value.dtype)
    throw GraphError(name, "the output is declared of " + std::string(pumice::name(*declared.dtype)) + "; its value is of " +
                               std::string(pumice::name(value.dtype)));
  const Quantization &wanted = declared.quantization, &given = value.quantization;
  const bool scales = wanted.scale.empty() || wanted.scale == given.scale;
  const bool zeros = !wanted.zero_point || (!given.scale.empty() && *wanted.zero_point == given.zero_point.value_or(0));
  if (!scales || !zeros)
    throw GraphError(name, "the output is declared of " + to_string(wanted) + "; its value is of " +
                               (given.scale.empty() ? "no scale" : to_string(given)));
}

}  // namespace

ValueId declared_output(Graph& graph, const std::string& name, ValueId value, const DeclaredOutput& declared) {
  const GraphValue& given = graph.value(value);
  const std::string output = name.empty() ? given.name : name;
  check_type(output, given, declared);
  if (!declared.shape) return value;
  if (given.shape) check_shape(output, *declared.shape, *given.shape);
  if (given.is_known()) return value;
  const ValueId passed = graph.require(std::make_shared<const ShapeCheck>(output, *declared.shape), {value}, output + "/Require");
  for (const ValueId id : {value, passed}) graph.refine(id, *declared.shape);
  return passed;
}

}  // namespace pumice
