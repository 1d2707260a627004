// Which kernel computes a contraction, and how: the engine's own choice, or one that was measured on the device.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "operators/contraction/contraction_terms.h"
#include "operators/row/measured_variants.h"

namespace pumice {

// The kernel that computes a contraction, what it is told, the tile that a workgroup computes, and how often an invocation's loops run
// for that at most.
struct ContractionPlan {
  std::string_view shader;
  Macros macros;
  SpecValues spec;
  int64_t tile_pixels, tile_channels;
  int64_t additions;         // see LoweredNode
  int64_t iterations;        // 0: of a kernel for matrix units or subgroups, which no driver that ends long loops has
  std::string variant;       // its name among those that a step can take
  std::string spilled = {};  // the name of the one that it stands for, since that one's kernel spills
  std::shared_ptr<const StepChoice> choice = nullptr;
  int64_t tiles = 0;                             // workgroups for all pixels, where tiles are no runs of tile_pixels of them
  int64_t weights_first = 0, weights_count = 0;  // the elements of the weights that the kernel reads, where these are not all packed ones
};

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
