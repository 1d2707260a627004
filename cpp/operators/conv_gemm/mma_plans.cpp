#include "operators/conv_gemm/mma_plans.h"

#include "core/rounding.h"
#include "operators/conv_gemm/weight_packing.h"

namespace pumice {
namespace {

std::string name_of(const QuadTiling& one) {
  return "gemm_mma " + sides(one.rows, one.columns) + " of " + sides(one.sub_rows, one.sub_columns) + " split " +
         std::to_string(one.split) + " ahead " + std::to_string(one.ahead) + (one.early ? " early" : "") +
         (one.low_first ? " low first" : "") + (one.in_place ? " in place" : "");
}

// `filled`: whether the K of each tap is a multiple of 32.
ContractionPlan quads_plan(const LowerContext& node, const QuadTiling& quads, const Macros& y_vectors, int64_t depth, bool filled = true) {
  return {"gemm_mma.comp",
          {y_vectors[0], {"EMULATED", node.emulates_fragments() ? "1" : "0"}},
          specialized({{"INVOCATIONS", quads.subgroups() * 32},
                       {"TILE_P", quads.rows},
                       {"TILE_C", quads.columns},
                       {"SUB_P", quads.sub_rows},
                       {"SUB_C", quads.sub_columns},
                       {"AHEAD", quads.ahead},
                       {"EARLY", quads.early ? 1 : 0},
                       {"WHOLE", filled && depth % (32 * quads.split * quads.ahead) == 0 ? 1 : 0}}),
          quads.rows,
          quads.columns,
          kCutting * round_up(depth, 32 * quads.split * quads.ahead) / quads.split + quads.split + kBiases,
          0,
          name_of(quads)};
}

std::string name_of(const HaloTiling& one) {
  return (one.spread ? "conv_halo spread " : "conv_halo ") + sides(one.rows, one.columns) + "x" + std::to_string(one.channels) + " of " +
         sides(one.sub_pixels, one.sub_channels) + " planes " + std::to_string(one.planes) +
         (one.split > 1 ? " split " + std::to_string(one.split) : "") + (one.early ? " early" : "");
}

}  // namespace

// Plan for a GEMM with a matrix in fragment order. The in-place kernel is specialised for the problem size: constant addresses leave
// registers for the accumulators.
ContractionPlan quad_product_plan(const LowerContext& node, const Contraction& c, const QuadTiling& tiling, const Macros& y_vectors) {
  ContractionPlan plan = quads_plan(node, tiling, y_vectors, depth_of(c));
  if (node.emulates_fragments()) plan.iterations = tiling.emulated_iterations(depth_of(c));
  if (tiling.in_place)
    for (auto& one : specialized({{"KNOWN_DEPTH", depth_of(c)}, {"KNOWN_STRIDE", c.x.sw}})) plan.spec.push_back(std::move(one));
  return plan;
}

// Plan for convolutions with weights in fragment order.
ContractionPlan quad_convolution_plan(const LowerContext& node, const Contraction& c, const QuadTiling& tiling, const Macros& y_vectors) {
  constexpr int64_t kStep = 32;  // K elements per chunk
  const int64_t depth = c.taps_h * c.taps_w * round_up(c.weights.channels_in, kStep);
  ContractionPlan plan = quads_plan(node, tiling, y_vectors, depth, c.weights.channels_in % kStep == 0);
  for (auto& one : with_window(c, {})) plan.spec.push_back(std::move(one));
  if (node.emulates_fragments()) plan.iterations = tiling.emulated_iterations(depth);
  if (c.order != WeightOrder::fragments) plan.weights_first = c.fragments, plan.weights_count = fragment_elements(c.weights);
  plan.variant = "conv_quads" + plan.variant.substr(plan.variant.find(' '));
  return plan;
}

ContractionPlan halves_plan(const LowerContext& node, const Contraction& c, const QuadTiling& tiling, const Macros& y_vectors) {
  // Roundings caused by splitting numbers into two fp16 values and by omitting the product of the remainders: see include/split_fp16.glsl.
  constexpr int64_t kRoundingsOfHalves = 16, kRoundingsOfLow = 4;
  ContractionPlan plan = quads_plan(node, tiling, y_vectors, depth_of(c));
  plan.shader = "gemm_split_fp16.comp";
  plan.spec.emplace_back("LOW_FIRST", tiling.low_first ? 1 : 0);
  plan.macros.emplace_back("X_SPLIT", c.split ? "1" : "0");
  plan.additions += kRoundingsOfHalves * (c.split ? 2 : 1) + kRoundingsOfLow;
  plan.variant = "gemm_split_fp16" + plan.variant.substr(plan.variant.find(' '));
  return plan;
}

// Plan for input patches in shared memory, multiplied by cooperative matrices.
ContractionPlan halo_plan(const LowerContext& node, const HaloTiling& tiling, const Contraction& c, const Macros& y_vectors) {
  ContractionPlan plan{"conv_halo.comp",
                       y_vectors,
                       with_window(c, {{"INVOCATIONS", tiling.invocations()},
                                       {"TILE_H", tiling.rows},
                                       {"TILE_W", tiling.columns},
                                       {"TILE_C", tiling.channels},
                                       {"SUB_P", tiling.sub_pixels},
                                       {"SUB_C", tiling.sub_channels},
                                       {"PLANES", tiling.planes},
                                       {"EARLY", tiling.early ? 1 : 0},
                                       {"SPLIT", tiling.split}}),
                       tiling.rows * tiling.columns,
                       tiling.channels,
                       kCutting * tiling.depth(c) + tiling.meeting(c) + kBiases,
                       node.emulates_fragments() ? tiling.emulated_iterations(c) : 0,
                       name_of(tiling)};
  plan.macros.emplace_back("EMULATED", node.emulates_fragments() ? "1" : "0");
  plan.macros.emplace_back("SPREAD", tiling.spread ? "1" : "0");
  plan.tiles = tiling.tiles(c);
  plan.weights_first = tiling.spread ? c.spread : c.fragments;
  plan.weights_count = tiling.spread ? spread_elements(c.weights, c.taps_w) : fragment_elements(c.weights);
  return plan;
}

}  // namespace pumice
