// Lowerings of pooling, region and box operators.
#pragma once

#include "operators/table/lowering.h"

namespace pumice {

// Values of OperatorRow::form for lower_pool() and lower_global_pool(), numbered as MODE in pool.comp, which does not have kLpPool.
enum PoolingMode : uint8_t { kMaxPool, kMeanPool, kSumPool, kLpPool };
enum RoiAlignMode : uint8_t { kOnnxRoiAlign, kClampedRoiAlign };  // OperatorRow::form for lower_roi_align()

void lower_pool(LowerContext& node);
void lower_global_pool(LowerContext& node);
void lower_global_lp_pool(LowerContext& node);
void lower_nms(LowerContext& node);
void lower_soft_nms(LowerContext& node);
void lower_roi_align(LowerContext& node);
void lower_roi_pool(LowerContext& node);
void lower_col2im(LowerContext& node);
void lower_deform_im2col(LowerContext& node);

}  // namespace pumice
