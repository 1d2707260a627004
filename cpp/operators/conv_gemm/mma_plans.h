// Plans of the kernels that read weights in fragment order: gemm_mma, gemm_split_fp16 and conv_halo.
#pragma once

#include "operators/conv_gemm/conv_gemm_tiling.h"
#include "operators/conv_gemm/halo_tiling.h"
#include "operators/conv_gemm/kernel_plan.h"

namespace pumice {

// `y_vectors`: macro that selects vector stores.
ConvGemmPlan make_gemm_mma_plan(const LowerContext& node, const ConvGemmParams& c, const MmaTiling& tiling, const Macros& y_vectors);
ConvGemmPlan make_conv_mma_plan(const LowerContext& node, const ConvGemmParams& c, const MmaTiling& tiling, const Macros& y_vectors);
ConvGemmPlan make_split_fp16_plan(const LowerContext& node, const ConvGemmParams& c, const MmaTiling& tiling, const Macros& y_vectors);
ConvGemmPlan make_conv_halo_plan(const LowerContext& node, const HaloTiling& tiling, const ConvGemmParams& c, const Macros& y_vectors);

}  // namespace pumice
