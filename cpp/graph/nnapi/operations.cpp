#include "graph/nnapi/operations.h"

#include <algorithm>

namespace pumice::nnapi {
namespace {

Operations all_operations() {
  Operations operations;
  for (const auto make : {elementwise_operations, movement_operations,       reverse_transpose_operations, reduction_operations,
                          matmul_conv_operations, image_operations,          transpose_conv_operations,    recurrent_operations,
                          lstm_operations,        lookup_operations,         detection_operations,         quantized_16bit_lstm_operations,
                          int8_lstm_operations,   postprocessing_operations, proposal_operations,          roi_operations,
                          random_operations,      lsh_projection_operations, box_limit_operations,         control_flow_operations})
    for (Operation& operation : make()) operations.push_back(std::move(operation));
  std::ranges::sort(operations, {}, &Operation::name);
  return operations;
}

}  // namespace

std::string_view name(OperandKind kind) {
  constexpr std::string_view names[] = {"tensor", "list", "scalar", "pairs", "graph"};
  return names[static_cast<size_t>(kind)];
}

std::span<const Operation> operations() {
  static const Operations all = all_operations();
  return all;
}

const Operation* find_operation(std::string_view name) {
  if (!name.starts_with("nnapi::")) return nullptr;  // does not build the table for graphs without NNAPI operations
  const auto all = operations();
  const auto found = std::ranges::lower_bound(all, name, {}, &Operation::name);
  return found != all.end() && found->name == name ? &*found : nullptr;
}

}  // namespace pumice::nnapi
