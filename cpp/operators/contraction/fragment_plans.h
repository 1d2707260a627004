// Plans of the kernels that read weights in fragment order: product_quads, product_halves and conv_halo.
#pragma once

#include "operators/contraction/contraction_tiling.h"
#include "operators/contraction/halo_tiling.h"
#include "operators/contraction/plan_terms.h"

namespace pumice {

// `y_vectors`: macro that selects vector stores.
ContractionPlan quad_product_plan(const LowerContext& node, const Contraction& c, const QuadTiling& tiling, const Macros& y_vectors);
ContractionPlan quad_convolution_plan(const LowerContext& node, const Contraction& c, const QuadTiling& tiling, const Macros& y_vectors);
ContractionPlan halves_plan(const LowerContext& node, const Contraction& c, const QuadTiling& tiling, const Macros& y_vectors);
ContractionPlan halo_plan(const LowerContext& node, const HaloTiling& tiling, const Contraction& c, const Macros& y_vectors);

}  // namespace pumice
