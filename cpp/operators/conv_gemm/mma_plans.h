// Plans of the kernels that read weights in fragment order: gemm_mma, gemm_split_fp16 and conv_halo.
#pragma once

#include "operators/conv_gemm/conv_gemm_tiling.h"
#include "operators/conv_gemm/halo_tiling.h"
#include "operators/conv_gemm/kernel_plan.h"

namespace pumice {

// `y_vectors`: macro that selects vector stores.
ContractionPlan quad_product_plan(const LowerContext& node, const Contraction& c, const QuadTiling& tiling, const Macros& y_vectors);
ContractionPlan quad_convolution_plan(const LowerContext& node, const Contraction& c, const QuadTiling& tiling, const Macros& y_vectors);
ContractionPlan halves_plan(const LowerContext& node, const Contraction& c, const QuadTiling& tiling, const Macros& y_vectors);
ContractionPlan halo_plan(const LowerContext& node, const HaloTiling& tiling, const Contraction& c, const Macros& y_vectors);

}  // namespace pumice
