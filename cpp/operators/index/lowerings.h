// Lowerings and host evaluations of the operators that move, gather, scatter or fill elements.
#pragma once

#include "operators/host/host_node.h"
#include "operators/table/lowering.h"

namespace pumice {

void lower_concat(LowerContext& node);
void lower_split(LowerContext& node);
void lower_pad(LowerContext& node);
void lower_slice(LowerContext& node);
void lower_transpose(LowerContext& node);
void lower_transpose_by(LowerContext& node);
void lower_depth_to_space(LowerContext& node);
void lower_space_to_depth(LowerContext& node);
void lower_range(LowerContext& node);
void lower_gather(LowerContext& node);
void lower_gather_elements(LowerContext& node);
void lower_gather_nd(LowerContext& node);
void lower_scatter_elements(LowerContext& node);
void lower_scatter_nd(LowerContext& node);
void lower_max_unpool(LowerContext& node);
void lower_compress(LowerContext& node);
void lower_tile(LowerContext& node);
void lower_tensor_scatter(LowerContext& node);
void lower_bit_cast(LowerContext& node);
void lower_expand(LowerContext& node);
void lower_copy(LowerContext& node);  // copies input 0; for operators with `views`, if the output cannot alias the input

// Evaluate operators on the host. They throw a GraphError that names the node if an index is out of range.
HostResults evaluate_range(const HostNode& node);
HostResults evaluate_view(const HostNode& node);
HostResults evaluate_shape(const HostNode& node);
HostResults evaluate_size(const HostNode& node);
HostResults evaluate_position(const HostNode& node);
HostResults evaluate_distinct_axes(const HostNode& node);
HostResults evaluate_constant(const HostNode& node);
HostResults evaluate_transpose(const HostNode& node);
HostResults evaluate_transpose_by(const HostNode& node);
HostResults evaluate_slice(const HostNode& node);
HostResults evaluate_expand(const HostNode& node);
HostResults evaluate_split(const HostNode& node);
HostResults evaluate_concat(const HostNode& node);
HostResults evaluate_gather(const HostNode& node);
HostResults evaluate_gather_elements(const HostNode& node);
HostResults evaluate_gather_nd(const HostNode& node);
HostResults evaluate_scatter_elements(const HostNode& node);
HostResults evaluate_scatter_nd(const HostNode& node);
HostResults evaluate_constant_of_shape(const HostNode& node);
HostResults evaluate_one_hot(const HostNode& node);
HostResults evaluate_trilu(const HostNode& node);
HostResults evaluate_tile(const HostNode& node);
HostResults evaluate_non_zero(const HostNode& node);
HostResults evaluate_compress(const HostNode& node);
HostResults evaluate_count_non_zero(const HostNode& node);

}  // namespace pumice
