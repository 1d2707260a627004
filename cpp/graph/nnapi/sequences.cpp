#include "graph/nnapi/sequences.h"

#include <algorithm>

namespace pumice::nnapi {

void expect_one_size(Operands& o, std::initializer_list<Place> places, std::string_view rule) {
  std::optional<int64_t> known;
  size_t teller = 0;
  for (const auto& [i, axis] : places) {
    if (!o.has(i)) continue;
    const auto size = o.size(i, axis);
    if (size && known && *size != *known)
      o.fail(i, std::string(rule) + ": " + std::to_string(*known) + " elements expected on axis " + std::to_string(axis) + ", as " +
                    o.called(teller) + " has; given " + o.shape_text(i));
    if (size && !known) known = size, teller = i;
  }
  for (const auto& [i, axis] : places)
    if (known && o.has(i)) o.assume_size(i, axis, *known);
}

void refuse_empty(Operands& o, std::string_view rule) {
  for (size_t i = 0; i < o.count(); ++i) {
    if (!o.has(i) || o.role(i).kind != OperandKind::tensor) continue;
    const auto rank = o.rank(i);
    for (size_t axis = 0; rank && axis < *rank; ++axis)
      if (o.size(i, axis) == 0) o.fail(i, std::string(rule) + ": sizes above 0 expected; given " + o.shape_text(i));
  }
}

void expect_ranks(Operands& o, size_t first, size_t count, size_t rank) {
  for (size_t i = first; i < first + count; ++i)
    if (o.has(i)) o.expect_rank(i, rank);
}

std::string cell_activation(const Expansion& e, size_t i, std::string_view rule) {
  switch (const int64_t code = e.integer(i)) {
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
      e.fail(i, std::string(rule) + ": 0 (NONE), 1 (RELU), 3 (RELU6), 4 (TANH) or 6 (SIGMOID) expected; given " + std::to_string(code));
  }
}

ValueId cell_activated(Expansion& e, ValueId id, const std::string& activation) {
  if (activation == "Affine") return id;
  if (activation == "pumice::Relu6") return e.activated(id, Activation::relu6);
  return e.add(activation, {id});
}

void give_both(Expansion& e, const Layer& forward, const Layer& backward, bool merged) {
  if (merged) {
    e.give(e.add("Concat", {forward.y, backward.y}, with({{"axis", int64_t{-1}}})));
  } else {
    e.give(forward.y);
    e.give(backward.y);
  }
  for (const Layer* layer : {&forward, &backward})
    for (const ValueId state : layer->states) e.give(state);
}

}  // namespace pumice::nnapi
