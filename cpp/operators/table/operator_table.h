// The operator table: ONNX name, schema, shape rule, lowering. To add an operator, add a row here, a shader (or an expression) and a row in
// the test table.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/table/lowering.h"
#include "operators/table/operator_row.h"

namespace pumice {

std::span<const OperatorRow> operators();                 // sorted by name
const OperatorRow* find_operator(std::string_view name);  // null if unknown

// Checks attributes against the schema and fills in defaults. Throws GraphError if an attribute is unknown, missing or of the wrong kind,
// UnsupportedError if the operator does not support its value.
Attributes validate_attributes(const OperatorRow& row, std::string_view node, const Attributes& node_attributes);
// Checks the number of inputs and outputs, dtypes and rank. Omitted optional inputs are null. Throws GraphError if they are invalid,
// UnsupportedError if the operator does not support a dtype or an optional input or output.
void check_inputs(const OperatorRow& row, std::string_view node, const std::vector<const TensorDesc*>& inputs, size_t outputs);
// Checks the rank of input 0 and runs the operator's shape rule. Throws GraphError if the inputs break it.
void infer_outputs(const OperatorRow& row, ShapeContext& node);

}  // namespace pumice
