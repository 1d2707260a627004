// NNAPI operations by name; each expands to a few nodes of the operator table.
#pragma once

#include <span>
#include <string_view>

#include "graph/nnapi/operation.h"

namespace pumice::nnapi {

std::span<const Operation> operations();                 // sorted by name
const Operation* find_operation(std::string_view name);  // null if unknown

Operations elementwise_operations();
Operations movement_operations();
Operations reverse_transpose_operations();
Operations reduction_operations();
Operations matmul_conv_operations();
Operations image_operations();
Operations transpose_conv_operations();
Operations recurrent_operations();
Operations lstm_operations();
Operations lookup_operations();
Operations detection_operations();
Operations quantized_16bit_lstm_operations();
Operations int8_lstm_operations();
Operations postprocessing_operations();
Operations proposal_operations();
Operations roi_operations();
Operations random_operations();
Operations lsh_projection_operations();
Operations box_limit_operations();
Operations control_flow_operations();  // IF and WHILE, which Graph::if_ and Graph::while_ add

}  // namespace pumice::nnapi
