#include "graph/nnapi/recurrent_helpers.h"

#include <algorithm>

namespace pumice::nnapi {

void expect_equal_sizes(Operands& o, std::initializer_list<OperandAxis> axes, std::string_view rule) {
  std::optional<int64_t> known;
  size_t first_known = 0;
  for (const auto& [i, axis] : axes) {
    if (!o.has(i)) continue;
    const auto size = o.size(i, axis);
    if (size && known && *size != *known)
      o.fail(i, rule,
             std::to_string(*known) + " elements expected on axis " + std::to_string(axis) + ", as " + o.describe_operand(first_known) +
                 " has; given " + o.format_shape(i));
    if (size && !known) known = size, first_known = i;
  }
  for (const auto& [i, axis] : axes)
    if (known && o.has(i)) o.assume_size(i, axis, *known);
}

void reject_empty(Operands& o, std::string_view rule) {
  for (size_t i = 0; i < o.count(); ++i) {
    if (!o.has(i) || o.get_operand_role(i).kind != OperandKind::tensor) continue;
    const auto rank = o.rank(i);
    for (size_t axis = 0; rank && axis < *rank; ++axis)
      if (o.size(i, axis) == 0) o.fail(i, rule, "positive sizes expected; given " + o.format_shape(i));
  }
}

void expect_ranks(Operands& o, size_t first, size_t count, size_t rank) {
  for (size_t i = first; i < first + count; ++i)
    if (o.has(i)) o.expect_rank(i, rank);
}

std::string read_cell_activation(const Expansion& e, size_t i, std::string_view rule) {
  switch (const int64_t code = e.read_int(i)) {
    case 0:
      return "Affine";
    case 1:
      return "Relu";
    case 3:
      return "pumice::Relu6";
    case 4:
      return "Tanh";
    case 6:
      return "Sigmoid";
    default:
      e.fail(i, rule, "0 (NONE), 1 (RELU), 3 (RELU6), 4 (TANH) or 6 (SIGMOID) expected; given " + std::to_string(code));
  }
}

ValueId apply_cell_activation(Expansion& e, ValueId id, const std::string& activation) {
  if (activation == "Affine") return id;
  if (activation == "pumice::Relu6") return e.apply_activation(id, Activation::relu6);
  return e.add(activation, {id});
}

bool runs_as_single_node(const Operands& o, AuxInputMode aux_mode, size_t forward_biases, size_t backward_biases) {
  const auto forward = o.size(forward_biases, 0);
  return aux_mode != AuxInputMode::parallel && forward && forward == o.size(backward_biases, 0);
}

ValueId stack_directions(Expansion& e, ValueId forward, ValueId backward, int64_t axis) {
  const auto unsqueeze = [&](ValueId id) { return e.add("Unsqueeze", {id, e.add_int64_vector({axis})}); };
  return e.add("Concat", {unsqueeze(forward), unsqueeze(backward)}, make_attrs({{"axis", axis}}));
}

void add_bidirectional_outputs(Expansion& e, const std::vector<ValueId>& outputs, bool time_major, bool concat_results) {
  const auto split_directions = [&](ValueId id, int64_t axis) {
    std::vector<ValueId> each = e.add_multi_output("Split", {id}, 2, make_attrs({{"axis", axis}, {"num_outputs", int64_t{2}}}));
    for (ValueId& state_value : each) state_value = e.add("Squeeze", {state_value, e.add_int64_vector({axis})});
    return each;
  };
  const int64_t direction = time_major ? 0 : 1;
  if (concat_results) {
    const ValueId y = time_major ? e.transpose(outputs[0], {0, 2, 1, 3}) : outputs[0];
    e.add_output(e.add("Reshape", {y, e.add_int64_vector({0, 0, -1})}));
  } else {
    for (const ValueId state_value : split_directions(outputs[0], direction + 1)) e.add_output(state_value);
  }
  std::vector<std::vector<ValueId>> states;
  for (size_t k = 1; k < outputs.size(); ++k) states.push_back(split_directions(outputs[k], direction));
  for (const size_t direction_index : {0, 1})
    for (const auto& state_value : states) e.add_output(state_value[direction_index]);
}

void add_separate_direction_outputs(Expansion& e, const LayerOutputs& forward, const LayerOutputs& backward, bool concat_results) {
  if (concat_results) {
    e.add_output(e.add("Concat", {forward.y, backward.y}, make_attrs({{"axis", int64_t{-1}}})));
  } else {
    e.add_output(forward.y);
    e.add_output(backward.y);
  }
  for (const LayerOutputs* layer : {&forward, &backward})
    for (const ValueId state : layer->states) e.add_output(state);
}

}  // namespace pumice::nnapi
