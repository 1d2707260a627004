#include "operators/conv_gemm/conv_gemm_plan.h"

#include <algorithm>
#include <cmath>

#include "core/rounding.h"
#include "operators/conv_gemm/weight_packing.h"
#include "operators/conv_gemm/conv_gemm_tiling.h"
#include "operators/conv_gemm/mma_plans.h"
#include "operators/conv_gemm/halo_tiling.h"
#include "operators/conv_gemm/patch_tiling.h"
#include "operators/conv_gemm/few_channels_tiling.h"
#include "operators/common/row_registers.h"

namespace pumice {
namespace {

int64_t lane_iterations(const Contraction& c) {
  return c.taps_h * (1 + c.taps_w * (2 + c.weights.channels_in / 4));
}

std::string name_of(const Tiling& one) {
  return "conv_tiled " + sides(one.pixels, one.channels) + " split " + std::to_string(one.split) + " registers " +
         (one.held_pixels == one.held_channels ? std::to_string(one.held_pixels) : sides(one.held_pixels, one.held_channels));
}

std::string name_of(const MatrixTiling& one) {
  return "conv_coopmat " + sides(one.pixels, one.channels) + " of " + sides(one.sub_pixels, one.sub_channels) + " depth " +
         std::to_string(one.depth) + " split " + std::to_string(one.split);
}

// Macros for vector loads of x and vector stores of y.
struct VectorMacros {
  Macros y, both;
};

VectorMacros vector_macros(const LowerContext& node, const Contraction& c, bool is_gemv) {
  const int64_t kv = step_channels(c.weights.channels_in);
  const bool x_vec4 = kv == 4 && has_vector_channels(c.x, c.weights.channels_in, c.x_stride_group, 4) && c.x_first % 4 == 0 &&
                      (!c.integers || node.input_phase(0) % 4 == 0);
  const bool y_vec4 = has_vector_channels(c.y, c.weights.channels_out, c.y_stride_group, 4) && c.y_first % 4 == 0;
  const Macros y_vectors{{"Y_VEC4", y_vec4 && !is_gemv ? "1" : "0"}};
  return {y_vectors, {y_vectors[0], {"X_VEC4", x_vec4 ? "1" : "0"}}};
}

// Plan for cooperative matrices.
ContractionPlan matrix_plan(const LowerContext& node, const MatrixTiling& matrix, const Macros& y_vectors, int64_t depth) {
  return {"conv_coopmat.comp",
          y_vectors,
          specialized({{"INVOCATIONS", matrix.subgroups() * node.context->info().limit("subgroupSize")},
                       {"TILE_P", matrix.pixels},
                       {"TILE_C", matrix.channels},
                       {"SUB_P", matrix.sub_pixels},
                       {"SUB_C", matrix.sub_channels},
                       {"DEPTH", matrix.depth},
                       {"WHOLE", depth % matrix.depth == 0 ? 1 : 0},
                       {"SPLIT", matrix.split}}),
          matrix.pixels,
          matrix.channels,
          kCutting * round_up(depth, matrix.depth) / matrix.split + matrix.split + kBiases,
          0,
          name_of(matrix)};
}

ContractionPlan columns_plan(const LowerContext& node, int64_t pixels, const Macros& y_vectors, int64_t depth) {
  const int64_t ahead = 8 / pixels, subgroup = node.subgroup();
  return {"gemv_col_major.comp",
          {y_vectors[0], {"SUBGROUP", std::to_string(subgroup) + "u"}},
          specialized({{"ROWS", pixels}, {"AHEAD", ahead}, {"WHOLE", depth / 8 % (subgroup * ahead) == 0 ? 1 : 0}}),
          kMostColumnRows,
          columns_at_once(node),
          ceil_div(depth / 8, subgroup) + 5 + meeting_additions(subgroup, subgroup, false) + kBiases,
          0,
          "gemv_col_major"};
}

// Plan for GEMM with few rows (small M).
ContractionPlan skinny_plan(const Skinny& skinny, const Macros& y_vectors, int64_t depth) {
  return {"gemv.comp", y_vectors,
          specialized({{"INVOCATIONS", skinny.invocations},
                       {"ROWS", skinny.rows},
                       {"AHEAD", kSkinnyAhead},
                       {"WHOLE", depth % (skinny.invocations / (kSkinnyChannels / 8) * kSkinnyAhead) == 0 ? 1 : 0}}),
          kMostSkinny, kSkinnyChannels,
          // Rows of w that an invocation reads, their eight sums, and the final reduction.
          ceil_div(depth, skinny.invocations / 4) + 8 + skinny.invocations / kSkinnyChannels + kBiases, skinny.iterations(depth),
          "gemv " + std::to_string(skinny.invocations * skinny.rows)};
}

// Plan for CPU drivers, with a kernel without barriers: up to kMostLaneRows pixels, or any number that fits registers.
ContractionPlan few_lanes_plan(const LowerContext& node, const Contraction& c, int64_t pixels, Macros macros, int64_t depth) {
  const bool has_strides = c.order == WeightOrder::strides;
  macros.emplace_back("KV", std::to_string(step_channels(c.weights.channels_in)));
  macros.emplace_back("W_STRIDED", has_strides ? "1" : "0");
  macros.emplace_back("W_VEC4", has_strides && has_vector_columns(node, c, node.input_phase(1)) ? "1" : "0");
  return {"gemv_cpu.comp",
          std::move(macros),
          specialized({{"ROWS", pixels}}),
          has_strides ? kMostLaneRows : std::max(kMostLaneRows, pixels),
          kLaneChannels,
          depth + kBiases,
          lane_iterations(c),
          "gemv_cpu"};
}

// Whether conv_cpu can unroll the taps of a row, which requires a single step of input channels.
bool has_narrow_rows(const Contraction& c) {
  constexpr int64_t kMostRowTaps = 9;
  return c.weights.channels_in > 0 && c.weights.channels_in <= 4 && c.taps_w <= kMostRowTaps;
}

ContractionPlan lanes_plan(const Contraction& c, bool unrolled, Macros macros, int64_t depth) {
  constexpr int64_t kLanePixels = 16;  // pixels per subgroup
  macros.emplace_back("KV", std::to_string(step_channels(c.weights.channels_in)));
  macros.emplace_back("ROW_TAPS", std::to_string(unrolled ? c.taps_w : 0));
  return {"conv_cpu.comp",
          std::move(macros),
          {},
          kLanePixels,
          kLaneChannels,
          depth + kBiases,
          lane_iterations(c),
          unrolled ? "conv_cpu unrolled" : "conv_cpu"};
}

// Plan for tiles in shared memory.
ContractionPlan tiled_plan(const Tiling& tiling, const Macros& vectors, int64_t depth) {
  return {"conv_tiled.comp",
          vectors,
          specialized({{"INVOCATIONS", tiling.invocations()},
                       {"TILE_P", tiling.pixels},
                       {"TILE_C", tiling.channels},
                       {"SPLIT", tiling.split},
                       {"REGISTERS_P", tiling.held_pixels},
                       {"REGISTERS_C", tiling.held_channels}}),
          tiling.pixels,
          tiling.channels,
          round_up(depth, 16 * tiling.split) / tiling.split + tiling.split + kBiases,
          tiling.iterations(depth),
          name_of(tiling)};
}

std::string name_of(const PatchTiling& one) {
  return "conv_patch " + sides(one.rows, one.columns) + "x" + std::to_string(one.channels) + " of " + std::to_string(one.pixels) +
         " split " + std::to_string(one.split);
}

// Plan for input patches in shared memory.
ContractionPlan patch_plan(const PatchTiling& tiling, const Contraction& c, Macros vectors) {
  if (tiling.split * tiling.chunk % 4 != 0) vectors[1] = {"X_VEC4", "0"};
  if (pools(c)) vectors.emplace_back("POOLS", "1");
  return {"conv_patch.comp",
          std::move(vectors),
          with_window(c, {{"INVOCATIONS", tiling.invocations()},
                          {"TILE_H", tiling.rows},
                          {"TILE_W", tiling.columns},
                          {"TILE_C", tiling.channels},
                          {"PIXELS", tiling.pixels},
                          {"SPLIT", tiling.split},
                          {"CHUNK", tiling.chunk},
                          {"POOL_H", c.pool.rows},
                          {"POOL_W", c.pool.columns}}),
          tiling.rows * tiling.columns,
          tiling.channels,
          c.taps_h * c.taps_w * tiling.chunk * tiling.rounds(c) + tiling.split + kBiases,
          tiling.iterations(c),
          name_of(tiling),
          {},
          nullptr,
          tiling.tiles(c)};
}

std::string name_of(const TapsTiling& one) {
  return "conv_few_channels " + sides(one.rows, one.columns) + "x" + std::to_string(one.channels) + " of " + std::to_string(one.sub_channels);
}

// Plan for cooperative matrices with K over all taps of few channels.
ContractionPlan taps_plan(const LowerContext& node, const TapsTiling& tiling, const Contraction& c, Macros y_vectors) {
  y_vectors.emplace_back("EMULATED", node.emulates_fragments() ? "1" : "0");
  y_vectors.emplace_back("Y_EIGHTS", stores_eights(tiling, c) ? "1" : "0");
  return {"conv_few_channels.comp",
          std::move(y_vectors),
          with_window(c, {{"INVOCATIONS", tiling.invocations()},
                          {"TILE_H", tiling.rows},
                          {"TILE_W", tiling.columns},
                          {"SUB_C", tiling.sub_channels},
                          {"ACROSS", tiling.channels / tiling.sub_channels},
                          {"CHANNELS", c.weights.channels_in},
                          {"PITCH", tiling.pitch(c)},
                          {"INTERLEAVED", c.x.sc == 1 && !c.x.grouped ? 1 : 0}}),
          tiling.rows * tiling.columns,
          tiling.channels,
          kCutting * taps_depth(c) + kBiases,
          0,
          name_of(tiling),
          {},
          nullptr,
          tiling.workgroups(node, c)};
}

constexpr int64_t kMostVariantLaneRows = 16;  // maximum number of pixels of gemv_cpu as a measured variant

// Returns all plans for this contraction, in addition to the engine's own choice.
std::vector<ContractionPlan> variants_of(const LowerContext& node, const Contraction& c, int64_t pixels) {
  std::vector<ContractionPlan> found;
  const int64_t depth = depth_of(c);
  const auto [y_vectors, vectors] = vector_macros(node, c, false);
  const auto y_elements = vector_macros(node, c, true).y;
  if (pools(c)) {
    for (const PatchTiling& one : patch_tilings(node, c)) found.push_back(patch_plan(one, c, vectors));
    return found;
  }
  if (c.order == WeightOrder::columns) return {columns_plan(node, pixels, y_elements, depth)};
  if (c.order == WeightOrder::fragments) {
    for (const QuadTiling& one : quad_tilings(node, pixels))
      found.push_back(c.matrix ? quad_product_plan(node, c, one, y_vectors) : quad_convolution_plan(node, c, one, y_vectors));
    if (const auto large = in_place_tiling(node, pixels, c.weights.channels_out, depth); large && c.matrix)
      found.push_back(quad_product_plan(node, c, *large, y_vectors));
    return found;
  }
  if (c.order == WeightOrder::halves) {
    for (const QuadTiling& one : halves_tilings(node)) found.push_back(halves_plan(node, c, one, y_vectors));
    return found;
  }
  for (const HaloTiling& one : halo_tilings(node, c)) found.push_back(halo_plan(node, one, c, y_vectors));
  for (const QuadTiling& one : quad_convolutions(node, c, pixels)) found.push_back(quad_convolution_plan(node, c, one, y_vectors));
  if (node.prefers_lanes()) {
    const bool has_strides = c.order == WeightOrder::strides;
    if (has_strides || pixels <= kMostVariantLaneRows) found.push_back(few_lanes_plan(node, c, pixels, vectors, depth));
    if (!has_strides) found.push_back(lanes_plan(c, false, vectors, depth));
    if (!has_strides && has_narrow_rows(c)) found.push_back(lanes_plan(c, true, vectors, depth));
    return found;
  }
  if (!c.integers) {
    for (const Skinny& one : skinnies_of(node, c, pixels)) found.push_back(skinny_plan(one, y_elements, depth));
    for (const MatrixTiling& one : matrix_tilings(node, c, pixels)) found.push_back(matrix_plan(node, one, y_vectors, depth));
  }
  for (const TapsTiling& one : taps_tilings(node, c)) found.push_back(taps_plan(node, one, c, y_vectors));
  for (const PatchTiling& one : patch_tilings(node, c)) found.push_back(patch_plan(one, c, vectors));
  for (const Tiling& one : tilings(node, pixels, c.weights.channels_out, depth)) found.push_back(tiled_plan(one, vectors, depth));
  return found;
}

bool is_possible(const NodeContext& node, const ContractionPlan& plan) {
  return plan.iterations <= node.loop_limit().value_or(INT64_MAX);
}

// Chooses the kernel: first the kernels for few rows, then cooperative matrices. CPU drivers use gemv_cpu or conv_cpu, which have no
// barriers, because a barrier makes a CPU driver switch between all invocations. All others use patches or tiles in shared memory.
ContractionPlan own_plan(const LowerContext& node, const Contraction& c, int64_t pixels) {
  const int64_t depth = depth_of(c);
  if (pools(c)) return patch_plan(patch_tiling_of(node, c).value(), c, vector_macros(node, c, false).both);
  const bool has_own_kernel = reads_eights(c.order);
  const auto skinny = c.integers || has_own_kernel ? std::nullopt : skinny_of(node, c, pixels);
  const auto matrix = skinny || c.integers || has_own_kernel ? std::nullopt : matrix_tiling_of(node, c, pixels);
  const bool is_gemv = skinny || c.order == WeightOrder::columns;
  const auto [y_vectors, vectors] = vector_macros(node, c, is_gemv);
  const auto taps = matrix ? std::nullopt : taps_tiling_of(node, c);
  if (taps) return taps_plan(node, *taps, c, y_vectors);
  if (const auto halo = halo_tiling_of(node, c)) return halo_plan(node, *halo, c, y_vectors);
  if (const auto quads = quad_convolution_of(node, c))
    if (ContractionPlan plan = quad_convolution_plan(node, c, *quads, y_vectors); is_possible(node, plan)) return plan;
  // Up to four output channels would leave most of a cooperative matrix empty.
  const auto patch = patch_tiling_of(node, c);
  if (patch && (!matrix || c.weights.channels_out <= 4)) return patch_plan(*patch, c, vectors);
  if (matrix) return matrix_plan(node, *matrix, y_vectors, depth);
  if (c.order == WeightOrder::fragments) {
    constexpr QuadTiling kAnyRows{32, 32, 32, 32, 4, 1};
    const int64_t columns = c.weights.channels_out;
    auto found = quad_tiling_of(node, pixels, columns * node.concurrent, depth, c.matrix);
    if (!found || found->in_place) found = quad_tiling_of(node, pixels, columns, depth, c.matrix);
    const QuadTiling tiling = found.value_or(kAnyRows);
    return c.matrix ? quad_product_plan(node, c, tiling, y_vectors) : quad_convolution_plan(node, c, tiling, y_vectors);
  }
  if (c.order == WeightOrder::halves) return halves_plan(node, c, halves_tiling_of(node, pixels, c.weights.channels_out, depth), y_vectors);
  if (c.order == WeightOrder::columns) return columns_plan(node, pixels, y_vectors, depth);
  if (skinny) return skinny_plan(*skinny, y_vectors, depth);
  if (node.prefers_lanes()) {
    const bool is_few = pixels <= kMostLaneRows || c.order == WeightOrder::strides;
    return is_few ? few_lanes_plan(node, c, pixels, vectors, depth) : lanes_plan(c, has_narrow_rows(c), vectors, depth);
  }
  return tiled_plan(tiling_of(node, pixels, c.weights.channels_out, c.weights.groups, depth), vectors, depth);
}

double as_real(const Number& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number.value());
}

// Distance of two plans for the same kernel, in doublings of tile sizes, register tiles and splits. The number of invocations follows from
// these.
double distance(const ContractionPlan& a, const ContractionPlan& b) {
  const auto doublings = [](double x, double y) { return x == y ? 0.0 : x > 0 && y > 0 ? std::abs(std::log2(x / y)) : 1.0; };
  double sum = 0;
  for (const auto& [name, number] : a.spec) {
    const auto other = std::ranges::find(b.spec, name, [](const auto& one) -> const std::string& { return one.first; });
    if (name != "INVOCATIONS" && other != b.spec.end()) sum += doublings(as_real(number), as_real(other->second));
  }
  return sum;
}

// Replaces a plan whose kernel spills. Prefers the nearest variant of the same kernel, so that a large tile is followed by the next smaller
// one instead of the smallest (fp32 GEMM of 2048 and more: 18 vs. 44 TFLOP/s on an H200), then any other variant. Returns the plan itself
// if all others spill as well.
ContractionPlan plan_without_spills(const LowerContext& node, const Contraction& c, int64_t pixels, ContractionPlan plan) {
  if (!node.is_spilled(plan.variant)) return plan;
  std::vector<ContractionPlan> others = variants_of(node, c, pixels);
  const auto own = std::ranges::find(others, plan.variant, &ContractionPlan::variant);
  if (own != others.end()) std::rotate(others.begin(), own, others.end());
  const auto rest = std::ranges::stable_partition(others, [&](const ContractionPlan& one) { return one.shader == plan.shader; });
  std::ranges::stable_sort(others.begin(), rest.begin(), {}, [&](const ContractionPlan& one) { return distance(one, plan); });
  const auto spared =
      std::ranges::find_if(others, [&](const ContractionPlan& one) { return is_possible(node, one) && !node.is_spilled(one.variant); });
  if (spared == others.end()) return plan;
  spared->spilled = plan.spilled.empty() ? plan.variant : plan.spilled;
  return std::move(*spared);
}

std::string elements_of(const NodeContext& node, const Contraction& c) {
  if (c.integers) return std::string(name(c.integers->x)) + " by " + std::string(name(c.integers->w));
  return std::string(name(node.float_dtype));
}

std::string kind_of(const NodeContext& node, const Contraction& c, int64_t pixels) {
  const WeightView& w = c.weights;
  if (c.orders.size() > 1) return product_kind(node, pixels, w.channels_in, w.channels_out);
  constexpr std::string_view kOrders[] = {"packed", "columns", "fragments", "halves", "unpacked"};
  const std::string sizes = size_class(pixels) + " by " + size_class(w.channels_in) + " by " + size_class(w.channels_out);
  const std::string groups = w.groups == 1 ? "" : ", groups " + size_class(w.groups);
  const std::string taps = c.matrix ? "" : ", taps " + sides(c.taps_h, c.taps_w) + ", steps " + sides(c.in_step_h, c.in_step_w);
  const std::string pool = pools(c) ? ", pools " + sides(c.pool.rows, c.pool.columns) : "";
  return (c.matrix ? "product " : "convolution ") + elements_of(node, c) + " " + sizes + groups + taps + pool + ", " +
         std::string(kOrders[static_cast<size_t>(c.order)]);
}

Contraction with_order(const Contraction& c, WeightOrder order) {
  Contraction other = c;
  other.order = order;
  return other;
}

// Returns the node for weights in this order. Split weights are computed in fp16, regardless of the node's dtype.
LowerContext as_ordered(const LowerContext& node, WeightOrder order) {
  LowerContext other = node;
  if (node.halves) other.float_dtype = order == WeightOrder::halves ? DType::float16 : DType::float32;
  return other;
}

// Returns the names of all variants, including those with a differently packed matrix.
std::vector<std::string> names_of_variants(const LowerContext& node, const Contraction& c, int64_t pixels) {
  std::vector<std::string> names;
  for (const WeightOrder order : c.orders.empty() ? std::vector{c.order} : c.orders)
    for (const ContractionPlan& plan : variants_of(as_ordered(node, order), with_order(c, order), pixels))
      if (is_possible(node, plan) && std::ranges::find(names, plan.variant) == names.end()) names.push_back(plan.variant);
  return names;
}

}  // namespace

std::string product_kind(const NodeContext& node, int64_t rows, int64_t depth, int64_t columns) {
  return "product " + std::string(name(node.halves ? DType::float32 : node.float_dtype)) + " " + size_class(rows) + " by " +
         size_class(depth) + " by " + size_class(columns) + ", constant";
}

bool pools_at_once(const LowerContext& node, const Contraction& c, int64_t pixels) {
  // An extra dispatch with its barrier costs a GPU about two microseconds. This many multiply-adds take less than that with any tile.
  constexpr int64_t kTermsOfDispatch = 10'000'000;
  if (!patch_tiling_of(node, c)) return false;
  if (pixels * c.weights.groups * c.weights.channels_out * depth_of(c) <= kTermsOfDispatch) return true;
  Contraction alone = c;
  alone.pool = {};
  return own_plan(node, alone, pixels).shader == "conv_patch.comp";
}

ContractionPlan plan_of(const LowerContext& node, const Contraction& c, int64_t pixels) {
  ContractionPlan own = plan_without_spills(node, c, pixels, own_plan(node, c, pixels));
  if (!node.measured) return own;
  const std::string kind = kind_of(node, c, pixels);
  const auto found = node.measured->taken.find(kind);
  const bool is_known = found != node.measured->taken.end();
  if (!is_known && !node.measured->lists) return own;
  StepChoice choice{.kind = kind, .own = own.variant, .taken = own.variant};
  if (!c.orders.empty() && c.orders[0] != c.order) {
    const LowerContext ordered = as_ordered(node, c.orders[0]);
    const Contraction first = with_order(c, c.orders[0]);
    choice.own = plan_without_spills(ordered, first, pixels, own_plan(ordered, first, pixels)).variant;
  }
  if (node.measured->lists) {
    choice.variants = names_of_variants(node, c, pixels);
    if (std::ranges::find(choice.variants, choice.own) == choice.variants.end())
      choice.variants.insert(choice.variants.begin(), choice.own);
  }
  ContractionPlan plan = std::move(own);
  if (is_known && found->second != plan.variant) {
    std::vector<ContractionPlan> others = variants_of(node, c, pixels);
    const auto wanted =
        std::ranges::find_if(others, [&](const ContractionPlan& one) { return one.variant == found->second && is_possible(node, one); });
    if (wanted == others.end() || node.is_spilled(found->second))
      choice.refused = found->second;
    else
      plan = std::move(*wanted);
    choice.spills = wanted != others.end() && node.is_spilled(found->second);
  }
  choice.taken = plan.variant;
  plan.choice = std::make_shared<const StepChoice>(std::move(choice));
  return plan;
}

}  // namespace pumice
