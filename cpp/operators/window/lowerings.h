// Lowerings of pooling, region and box operators.
#pragma once

#include "operators/table/lowering.h"

namespace pumice {

// OperatorRow::form for lower_pool() and lower_global_pool(), with the numbering of pool.comp; powers are only in pool_nd.comp.
enum PoolForm : uint8_t { kPoolsLargest, kPoolsMean, kPoolsSum, kPoolsPowers };
enum RoiForm : uint8_t { kOnnxRegions, kClampedRegions };  // the same for lower_roi_align()

void lower_pool(LowerContext& node);
void lower_global_pool(LowerContext& node);
void lower_global_lp_pool(LowerContext& node);
void lower_select_boxes(LowerContext& node);
void lower_suppress_boxes(LowerContext& node);
void lower_roi_align(LowerContext& node);
void lower_roi_pool(LowerContext& node);
void lower_columns_to_image(LowerContext& node);
void lower_deform_columns(LowerContext& node);

}  // namespace pumice
