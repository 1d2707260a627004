// The one table of operators: exact ONNX name, schema, shape rule, lowering. Adding an operator is a row here, a shader (or an
// expression) and a row in the test table.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/row/lowering.h"
#include "operators/row/operator_row.h"

namespace pumice {

std::span<const OperatorRow> operators();                 // sorted by name
const OperatorRow* find_operator(std::string_view name);  // null for an unknown one

// Checks attributes against the schema; fills defaults. Throws GraphError (unknown, missing, of another kind) or UnsupportedError (a
// value that the row lacks).
Attributes checked_attributes(const OperatorRow& row, std::string_view node, const Attributes& given);
// Checks counts, dtypes and rank; null for an optional input left out. Throws GraphError (wrong) or UnsupportedError (a dtype, or an
// optional input or output, that the row lacks).
void check_inputs(const OperatorRow& row, std::string_view node, const std::vector<const TensorDesc*>& inputs, size_t outputs);
// Runs the shape rule of the row, whose input 0 has to be of a rank that it takes. Throws GraphError.
void find_outputs(const OperatorRow& row, ShapeContext& node);

}  // namespace pumice
