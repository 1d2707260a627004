// This header declares the lowerings, packings and host evaluations that rows of pools, regions and boxes name.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

// OperatorRow::form of the rows of lower_pool() and lower_global_pool(), as pool.comp numbers them, and powers, which are
// pool_volume.comp's.
enum PoolForm : uint8_t { kPoolsLargest, kPoolsMean, kPoolsSum, kPoolsPowers };
enum RoiForm : uint8_t { kOnnxRegions, kClampedRegions };  // likewise, of lower_roi_align()

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
