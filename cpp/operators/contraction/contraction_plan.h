// Which kernel computes a contraction, and how: the engine's own choice, or one that was measured on the device.
#pragma once

#include <string>
#include <string_view>

#include "operators/contraction/plan_terms.h"

namespace pumice {

ContractionPlan plan_of(const LowerContext& node, const Contraction& c, int64_t pixels);

// Whether a convolution that pools is to do so in one dispatch: a kernel can, and no other one with a pooling behind it is quicker.
bool pools_at_once(const LowerContext& node, const Contraction& c, int64_t pixels);

// The kind of step of a product with a constant matrix that can be packed in several orders; what the name of a variant says of the order.
std::string product_kind(const NodeContext& node, int64_t rows, int64_t depth, int64_t columns);
inline WeightOrder order_of_variant(std::string_view variant) {
  if (variant.starts_with("product_quads ")) return WeightOrder::fragments;
  if (variant.starts_with("product_halves ")) return WeightOrder::halves;
  return variant == "gemv_columns" ? WeightOrder::columns : WeightOrder::blocks;
}

}  // namespace pumice
