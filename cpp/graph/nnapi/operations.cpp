#include "graph/nnapi/operations.h"

#include <algorithm>

namespace pumice::nnapi {
namespace {

Operations collect_operations() {
  Operations operations;
  for (const auto make : {make_elementwise_operations,
                          make_data_movement_operations,
                          make_reverse_transpose_operations,
                          make_reduction_operations,
                          make_matmul_conv_operations,
                          make_image_operations,
                          make_transpose_conv_operations,
                          make_recurrent_operations,
                          make_lstm_operations,
                          make_lookup_operations,
                          make_detection_operations,
                          make_quantized_16bit_lstm_operations,
                          make_int8_lstm_operations,
                          make_postprocessing_operations,
                          make_proposal_operations,
                          make_roi_operations,
                          make_random_operations,
                          make_lsh_projection_operations,
                          make_box_with_nms_limit_operations,
                          make_control_flow_operations})
    for (Operation& operation : make()) operations.push_back(std::move(operation));
  std::ranges::sort(operations, {}, &Operation::name);
  return operations;
}

}  // namespace

std::string_view name(OperandKind kind) {
  constexpr std::string_view names[] = {"tensor", "list", "scalar", "pairs", "graph"};
  return names[static_cast<size_t>(kind)];
}

std::span<const Operation> get_operations() {
  static const Operations all = collect_operations();
  return all;
}

const Operation* find_operation(std::string_view name) {
  if (!name.starts_with("nnapi::")) return nullptr;  // avoids building the table for graphs without NNAPI operations
  const auto all = get_operations();
  const auto found = std::ranges::lower_bound(all, name, {}, &Operation::name);
  return found != all.end() && found->name == name ? &*found : nullptr;
}

}  // namespace pumice::nnapi
