// Helpers for recurrent operations: rules for matching sizes, activations, bidirectional sequences.
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
// Checks that these operand axes have the same size, and infers unknown sizes from known ones. Skips omitted operands.
void expect_equal_sizes(Operands& o, std::initializer_list<OperandAxis> axes, std::string_view rule);
// Throws if any tensor operand has a size of 0.
void reject_empty(Operands& o, std::string_view rule);
void expect_ranks(Operands& o, size_t first, size_t count, size_t rank);

// Returns the ONNX name of the activation of a recurrent cell, from its NNAPI code in operand i.
std::string read_cell_activation(const Expansion& e, size_t i, std::string_view rule);
// Applies the activation to a value.
ValueId apply_cell_activation(Expansion& e, ValueId id, const std::string& activation);

// Use of the auxiliary input of a bidirectional operation: none; parallel: the backward direction reads it instead of x; cross: both
// directions read it in addition to x.
enum class AuxInputMode : uint8_t { none, parallel, cross };

// The result and final states of one direction.
struct LayerOutputs {
  ValueId y = kAbsent;
  std::vector<ValueId> states;
};
void add_separate_direction_outputs(Expansion& e, const LayerOutputs& forward, const LayerOutputs& backward, bool concat_results);

// Whether one node can compute both directions concurrently: they share the input and the number of units.
bool runs_as_single_node(const Operands& o, AuxInputMode aux_mode, size_t forward_biases, size_t backward_biases);
// Stacks the operands of both directions on a new direction axis: the first axis or, for states that are not time-major, the axis after
// the batch axis.
ValueId stack_directions(Expansion& e, ValueId forward, ValueId backward, int64_t axis = 0);
// Adds the outputs of a bidirectional node.
void add_bidirectional_outputs(Expansion& e, const std::vector<ValueId>& outputs, bool time_major, bool concat_results);

}  // namespace pumice::nnapi
