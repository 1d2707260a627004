// Parts that recurrent operations share: rules about sizes that belong together, activations, and sequences of two directions.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

inline constexpr size_t kNoOperand = static_cast<size_t>(-1);

struct Place {
  size_t operand, axis;
};
// Axes of operands, of known rank, that have one size: each that is known tells the others. Operands that are left out are passed over.
void expect_one_size(Operands& o, std::initializer_list<Place> places, std::string_view rule);
// Refuses an operand, not left out, of which some size is 0.
void refuse_empty(Operands& o, std::string_view rule);
void expect_ranks(Operands& o, size_t first, size_t count, size_t rank);

// An activation of a recurrent cell by its code, as rows of recurrent operators call it.
std::string cell_activation(const Expansion& e, size_t i, std::string_view rule);
// The same on a value.
ValueId cell_activated(Expansion& e, ValueId id, const std::string& activation);

// How the second input of a bidirectional operation is used.
enum class Linking : uint8_t { none, parallel, cross };

// Both directions' results as outputs: joined on the last axis, or each its own; then their states.
struct Layer {
  ValueId y = kAbsent;
  std::vector<ValueId> states;
};
void give_both(Expansion& e, const Layer& forward, const Layer& backward, bool merged);

// Whether both directions become one node of a row, which runs them side by side: those that have the same input and number of units.
bool runs_as_one(const Operands& o, Linking linking, size_t forward_biases, size_t backward_biases);
// Operands of a node of both directions of those of each, whose first axis is new; states have the new axis behind that of the batch
// unless time is first.
ValueId both_directions(Expansion& e, ValueId forward, ValueId backward, int64_t axis = 0);
// Gives what such a node has made as outputs.
void give_node_of_both(Expansion& e, const std::vector<ValueId>& made, bool time_major, bool merged);

}  // namespace pumice::nnapi
