#include "operators/conv_gemm/conv_gemm_plan.h"

#include <algorithm>
#include <cmath>

#include "core/rounding.h"
#include "operators/common/row_registers.h"
#include "operators/conv_gemm/conv_gemm_tiling.h"
#include "operators/conv_gemm/few_channels_tiling.h"
#include "operators/conv_gemm/halo_tiling.h"
#include "operators/conv_gemm/mma_plans.h"
#include "operators/conv_gemm/patch_tiling.h"
#include "operators/conv_gemm/weight_packing.h"

namespace pumice {
namespace {

int64_t count_cpu_iterations(const ConvGemmParams& c) {
  return c.taps_h * (1 + c.taps_w * (2 + c.weights.channels_in / 4));
}

std::string format_variant_name(const SharedMemoryTiling& candidate) {
  return "conv_tiled " + format_size(candidate.pixels, candidate.channels) + " split " + std::to_string(candidate.split) + " registers " +
         (candidate.thread_pixels == candidate.thread_channels ? std::to_string(candidate.thread_pixels)
                                                               : format_size(candidate.thread_pixels, candidate.thread_channels));
}

std::string format_variant_name(const CoopmatTiling& candidate) {
  return "conv_coopmat " + format_size(candidate.pixels, candidate.channels) + " of " +
         format_size(candidate.sub_pixels, candidate.sub_channels) + " k " + std::to_string(candidate.k) + " split " +
         std::to_string(candidate.split);
}

// Macros that select vector loads of x and vector stores of y.
struct Vec4Macros {
  Macros y, x_and_y;
};

Vec4Macros choose_vec4_macros(const LowerContext& node, const ConvGemmParams& c, bool is_gemv) {
  const int64_t kv = get_cpu_step_channels(c.weights.channels_in);
  const bool x_vec4 = kv == 4 && has_vector_channels(c.x, c.weights.channels_in, c.x_stride_group, 4) && c.x_first % 4 == 0 &&
                      (!c.integers || node.input_misalignment(0) % 4 == 0);
  const bool y_vec4 = has_vector_channels(c.y, c.weights.channels_out, c.y_stride_group, 4) && c.y_first % 4 == 0;
  const Macros y_vectors{{"Y_VEC4", y_vec4 && !is_gemv ? "1" : "0"}};
  return {y_vectors, {y_vectors[0], {"X_VEC4", x_vec4 ? "1" : "0"}}};
}

// Makes the plan for conv_coopmat.
ConvGemmPlan make_coopmat_plan(const LowerContext& node, const CoopmatTiling& coopmat, const Macros& y_vectors, int64_t k) {
  return {"conv_coopmat.comp",
          y_vectors,
          make_spec_constants({{"INVOCATIONS", coopmat.subgroups() * static_cast<int64_t>(node.context->info().matrix_subgroup_size())},
                               {"TILE_M", coopmat.pixels},
                               {"TILE_N", coopmat.channels},
                               {"SUB_M", coopmat.sub_pixels},
                               {"SUB_N", coopmat.sub_channels},
                               {"TILE_K", coopmat.k},
                               {"NO_K_TAIL", k % coopmat.k == 0 ? 1 : 0},
                               {"SPLIT", coopmat.split}}),
          coopmat.pixels,
          coopmat.channels,
          kCoopmatRoundings * round_up(k, coopmat.k) / coopmat.split + coopmat.split + kEpilogueAdditions,
          0,
          format_variant_name(coopmat)};
}

ConvGemmPlan make_gemv_col_major_plan(const LowerContext& node, int64_t pixels, const Macros& y_vectors, int64_t k) {
  const int64_t unroll = 8 / pixels, subgroup = node.subgroup_size();
  return {"gemv_col_major.comp",
          {y_vectors[0], {"SUBGROUP", std::to_string(subgroup) + "u"}},
          make_spec_constants({{"ROWS", pixels}, {"UNROLL", unroll}, {"NO_K_TAIL", k / 8 % (subgroup * unroll) == 0 ? 1 : 0}}),
          kMaxColMajorRows,
          get_gemv_columns_per_group(node),
          ceil_div(k / 8, subgroup) + 5 + count_reduction_additions(subgroup, subgroup, false) + kEpilogueAdditions,
          0,
          "gemv_col_major"};
}

// Makes the plan for a GEMM with few rows (small M).
ConvGemmPlan make_gemv_plan(const GemvTiling& gemv, const Macros& y_vectors, int64_t k) {
  return {"gemv.comp", y_vectors,
          make_spec_constants({{"INVOCATIONS", gemv.invocations},
                               {"ROWS", gemv.m},
                               {"UNROLL", kGemvUnroll},
                               {"NO_K_TAIL", k % (gemv.invocations / (kGemvColumns / 8) * kGemvUnroll) == 0 ? 1 : 0}}),
          kMaxGemvRows, kGemvColumns,
          // Additions for the rows of w that an invocation reads, for its eight partial sums, and for the final reduction.
          ceil_div(k, gemv.invocations / 4) + 8 + gemv.invocations / kGemvColumns + kEpilogueAdditions, gemv.iterations(k),
          "gemv " + std::to_string(gemv.invocations * gemv.m)};
}

// Makes the plan for gemv_cpu, a kernel without barriers for CPU drivers. A workgroup processes up to
// kMaxCpuRows pixels, or all pixels if the weights are packed.
ConvGemmPlan make_gemv_cpu_plan(const LowerContext& node, const ConvGemmParams& c, int64_t pixels, Macros macros, int64_t k) {
  const bool has_strides = c.order == WeightOrder::strides;
  macros.emplace_back("KV", std::to_string(get_cpu_step_channels(c.weights.channels_in)));
  macros.emplace_back("W_STRIDED", has_strides ? "1" : "0");
  macros.emplace_back("W_VEC4", has_strides && has_vec4_columns(node, c, node.input_misalignment(1)) ? "1" : "0");
  return {"gemv_cpu.comp",
          std::move(macros),
          make_spec_constants({{"ROWS", pixels}}),
          has_strides ? kMaxCpuRows : std::max(kMaxCpuRows, pixels),
          kCpuChannels,
          k + kEpilogueAdditions,
          count_cpu_iterations(c),
          "gemv_cpu"};
}

// Whether conv_cpu can unroll the taps of a kernel row. All input channels must fit into one step.
bool can_unroll_row_taps(const ConvGemmParams& c) {
  constexpr int64_t kMaxRowTaps = 9;
  return c.weights.channels_in > 0 && c.weights.channels_in <= 4 && c.taps_w <= kMaxRowTaps;
}

ConvGemmPlan make_conv_cpu_plan(const ConvGemmParams& c, bool unrolled, Macros macros, int64_t k) {
  constexpr int64_t kCpuPixels = 16;  // pixels per subgroup
  macros.emplace_back("KV", std::to_string(get_cpu_step_channels(c.weights.channels_in)));
  macros.emplace_back("ROW_TAPS", std::to_string(unrolled ? c.taps_w : 0));
  return {"conv_cpu.comp",
          std::move(macros),
          {},
          kCpuPixels,
          kCpuChannels,
          k + kEpilogueAdditions,
          count_cpu_iterations(c),
          unrolled ? "conv_cpu unrolled" : "conv_cpu"};
}

// Makes the plan for a kernel with tiles in shared memory.
ConvGemmPlan make_tiled_plan(const SharedMemoryTiling& tiling, const Macros& vectors, int64_t k) {
  return {"conv_tiled.comp",
          vectors,
          make_spec_constants({{"INVOCATIONS", tiling.invocations()},
                               {"TILE_M", tiling.pixels},
                               {"TILE_N", tiling.channels},
                               {"SPLIT", tiling.split},
                               {"THREAD_M", tiling.thread_pixels},
                               {"THREAD_N", tiling.thread_channels}}),
          tiling.pixels,
          tiling.channels,
          round_up(k, 16 * tiling.split) / tiling.split + tiling.split + kEpilogueAdditions,
          tiling.iterations(k),
          format_variant_name(tiling)};
}

std::string format_variant_name(const PatchTiling& candidate) {
  return "conv_patch " + format_size(candidate.rows, candidate.columns) + "x" + std::to_string(candidate.channels) + " of " +
         std::to_string(candidate.pixels) + " split " + std::to_string(candidate.split);
}

// Makes the plan for a kernel with input patches in shared memory.
ConvGemmPlan make_patch_plan(const PatchTiling& tiling, const ConvGemmParams& c, Macros vectors) {
  if (tiling.split * tiling.chunk % 4 != 0) vectors[1] = {"X_VEC4", "0"};
  if (has_pool(c)) vectors.emplace_back("POOLS", "1");
  return {"conv_patch.comp",
          std::move(vectors),
          make_window_constants(c, {{"INVOCATIONS", tiling.invocations()},
                                    {"TILE_H", tiling.rows},
                                    {"TILE_W", tiling.columns},
                                    {"TILE_N", tiling.channels},
                                    {"PIXELS", tiling.pixels},
                                    {"SPLIT", tiling.split},
                                    {"CHUNK", tiling.chunk},
                                    {"POOL_H", c.pool.rows},
                                    {"POOL_W", c.pool.columns}}),
          tiling.rows * tiling.columns,
          tiling.channels,
          c.taps_h * c.taps_w * tiling.chunk * tiling.count_channel_rounds(c) + tiling.split + kEpilogueAdditions,
          tiling.iterations(c),
          format_variant_name(tiling),
          {},
          nullptr,
          tiling.count_tiles(c)};
}

std::string format_variant_name(const FewChannelsTiling& candidate) {
  return "conv_few_channels " + format_size(candidate.rows, candidate.columns) + "x" + std::to_string(candidate.channels) + " of " +
         std::to_string(candidate.sub_channels);
}

// Makes the plan for conv_few_channels: cooperative matrices whose K covers all taps of a few input channels.
ConvGemmPlan make_few_channels_plan(const LowerContext& node, const FewChannelsTiling& tiling, const ConvGemmParams& c, Macros y_vectors) {
  y_vectors.emplace_back("EMULATED", node.emulates_mma() ? "1" : "0");
  y_vectors.emplace_back("Y_VEC8", stores_vec8(tiling, c) ? "1" : "0");
  return {"conv_few_channels.comp",
          std::move(y_vectors),
          make_window_constants(c, {{"INVOCATIONS", tiling.invocations()},
                                    {"TILE_H", tiling.rows},
                                    {"TILE_W", tiling.columns},
                                    {"SUB_N", tiling.sub_channels},
                                    {"ACROSS", tiling.channels / tiling.sub_channels},
                                    {"CHANNELS", c.weights.channels_in},
                                    {"PITCH", tiling.get_patch_row_pitch(c)},
                                    {"INTERLEAVED", c.x.sc == 1 && !c.x.grouped ? 1 : 0}}),
          tiling.rows * tiling.columns,
          tiling.channels,
          kCoopmatRoundings * compute_padded_few_channels_k(c) + kEpilogueAdditions,
          0,
          format_variant_name(tiling),
          {},
          nullptr,
          tiling.count_workgroups(node, c)};
}

constexpr int64_t kMaxVariantCpuRows = 16;  // maximum number of pixels for which gemv_cpu is offered as a variant

// Returns all plans that can run this GEMM or convolution, except the engine's default.
std::vector<ConvGemmPlan> list_plans(const LowerContext& node, const ConvGemmParams& c, int64_t pixels) {
  std::vector<ConvGemmPlan> plans;
  const int64_t k = count_reduction_terms(c);
  const auto [y_vectors, vectors] = choose_vec4_macros(node, c, false);
  const auto y_elements = choose_vec4_macros(node, c, true).y;
  if (has_pool(c)) {
    for (const PatchTiling& tile : list_patch_tilings(node, c)) plans.push_back(make_patch_plan(tile, c, vectors));
    return plans;
  }
  if (c.order == WeightOrder::col_major) return {make_gemv_col_major_plan(node, pixels, y_elements, k)};
  if (c.order == WeightOrder::fragments) {
    for (const MmaTiling& tile : list_mma_tilings(node, pixels))
      plans.push_back(c.is_gemm ? make_gemm_mma_plan(node, c, tile, y_vectors) : make_conv_mma_plan(node, c, tile, y_vectors));
    if (const auto large = select_in_place_tiling(node, pixels, c.weights.channels_out, k); large && c.is_gemm)
      plans.push_back(make_gemm_mma_plan(node, c, *large, y_vectors));
    return plans;
  }
  if (c.order == WeightOrder::split_fp16) {
    for (const MmaTiling& tile : list_split_fp16_tilings(node)) plans.push_back(make_split_fp16_plan(node, c, tile, y_vectors));
    return plans;
  }
  for (const HaloTiling& tile : list_halo_tilings(node, c)) plans.push_back(make_conv_halo_plan(node, tile, c, y_vectors));
  for (const MmaTiling& tile : list_conv_mma_tilings(node, c, pixels)) plans.push_back(make_conv_mma_plan(node, c, tile, y_vectors));
  if (node.prefers_cpu_kernels()) {
    const bool has_strides = c.order == WeightOrder::strides;
    if (has_strides || pixels <= kMaxVariantCpuRows) plans.push_back(make_gemv_cpu_plan(node, c, pixels, vectors, k));
    if (!has_strides) plans.push_back(make_conv_cpu_plan(c, false, vectors, k));
    if (!has_strides && can_unroll_row_taps(c)) plans.push_back(make_conv_cpu_plan(c, true, vectors, k));
    return plans;
  }
  if (!c.integers) {
    for (const GemvTiling& tile : list_gemv_tilings(node, c, pixels)) plans.push_back(make_gemv_plan(tile, y_elements, k));
    for (const CoopmatTiling& tile : list_coopmat_tilings(node, c, pixels)) plans.push_back(make_coopmat_plan(node, tile, y_vectors, k));
  }
  for (const auto& tile : list_few_channels_tilings(node, c)) plans.push_back(make_few_channels_plan(node, tile, c, y_vectors));
  for (const PatchTiling& tile : list_patch_tilings(node, c)) plans.push_back(make_patch_plan(tile, c, vectors));
  for (const SharedMemoryTiling& tile : list_shared_memory_tilings(node, pixels, c.weights.channels_out, k))
    plans.push_back(make_tiled_plan(tile, vectors, k));
  return plans;
}

bool fits_loop_limit(const NodeContext& node, const ConvGemmPlan& plan) {
  return plan.iterations <= node.loop_limit().value_or(INT64_MAX);
}

// Chooses the kernel. Kernels for few rows come first, then cooperative matrices, then patches or tiles in shared memory. CPU drivers use
// gemv_cpu or conv_cpu, which have no barriers: at a barrier, a CPU driver has to switch between all invocations.
ConvGemmPlan choose_default_plan(const LowerContext& node, const ConvGemmParams& c, int64_t pixels) {
  const int64_t k = count_reduction_terms(c);
  if (has_pool(c)) return make_patch_plan(select_patch_tiling(node, c).value(), c, choose_vec4_macros(node, c, false).x_and_y);
  const bool has_order_kernel = reads_vec8(c.order);
  const auto gemv = c.integers || has_order_kernel ? std::nullopt : select_gemv_tiling(node, c, pixels);
  const auto coopmat = gemv || c.integers || has_order_kernel ? std::nullopt : select_coopmat_tiling(node, c, pixels);
  const bool is_gemv = gemv || c.order == WeightOrder::col_major;
  const auto [y_vectors, vectors] = choose_vec4_macros(node, c, is_gemv);
  const auto few_channels = coopmat ? std::nullopt : select_few_channels_tiling(node, c);
  if (few_channels) return make_few_channels_plan(node, *few_channels, c, y_vectors);
  if (const auto halo = select_halo_tiling(node, c)) return make_conv_halo_plan(node, *halo, c, y_vectors);
  if (const auto mma = select_conv_mma_tiling(node, c))
    if (ConvGemmPlan plan = make_conv_mma_plan(node, c, *mma, y_vectors); fits_loop_limit(node, plan)) return plan;
  // With up to four output channels, most of a cooperative matrix would be empty.
  const auto patch = select_patch_tiling(node, c);
  if (patch && (!coopmat || c.weights.channels_out <= 4)) return make_patch_plan(*patch, c, vectors);
  if (coopmat) return make_coopmat_plan(node, *coopmat, y_vectors, k);
  if (c.order == WeightOrder::fragments) {
    constexpr MmaTiling kAnyRows{32, 32, 32, 32, 4, 1};
    const int64_t columns = c.weights.channels_out;
    auto mma_tiling = select_mma_tiling(node, pixels, columns * node.concurrent, k, c.is_gemm);
    if (!mma_tiling || mma_tiling->in_place) mma_tiling = select_mma_tiling(node, pixels, columns, k, c.is_gemm);
    const MmaTiling tiling = mma_tiling.value_or(kAnyRows);
    return c.is_gemm ? make_gemm_mma_plan(node, c, tiling, y_vectors) : make_conv_mma_plan(node, c, tiling, y_vectors);
  }
  if (c.order == WeightOrder::split_fp16)
    return make_split_fp16_plan(node, c, select_split_fp16_tiling(node, pixels, c.weights.channels_out, k), y_vectors);
  if (c.order == WeightOrder::col_major) return make_gemv_col_major_plan(node, pixels, y_vectors, k);
  if (gemv) return make_gemv_plan(*gemv, y_vectors, k);
  if (node.prefers_cpu_kernels()) {
    const bool is_few = pixels <= kMaxCpuRows || c.order == WeightOrder::strides;
    return is_few ? make_gemv_cpu_plan(node, c, pixels, vectors, k) : make_conv_cpu_plan(c, can_unroll_row_taps(c), vectors, k);
  }
  return make_tiled_plan(select_shared_memory_tiling(node, pixels, c.weights.channels_out, c.weights.groups, k), vectors, k);
}

double to_double(const Number& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number.value());
}

// Returns the distance of two plans for the same kernel: the number of doublings between their tile sizes, register tiles and splits. The
// workgroup size is ignored, because it follows from these.
double compute_tile_distance(const ConvGemmPlan& a, const ConvGemmPlan& b) {
  const auto doublings = [](double x, double y) { return x == y ? 0.0 : x > 0 && y > 0 ? std::abs(std::log2(x / y)) : 1.0; };
  double sum = 0;
  for (const auto& [name, number] : a.spec) {
    const auto other = std::ranges::find(b.spec, name, [](const auto& entry) -> const std::string& { return entry.first; });
    if (name != "INVOCATIONS" && other != b.spec.end()) sum += doublings(to_double(number), to_double(other->second));
  }
  return sum;
}

// Returns variants of these plans whose kernels need fewer registers but wait longer for memory.
std::vector<ConvGemmPlan> list_low_register_plans(const std::vector<ConvGemmPlan>& plans) {
  std::vector<ConvGemmPlan> result;
  for (const ConvGemmPlan& plan : plans) {
    if (plan.shader == "conv_tiled.comp") {
      ConvGemmPlan& unbuffered = result.emplace_back(plan);
      unbuffered.macros.emplace_back("PREFETCH", "0");
      unbuffered.variant += " no prefetch";
    } else if (plan.shader == "gemv_col_major.comp") {
      const auto unroll = std::ranges::find(plan.spec, "UNROLL", [](const auto& entry) -> const std::string& { return entry.first; });
      for (int64_t count = std::get<int64_t>(unroll->second.value()) / 2; count >= 1; count /= 2) {
        ConvGemmPlan& shorter = result.emplace_back(plan);
        shorter.spec[static_cast<size_t>(unroll - plan.spec.begin())].second = count;
        shorter.variant += " unroll " + std::to_string(count);
      }
    }
  }
  return result;
}

// Replaces a plan whose kernel spills registers. Prefers the nearest variant of the same kernel, so that a large tile is replaced by the
// next smaller one and not by the smallest (44 vs. 18 TFLOP/s for fp32 GEMMs of size 2048 and more on an H200). The second choice is any
// other variant, the third one that list_low_register_plans() adds. Returns the plan itself if all other variants spill too.
ConvGemmPlan replace_spilling_plan(const LowerContext& node, const ConvGemmParams& c, int64_t pixels, ConvGemmPlan plan) {
  if (!node.is_spilled(plan.variant)) return plan;
  std::vector<ConvGemmPlan> others = list_plans(node, c, pixels);
  const auto current = std::ranges::find(others, plan.variant, &ConvGemmPlan::variant);
  if (current != others.end()) std::rotate(others.begin(), current, others.end());
  const auto rest = std::ranges::stable_partition(others, [&](const ConvGemmPlan& candidate) { return candidate.shader == plan.shader; });
  std::ranges::stable_sort(others.begin(), rest.begin(), {},
                           [&](const ConvGemmPlan& candidate) { return compute_tile_distance(candidate, plan); });
  std::ranges::move(list_low_register_plans(others), std::back_inserter(others));
  const auto replacement = std::ranges::find_if(
      others, [&](const ConvGemmPlan& candidate) { return fits_loop_limit(node, candidate) && !node.is_spilled(candidate.variant); });
  if (replacement == others.end()) return plan;
  replacement->spilled = plan.spilled.empty() ? plan.variant : plan.spilled;
  return std::move(*replacement);
}

std::string format_dtypes(const NodeContext& node, const ConvGemmParams& c) {
  if (c.integers) return std::string(name(c.integers->x)) + " by " + std::string(name(c.integers->w));
  return std::string(name(node.float_dtype));
}

std::string format_step_kind(const NodeContext& node, const ConvGemmParams& c, int64_t pixels) {
  const WeightView& w = c.weights;
  if (c.orders.size() > 1) return format_gemm_kind(node, pixels, w.channels_in, w.channels_out);
  constexpr std::string_view kOrders[] = {"packed", "col_major", "fragments", "split_fp16", "unpacked"};
  const std::string sizes =
      format_size_class(pixels) + " by " + format_size_class(w.channels_in) + " by " + format_size_class(w.channels_out);
  const std::string groups = w.groups == 1 ? "" : ", groups " + format_size_class(w.groups);
  const std::string taps =
      c.is_gemm ? "" : ", taps " + format_size(c.taps_h, c.taps_w) + ", steps " + format_size(c.in_step_h, c.in_step_w);
  const std::string pool = has_pool(c) ? ", pools " + format_size(c.pool.rows, c.pool.columns) : "";
  return (c.is_gemm ? "gemm " : "convolution ") + format_dtypes(node, c) + " " + sizes + groups + taps + pool + ", " +
         std::string(kOrders[static_cast<size_t>(c.order)]);
}

ConvGemmParams with_weight_order(const ConvGemmParams& c, WeightOrder order) {
  ConvGemmParams other = c;
  other.order = order;
  return other;
}

// Returns a copy of the node for weights packed in this WeightOrder. With WeightOrder::split_fp16, the copy computes in fp16, regardless of
// the node's dtype.
LowerContext make_node_for_order(const LowerContext& node, WeightOrder order) {
  LowerContext other = node;
  if (node.split_fp16) other.float_dtype = order == WeightOrder::split_fp16 ? DType::float16 : DType::float32;
  return other;
}

// Returns the names of all variants, including variants that need a different packing of a constant matrix.
std::vector<std::string> list_variant_names(const LowerContext& node, const ConvGemmParams& c, int64_t pixels) {
  std::vector<std::string> names;
  for (const WeightOrder order : c.orders.empty() ? std::vector{c.order} : c.orders)
    for (const ConvGemmPlan& plan : list_plans(make_node_for_order(node, order), with_weight_order(c, order), pixels))
      if (fits_loop_limit(node, plan) && std::ranges::find(names, plan.variant) == names.end()) names.push_back(plan.variant);
  return names;
}

}  // namespace

std::string format_gemm_kind(const NodeContext& node, int64_t m, int64_t k, int64_t n) {
  return "gemm " + std::string(name(node.split_fp16 ? DType::float32 : node.float_dtype)) + " " + format_size_class(m) + " by " +
         format_size_class(k) + " by " + format_size_class(n) + ", constant";
}

bool prefers_fused_pool(const LowerContext& node, const ConvGemmParams& c, int64_t pixels) {
  // A separate dispatch and its barrier cost a GPU about two microseconds. This many multiply-adds take less time than that with any tile.
  constexpr int64_t kMaxFusedMultiplyAdds = 10'000'000;
  if (!select_patch_tiling(node, c)) return false;
  if (pixels * c.weights.groups * c.weights.channels_out * count_reduction_terms(c) <= kMaxFusedMultiplyAdds) return true;
  ConvGemmParams alone = c;
  alone.pool = {};
  return choose_default_plan(node, alone, pixels).shader == "conv_patch.comp";
}

ConvGemmPlan select_conv_gemm_plan(const LowerContext& node, const ConvGemmParams& c, int64_t pixels) {
  ConvGemmPlan default_plan = replace_spilling_plan(node, c, pixels, choose_default_plan(node, c, pixels));
  if (!node.measured) return default_plan;
  const std::string kind = format_step_kind(node, c, pixels);
  const auto found = node.measured->fastest.find(kind);
  const bool is_known = found != node.measured->fastest.end();
  if (!is_known && !node.measured->lists_all) return default_plan;
  StepChoice choice{.kind = kind, .default_variant = default_plan.variant, .selected = default_plan.variant};
  if (!c.orders.empty() && c.orders[0] != c.order) {
    const LowerContext ordered = make_node_for_order(node, c.orders[0]);
    const ConvGemmParams first = with_weight_order(c, c.orders[0]);
    choice.default_variant = replace_spilling_plan(ordered, first, pixels, choose_default_plan(ordered, first, pixels)).variant;
  }
  if (node.measured->lists_all) {
    choice.variants = list_variant_names(node, c, pixels);
    if (std::ranges::find(choice.variants, choice.default_variant) == choice.variants.end())
      choice.variants.insert(choice.variants.begin(), choice.default_variant);
  }
  ConvGemmPlan plan = std::move(default_plan);
  if (is_known && found->second != plan.variant) {
    std::vector<ConvGemmPlan> others = list_plans(node, c, pixels);
    std::ranges::move(list_low_register_plans(others), std::back_inserter(others));
    const auto measured_plan = std::ranges::find_if(
        others, [&](const ConvGemmPlan& candidate) { return candidate.variant == found->second && fits_loop_limit(node, candidate); });
    if (measured_plan == others.end() || node.is_spilled(found->second))
      choice.rejected = found->second;
    else
      plan = std::move(*measured_plan);
    choice.spills = measured_plan != others.end() && node.is_spilled(found->second);
  }
  choice.selected = plan.variant;
  plan.choice = std::make_shared<const StepChoice>(std::move(choice));
  return plan;
}

}  // namespace pumice
