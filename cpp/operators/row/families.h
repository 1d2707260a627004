// The lowering functions that rows of the operator table name, one per kernel family.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

void lower_conv(LowerContext& node);
void lower_conv_transpose(LowerContext& node);
void lower_grouped_conv(LowerContext& node);
void lower_gemm(LowerContext& node);
void lower_matmul(LowerContext& node);
void lower_matmul_integer(LowerContext& node);
void lower_conv_integer(LowerContext& node);
void lower_qlinear_matmul(LowerContext& node);
void lower_qlinear_conv(LowerContext& node);
void lower_einsum(LowerContext& node);
void lower_pool(LowerContext& node);
void lower_global_pool(LowerContext& node);
void lower_global_lp_pool(LowerContext& node);
void lower_attention(LowerContext& node);
void lower_recognised_attention(LowerContext& node);
void lower_rotary_embedding(LowerContext& node);
void lower_softmax(LowerContext& node);
void lower_instance_norm(LowerContext& node);
void lower_batch_norm(LowerContext& node);
void lower_layer_norm(LowerContext& node);
void lower_group_norm(LowerContext& node);
void lower_mean_variance_norm(LowerContext& node);
void lower_lp_norm(LowerContext& node);
void lower_lrn(LowerContext& node);
void lower_concat(LowerContext& node);
void lower_split(LowerContext& node);
void lower_pad(LowerContext& node);
void lower_slice(LowerContext& node);
void lower_transpose(LowerContext& node);
void lower_depth_to_space(LowerContext& node);
void lower_space_to_depth(LowerContext& node);
void lower_reduce(LowerContext& node);
void lower_arg(LowerContext& node);
void lower_scan(LowerContext& node);
void lower_recurrent(LowerContext& node);
void lower_determinant(LowerContext& node);
void lower_quantize(LowerContext& node);
void lower_dynamic_quantize(LowerContext& node);
void lower_range(LowerContext& node);
void lower_gather(LowerContext& node);
void lower_gather_elements(LowerContext& node);
void lower_gather_nd(LowerContext& node);
void lower_scatter_elements(LowerContext& node);
void lower_scatter_nd(LowerContext& node);
void lower_max_unpool(LowerContext& node);
void lower_resize(LowerContext& node);
void lower_topk(LowerContext& node);
void lower_select_boxes(LowerContext& node);
void lower_grid_sample(LowerContext& node);
void lower_compress(LowerContext& node);
void lower_count_non_zero(LowerContext& node);
void lower_non_zero(LowerContext& node);
void lower_compress_counted(LowerContext& node);
void lower_tile(LowerContext& node);
void lower_constant_of_shape(LowerContext& node);
void lower_eye_like(LowerContext& node);
void lower_one_hot(LowerContext& node);
void lower_trilu(LowerContext& node);
void lower_reverse_sequence(LowerContext& node);
void lower_dft(LowerContext& node);
void lower_stft(LowerContext& node);
void lower_mel_weights(LowerContext& node);
void lower_roi_align(LowerContext& node);
void lower_roi_pool(LowerContext& node);
void lower_columns_to_image(LowerContext& node);
void lower_deform_columns(LowerContext& node);
void lower_tensor_scatter(LowerContext& node);
void lower_trees(LowerContext& node);
void lower_pairwise_coupling(LowerContext& node);
void lower_bit_cast(LowerContext& node);
void lower_random(LowerContext& node);
void lower_multinomial(LowerContext& node);
void lower_expand(LowerContext& node);
void lower_map(LowerContext& node);
void lower_cast(LowerContext& node);
void lower_copy(LowerContext& node);  // also every `view` row whose result cannot share its input's memory

bool pack_conv(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_grouped_conv(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_conv_transpose(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_instance_norm(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_layer_norm(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_batch_norm(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_quantize(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_gemm(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_recurrent(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_matmul(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_matmul_integer(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_conv_integer(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_qlinear_matmul(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_qlinear_conv(const PackContext& node, size_t input, PackedWeight& packed);

}  // namespace pumice
