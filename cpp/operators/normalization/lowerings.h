// Lowerings and packing functions of the normalisation operators.
#pragma once

#include "operators/table/lowering.h"

namespace pumice {

// Values of OperatorRow::form for lower_softmax() (the macro MODE of softmax.comp) and for lower_layer_norm().
enum SoftmaxMode : uint8_t { kSoftmax, kLogSoftmax, kHardmax };
enum LayerNormMode : uint8_t { kRmsNorm, kLayerNorm };

void lower_softmax(LowerContext& node);
void lower_instance_norm(LowerContext& node);
void lower_batch_norm(LowerContext& node);
void lower_layer_norm(LowerContext& node);
void lower_group_norm(LowerContext& node);
void lower_mean_variance_norm(LowerContext& node);
void lower_lp_norm(LowerContext& node);
void lower_lrn(LowerContext& node);
bool pack_instance_norm(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_layer_norm(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_batch_norm(const PackContext& node, size_t input, PackedWeight& packed);

}  // namespace pumice
