// The table of NNAPI operations. Each expands to nodes with operators of the operator table.
#pragma once

#include <span>
#include <string_view>

#include "graph/nnapi/operation.h"

namespace pumice::nnapi {

std::span<const Operation> get_operations();             // sorted by name
const Operation* find_operation(std::string_view name);  // null if there is no such operation

Operations make_elementwise_operations();
Operations make_data_movement_operations();
Operations make_reverse_transpose_operations();
Operations make_reduction_operations();
Operations make_matmul_conv_operations();
Operations make_image_operations();
Operations make_transpose_conv_operations();
Operations make_recurrent_operations();
Operations make_lstm_operations();
Operations make_lookup_operations();
Operations make_detection_operations();
Operations make_quantized_16bit_lstm_operations();
Operations make_int8_lstm_operations();
Operations make_postprocessing_operations();
Operations make_proposal_operations();
Operations make_roi_operations();
Operations make_random_operations();
Operations make_lsh_projection_operations();
Operations make_box_with_nms_limit_operations();
Operations make_control_flow_operations();  // IF and WHILE; Graph::if_ and Graph::while_ add their nodes

}  // namespace pumice::nnapi
