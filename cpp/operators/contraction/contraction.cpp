#include "operators/contraction/contraction.h"

#include <optional>

#include "core/rounding.h"
#include "operators/contraction/contraction_parts.h"
#include "operators/contraction/contraction_tiling.h"
#include "operators/means/held_rows.h"

namespace pumice {
namespace {

constexpr int64_t kLanePixels = 16;  // pixels of a subgroup of conv_lanes

constexpr int64_t kMostRowTaps = 9;  // unrolled by conv_lanes

int64_t most_groups(const NodeContext& node, const char* axis) {
  return static_cast<int64_t>(std::min<uint64_t>(node.context->limit("maxComputeWorkGroupCount_" + std::string(axis)), INT32_MAX));
}

// The columns that one dispatch takes of a matrix that is not packed in blocks; 0 for one that is.
int64_t columns_of_dispatch(const NodeContext& node, const Contraction& c) {
  if (c.order == WeightOrder::strides) return most_groups(node, "1") * kLaneChannels;
  if (c.order == WeightOrder::fragments)
    return std::min(most_groups(node, "1") * kLeastQuadColumns, block_of_fragments(node, c.weights, node.float_dtype));
  return c.order == WeightOrder::columns ? most_columns(node, c.weights.channels_in) : 0;
}

SpecValues specialized(std::initializer_list<std::pair<std::string_view, int64_t>> values) {
  SpecValues spec;
  for (const auto& [name, value] : values) spec.emplace_back(name, value);
  return spec;
}

// `all`: these taps are the whole kernel, so that the weights need no tap stride.
void set_taps(StepBuilder& step, const Contraction& c, bool all) {
  step.set("in_h", c.x.h).set("in_w", c.x.w);
  step.set("in_step_h", c.in_step_h).set("in_step_w", c.in_step_w).set("tap_step_h", c.tap_step_h).set("tap_step_w", c.tap_step_w);
  step.set("base_h", c.base_h).set("base_w", c.base_w).set("taps_h", c.taps_h).set("taps_w", c.taps_w);
  step.set("tap_first", c.tap_first).set("tap_row", c.tap_row).set("tap_column", c.tap_column);
  if (!all) step.set("kernel_taps", c.weights.taps);
}

// The kernel that computes a contraction, what it is told, the tile that a workgroup computes, and how often an invocation's loops run
// for that at most.
struct ContractionPlan {
  std::string_view shader;
  Macros macros;
  SpecValues spec;
  int64_t tile_pixels, tile_channels;
  int64_t additions;       // see LoweredNode
  int64_t iterations = 0;  // 0: of a kernel for matrix units or subgroups, which no driver that ends long loops has
};

constexpr int64_t kBiases = 2;  // additions behind a sum
// An addition of a matrix unit counts for two: it may cut off what does not fit, and is then off by as much as two that round.
constexpr int64_t kCutting = 2;

// Whether elements of x and of y are read and written as vectors, as macros.
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

// A plan for matrix units.
ContractionPlan matrix_plan(const LowerContext& node, const MatrixTiling& matrix, const Macros& y_vectors, int64_t depth) {
  return {"conv_matrix.comp",
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
          kCutting * round_up(depth, matrix.depth) / matrix.split + matrix.split + kBiases};
}

ContractionPlan quads_plan(const LowerContext& node, const Contraction& c, int64_t pixels, const Macros& y_vectors, int64_t depth) {
  const QuadTiling quads = quad_tiling_of(node, pixels, c.weights.channels_out, depth).value_or(QuadTiling{32, 32, 32, 32, 4, 1});
  return {"product_quads.comp",
          y_vectors,
          specialized({{"INVOCATIONS", quads.subgroups() * 32},
                       {"TILE_P", quads.rows},
                       {"TILE_C", quads.columns},
                       {"SUB_P", quads.sub_rows},
                       {"SUB_C", quads.sub_columns},
                       {"AHEAD", quads.ahead},
                       {"EARLY", quads.early ? 1 : 0},
                       {"WHOLE", depth % (32 * quads.split * quads.ahead) == 0 ? 1 : 0}}),
          quads.rows,
          quads.columns,
          kCutting * round_up(depth, 32 * quads.split * quads.ahead) / quads.split + quads.split + kBiases};
}

ContractionPlan columns_plan(const LowerContext& node, int64_t pixels, const Macros& y_vectors, int64_t depth) {
  const int64_t ahead = 8 / pixels, subgroup = node.subgroup();
  return {"gemv_columns.comp",
          {y_vectors[0], {"SUBGROUP", std::to_string(subgroup) + "u"}},
          specialized({{"ROWS", pixels}, {"AHEAD", ahead}, {"WHOLE", depth / 8 % (subgroup * ahead) == 0 ? 1 : 0}}),
          kMostColumnRows,
          columns_at_once(node),
          ceil_div(depth / 8, subgroup) + 5 + meeting_additions(subgroup, subgroup, false) + kBiases};
}

// A plan for products of few rows.
ContractionPlan skinny_plan(const Skinny& skinny, const Macros& y_vectors, int64_t depth) {
  return {"gemv.comp", y_vectors,
          specialized({{"INVOCATIONS", skinny.invocations},
                       {"ROWS", skinny.rows},
                       {"AHEAD", kSkinnyAhead},
                       {"WHOLE", depth % (skinny.invocations / (kSkinnyChannels / 8) * kSkinnyAhead) == 0 ? 1 : 0}}),
          kMostSkinny, kSkinnyChannels,
          // The rows of w that one invocation reads, eight of their sums, and what is left of these.
          ceil_div(depth, skinny.invocations / 4) + 8 + skinny.invocations / kSkinnyChannels + kBiases, skinny.iterations(depth)};
}

// A plan for CPU drivers, whose kernels have no barriers.
ContractionPlan lanes_plan(const LowerContext& node, const Contraction& c, int64_t pixels, const Macros& vectors, int64_t depth) {
  const int64_t kv = step_channels(c.weights.channels_in);
  const bool has_strides = c.order == WeightOrder::strides;
  const int64_t iterations = c.taps_h * (1 + c.taps_w * (2 + c.weights.channels_in / 4));
  if (pixels <= kMostLaneRows || has_strides) {
    Macros macros = vectors;
    macros.emplace_back("KV", std::to_string(kv));
    macros.emplace_back("W_STRIDED", has_strides ? "1" : "0");
    macros.emplace_back("W_VEC4", has_strides && has_vector_columns(node, c, node.input_phase(1)) ? "1" : "0");
    return {"gemv_lanes.comp", std::move(macros), specialized({{"ROWS", pixels}}), kMostLaneRows, kLaneChannels,
            depth + kBiases,   iterations};
  }
  const bool is_narrow = c.weights.channels_in > 0 && c.weights.channels_in <= 4 && c.taps_w <= kMostRowTaps;
  Macros macros = vectors;
  macros.emplace_back("KV", std::to_string(kv));
  macros.emplace_back("ROW_TAPS", std::to_string(is_narrow ? c.taps_w : 0));
  return {"conv_lanes.comp", std::move(macros), {}, kLanePixels, kLaneChannels, depth + kBiases, iterations};
}

// A plan for tiles in shared memory.
ContractionPlan tiled_plan(const LowerContext& node, const Contraction& c, int64_t pixels, const Macros& vectors, int64_t depth) {
  const Tiling tiling = tiling_of(node, pixels, c.weights.channels_out, c.weights.groups, depth);
  return {"conv_tiled.comp",
          vectors,
          specialized({{"INVOCATIONS", tiling.invocations()},
                       {"TILE_P", tiling.pixels},
                       {"TILE_C", tiling.channels},
                       {"SPLIT", tiling.split},
                       {"REGISTERS", tiling.registers}}),
          tiling.pixels,
          tiling.channels,
          round_up(depth, 16 * tiling.split) / tiling.split + tiling.split + kBiases,
          tiling.iterations(depth)};
}

// Chooses the kernel. Products of few rows have kernels of their own; then come matrix units. CPU drivers take gemv_lanes or conv_lanes,
// which have no barriers: a barrier costs them a switch of every invocation. All others take tiles in shared memory.
ContractionPlan plan_of(const LowerContext& node, const Contraction& c, int64_t pixels) {
  const int64_t depth = c.taps_h * c.taps_w * c.weights.channels_in;
  const bool has_own_kernel = reads_eights(c.order);
  const auto skinny = c.integers || has_own_kernel ? std::nullopt : skinny_of(node, c, pixels);
  const auto matrix = skinny || c.integers || has_own_kernel ? std::nullopt : matrix_tiling_of(node, c, pixels);
  const bool is_gemv = skinny || c.order == WeightOrder::columns;
  const auto [y_vectors, vectors] = vector_macros(node, c, is_gemv);
  if (matrix) return matrix_plan(node, *matrix, y_vectors, depth);
  if (c.order == WeightOrder::fragments) return quads_plan(node, c, pixels, y_vectors, depth);
  if (c.order == WeightOrder::columns) return columns_plan(node, pixels, y_vectors, depth);
  if (skinny) return skinny_plan(*skinny, y_vectors, depth);
  if (node.prefers_lanes()) return lanes_plan(node, c, pixels, vectors, depth);
  return tiled_plan(node, c, pixels, vectors, depth);
}

// Adds the contraction as one dispatch.
void add_whole(LowerContext& node, const PlacedContraction& placed, ContractionPlan plan) {
  const Contraction& c = placed.c;
  const ContractionBias& bias = placed.bias;
  Macros macros = std::move(plan.macros);
  macros.emplace_back("MATRIX", c.matrix ? "1" : "0");
  macros.emplace_back("HAS_BIAS", std::to_string(static_cast<int>(bias.kind)));
  if (c.x.grouped) macros.emplace_back("X_GROUPED", "1");
  if (c.y.grouped) macros.emplace_back("Y_GROUPED", "1");
  if (c.integers) {
    for (auto& macro : integer_macros(*c.integers)) macros.push_back(std::move(macro));
  } else {
    macros.emplace_back("EPILOGUE(x)", node.epilogue());
  }
  const Operand* residual = c.integers ? nullptr : node.residual();
  if (residual) macros.emplace_back("RESIDUAL", "1");
  const DType x = c.integers ? c.integers->x : node.float_dtype, w = c.integers ? c.integers->w : node.float_dtype;
  const DType sums = c.integers ? DType::int32 : node.float_dtype;
  StepBuilder step(node.kernel(plan.shader, sums, macros, plan.spec));
  step.bind("x", placed.x, c.x_first, x_span(c), bits(x)).bind("w", placed.w, c.w_first, w_span(node, c), bits(w));
  step.bind("y", placed.y, c.y_first, y_span(c), bits(sums));
  if (residual) step.bind("residual", *residual, c.y_first, y_span(c), bits(sums));
  if (c.integers) bind_zero_points(step, *c.integers);
  if (bias.kind == ContractionBias::Kind::channels) step.bind("b", bias.operand).set("b_first", bias.first);
  step.set("pixels", placed.pixels()).set("out_h", c.out_h).set("out_w", c.out_w);
  if (!c.matrix) {
    set_taps(step, c, residual != nullptr);
    if (c.integers && c.integers->w_zero) step.set("w_zero_first", c.integers->w_zero->first);
  } else {
    step.set("x_stride_group", c.x_stride_group).set("y_stride_group", c.y_stride_group).set("w_stride_group", c.w_stride_group);
    if (c.integers)
      set_zero_points(step, *c.integers)
          .set("x_zero_group", c.integers->x_zero ? c.integers->x_zero->stride_group : 0)
          .set("w_zero_group", c.integers->w_zero ? c.integers->w_zero->stride_group : 0);
    else
      step.set("b_scale", bias.scale).set("b_stride_row", bias.stride_row).set("b_stride_column", bias.stride_column);
    if (c.order == WeightOrder::strides) step.set("w_stride_in", c.weights.stride_in).set("w_stride_out", c.weights.stride_out);
    if (bias.kind == ContractionBias::Kind::matrix) {
      const int64_t span = (placed.pixels() - 1) * bias.stride_row + (c.weights.channels_out - 1) * bias.stride_column + 1;
      step.bind("b", bias.operand, bias.first, span, bits(node.float_dtype));
    }
  }
  step.set("channels_in", c.weights.channels_in).set("channels_out", c.weights.channels_out);
  set_strides(step, 'x', c.x);
  set_strides(step, 'y', c.y);
  step.groups(static_cast<uint64_t>(ceil_div(placed.pixels(), plan.tile_pixels)),
              static_cast<uint64_t>(ceil_div(c.weights.channels_out, plan.tile_channels)), static_cast<uint64_t>(c.weights.groups));
  node.tell_additions(plan.additions);
  node.add(step.build());
}

void add_placed(LowerContext& node, const PlacedContraction& placed) {
  const Contraction& c = placed.c;
  if (const Parts parts = channel_parts(node, placed, columns_of_dispatch(node, c)); !parts.empty()) {
    for (const PlacedContraction& part : parts) add_placed(node, part);
    return;
  }
  ContractionPlan plan = plan_of(node, c, placed.pixels());
  node.check_loops(plan.iterations);
  const int64_t bytes = largest_range(*node.context), group = c.w_stride_group * static_cast<int64_t>(bits(node.float_dtype)) / 8;
  // gemv_lanes takes all rows of a dispatch at once; of matrices that only it reads there may be more.
  const DispatchRoom room{c.order == WeightOrder::strides ? kMostLaneRows : most_groups(node, "0") * plan.tile_pixels,
                          std::min(most_groups(node, "2"), group > 0 ? std::max<int64_t>(bytes / group, 1) : INT32_MAX), bytes};
  if (const Parts parts = pixel_parts(node, placed, room); !parts.empty()) {
    for (const PlacedContraction& part : parts) add_placed(node, part);
    return;
  }
  add_whole(node, placed, std::move(plan));
}

}  // namespace

void add_contraction(LowerContext& node, const Contraction& c, const Operand& x, const Operand& w, const ContractionBias& bias,
                     const Operand& y) {
  if (c.x.n * c.out_h * c.out_w == 0 || c.weights.channels_out == 0 || c.weights.groups == 0) return;
  add_placed(node, {c, x, w, bias, y});
}

ContractionBias bias_of(LowerContext& node) {
  if (!node.has_input(2)) return {};
  return {ContractionBias::Kind::channels, node.packed(2)};
}

}  // namespace pumice
