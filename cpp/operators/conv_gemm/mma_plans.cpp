#include "operators/conv_gemm/mma_plans.h"

#include "core/rounding.h"
#include "operators/conv_gemm/weight_packing.h"

namespace pumice {
namespace {

std::string format_variant_name(const MmaTiling& candidate) {
  return "gemm_mma " + format_size(candidate.m, candidate.n) + " of " + format_size(candidate.sub_m, candidate.sub_n) + " split " +
         std::to_string(candidate.split) + " unroll " + std::to_string(candidate.unroll) + (candidate.prefetch ? " prefetch" : "") +
         (candidate.low_first ? " low first" : "") + (candidate.in_place ? " in place" : "");
}

// Makes the plan for gemm_mma. `filled`: whether K of each tap is a multiple of 32, so that no chunk is partial.
ConvGemmPlan make_mma_plan(const LowerContext& node, const MmaTiling& mma, const Macros& y_vectors, int64_t k, bool filled = true) {
  return {"gemm_mma.comp",
          {y_vectors[0], {"EMULATED", node.emulates_mma() ? "1" : "0"}},
          make_spec_constants({{"INVOCATIONS", mma.subgroups() * 32},
                               {"TILE_M", mma.m},
                               {"TILE_N", mma.n},
                               {"SUB_M", mma.sub_m},
                               {"SUB_N", mma.sub_n},
                               {"UNROLL", mma.unroll},
                               {"PREFETCH", mma.prefetch ? 1 : 0},
                               {"NO_K_TAIL", filled && k % (32 * mma.split * mma.unroll) == 0 ? 1 : 0}}),
          mma.m,
          mma.n,
          kCoopmatRoundings * round_up(k, 32 * mma.split * mma.unroll) / mma.split + mma.split + kEpilogueAdditions,
          0,
          format_variant_name(mma)};
}

std::string format_variant_name(const HaloTiling& candidate) {
  return (candidate.folded_taps ? "conv_halo folded " : "conv_halo ") + format_size(candidate.rows, candidate.columns) + "x" +
         std::to_string(candidate.channels) + " of " + format_size(candidate.sub_pixels, candidate.sub_channels) + " planes " +
         std::to_string(candidate.planes) + (candidate.split > 1 ? " split " + std::to_string(candidate.split) : "") +
         (candidate.prefetch ? " prefetch" : "");
}

}  // namespace

// Makes the plan for a GEMM with a matrix in fragment order. The in-place kernel is specialised for the problem size, because constant
// addresses save registers for the accumulators.
ConvGemmPlan make_gemm_mma_plan(const LowerContext& node, const ConvGemmParams& c, const MmaTiling& tiling, const Macros& y_vectors) {
  ConvGemmPlan plan = make_mma_plan(node, tiling, y_vectors, count_reduction_terms(c));
  if (node.emulates_mma()) plan.iterations = tiling.count_emulated_iterations(count_reduction_terms(c));
  if (tiling.in_place)
    for (auto& constant : make_spec_constants({{"KNOWN_K", count_reduction_terms(c)}, {"KNOWN_STRIDE", c.x.sw}}))
      plan.spec.push_back(std::move(constant));
  return plan;
}

// Makes the plan for a convolution with weights in fragment order.
ConvGemmPlan make_conv_mma_plan(const LowerContext& node, const ConvGemmParams& c, const MmaTiling& tiling, const Macros& y_vectors) {
  constexpr int64_t kStep = 32;  // K elements per chunk
  const int64_t k_size = c.taps_h * c.taps_w * round_up(c.weights.channels_in, kStep);
  ConvGemmPlan plan = make_mma_plan(node, tiling, y_vectors, k_size, c.weights.channels_in % kStep == 0);
  for (auto& constant : make_window_constants(c, {})) plan.spec.push_back(std::move(constant));
  if (node.emulates_mma()) plan.iterations = tiling.count_emulated_iterations(k_size);
  if (c.order != WeightOrder::fragments) plan.weights_first = c.fragments, plan.weights_count = count_fragment_elements(c.weights);
  plan.variant = "conv_mma" + plan.variant.substr(plan.variant.find(' '));
  return plan;
}

ConvGemmPlan make_split_fp16_plan(const LowerContext& node, const ConvGemmParams& c, const MmaTiling& tiling, const Macros& y_vectors) {
  // Roundings caused by splitting numbers into two fp16 values and by omitting the product of the remainders: see include/split_fp16.glsl.
  constexpr int64_t kRoundingsOfSplit = 16, kRoundingsOfLow = 4;
  ConvGemmPlan plan = make_mma_plan(node, tiling, y_vectors, count_reduction_terms(c));
  plan.shader = "gemm_split_fp16.comp";
  plan.spec.emplace_back("LOW_FIRST", tiling.low_first ? 1 : 0);
  plan.macros.emplace_back("X_SPLIT", c.x_is_split ? "1" : "0");
  plan.additions += kRoundingsOfSplit * (c.x_is_split ? 2 : 1) + kRoundingsOfLow;
  plan.variant = "gemm_split_fp16" + plan.variant.substr(plan.variant.find(' '));
  return plan;
}

// Makes the plan for conv_halo: input patches in shared memory, multiplied with cooperative matrices.
ConvGemmPlan make_conv_halo_plan(const LowerContext& node, const HaloTiling& tiling, const ConvGemmParams& c, const Macros& y_vectors) {
  ConvGemmPlan plan{"conv_halo.comp",
                    y_vectors,
                    make_window_constants(c, {{"INVOCATIONS", tiling.invocations()},
                                              {"TILE_H", tiling.rows},
                                              {"TILE_W", tiling.columns},
                                              {"TILE_N", tiling.channels},
                                              {"SUB_M", tiling.sub_pixels},
                                              {"SUB_N", tiling.sub_channels},
                                              {"PLANES", tiling.planes},
                                              {"PREFETCH", tiling.prefetch ? 1 : 0},
                                              {"SPLIT", tiling.split}}),
                    tiling.rows * tiling.columns,
                    tiling.channels,
                    kCoopmatRoundings * tiling.k_size(c) + tiling.count_partial_sums(c) + kEpilogueAdditions,
                    node.emulates_mma() ? tiling.count_emulated_iterations(c) : 0,
                    format_variant_name(tiling)};
  plan.macros.emplace_back("EMULATED", node.emulates_mma() ? "1" : "0");
  plan.macros.emplace_back("FOLD_TAPS", tiling.folded_taps ? "1" : "0");
  plan.tiles = tiling.count_tiles(c);
  plan.weights_first = tiling.folded_taps ? c.folded_taps : c.fragments;
  plan.weights_count = tiling.folded_taps ? count_folded_tap_elements(c.weights, c.taps_w) : count_fragment_elements(c.weights);
  return plan;
}

}  // namespace pumice
