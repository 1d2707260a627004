// This header declares the lowerings, packings and host evaluations that rows of pools, regions and boxes name.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

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
