// Helpers shared by recurrent operations: rules for matching sizes, activations, bidirectional sequences.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "graph/nnapi/expansion.h"

namespace pumice::nnapi {

inline constexpr size_t kNoOperand = static_cast<size_t>(-1);

struct OperandAxis {
  size_t operand, axis;
};
// Checks that these axes have the same size and infers unknown sizes from known ones. Skips omitted operands.
void expect_equal_sizes(Operands& o, std::initializer_list<OperandAxis> axes, std::string_view rule);
// Rejects a present operand with a size of 0.
void reject_empty(Operands& o, std::string_view rule);
void expect_ranks(Operands& o, size_t first, size_t count, size_t rank);

// Returns the activation of a recurrent cell by its code, named as in recurrent operators.
std::string cell_activation(const Expansion& e, size_t i, std::string_view rule);
// Applies the activation to a value.
ValueId apply_cell_activation(Expansion& e, ValueId id, const std::string& activation);

// How the auxiliary input of a bidirectional operation is used.
enum class AuxInputMode : uint8_t { none, parallel, cross };

// The result and final states of one direction. add_both_outputs() outputs the results of both directions, concatenated on the last axis if
// `concat_results`, then the states.
struct Layer {
  ValueId y = kAbsent;
  std::vector<ValueId> states;
};
void add_both_outputs(Expansion& e, const Layer& forward, const Layer& backward, bool concat_results);

// Whether both directions become one node and run concurrently: they share the input and the number of units.
bool runs_as_single_node(const Operands& o, AuxInputMode aux_mode, size_t forward_biases, size_t backward_biases);
// Stacks the operands of both directions on a new direction axis. It is the first axis, except for states that are not time-major: there it
// follows the batch axis.
ValueId stack_directions(Expansion& e, ValueId forward, ValueId backward, int64_t axis = 0);
// Outputs the results of such a node.
void add_bidirectional_outputs(Expansion& e, const std::vector<ValueId>& outputs, bool time_major, bool concat_results);

}  // namespace pumice::nnapi
