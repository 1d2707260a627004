#include "operators/contraction.h"

#include <optional>

#include "core/rounding.h"
#include "operators/contraction_tiling.h"

namespace pumice {
namespace {

constexpr int64_t kLanePixels = 16;  // of conv_lanes: pixels of a subgroup

constexpr int64_t kMostRowTaps = 9;  // unrolled by conv_lanes

SpecValues specialized(std::initializer_list<std::pair<std::string_view, int64_t>> values) {
  SpecValues spec;
  for (const auto& [name, value] : values) spec.emplace_back(name, value);
  return spec;
}

// `all`: of a convolution whose kernel has no taps but these.
void set_taps(StepBuilder& step, const Contraction& c, bool all) {
  step.set("in_h", c.x.h).set("in_w", c.x.w);
  step.set("in_step_h", c.in_step_h).set("in_step_w", c.in_step_w).set("tap_step_h", c.tap_step_h).set("tap_step_w", c.tap_step_w);
  step.set("base_h", c.base_h).set("base_w", c.base_w).set("taps_h", c.taps_h).set("taps_w", c.taps_w);
  step.set("tap_first", c.tap_first).set("tap_row", c.tap_row).set("tap_column", c.tap_column);
  if (!all) step.set("kernel_taps", c.weights.taps);
}

}  // namespace

void add_contraction(LowerContext& node, const Contraction& c, const Operand& x, const Operand& w, const ContractionBias& bias,
                     const Operand& y) {
  const int64_t pixels = c.x.n * c.out_h * c.out_w;
  if (pixels == 0 || c.weights.channels_out == 0 || c.weights.groups == 0) return;
  const bool lanes = node.prefers_lanes();
  const int64_t depth = c.taps_h * c.taps_w * c.weights.channels_in;
  node.check_loops(lanes ? c.taps_h * (1 + c.taps_w * (2 + c.weights.channels_in / 4)) : ceil_div(depth, 16) * 32);
  const int64_t kv = step_channels(c.weights.channels_in);
  const bool x_vec4 = kv == 4 && has_vector_channels(c.x, c.weights.channels_in, c.x_stride_group, 4) && c.x_first % 4 == 0 &&
                      (!c.integers || node.input_phase(0) % 4 == 0);
  const bool y_vec4 = has_vector_channels(c.y, c.weights.channels_out, c.y_stride_group, 4) && c.y_first % 4 == 0;
  const auto skinny = c.integers || c.by_columns ? std::nullopt : skinny_of(node, c, pixels);
  const auto matrix = skinny || c.integers || c.by_columns ? std::nullopt : matrix_tiling_of(node, c, pixels);
  Macros macros = {{"MATRIX", c.matrix ? "1" : "0"},
                   {"Y_VEC4", y_vec4 && !skinny && !c.by_columns ? "1" : "0"},
                   {"HAS_BIAS", std::to_string(static_cast<int>(bias.kind))}};
  if (c.x.grouped) macros.emplace_back("X_GROUPED", "1");
  if (c.y.grouped) macros.emplace_back("Y_GROUPED", "1");
  if (c.integers) {
    for (auto& macro : integer_macros(*c.integers)) macros.push_back(std::move(macro));
  } else {
    macros.emplace_back("EPILOGUE(x)", node.epilogue());
  }
  const Operand* residual = c.integers ? nullptr : node.residual();
  if (residual) macros.emplace_back("RESIDUAL", "1");
  SpecValues spec;
  std::string_view shader = "conv_matrix.comp";
  int64_t tile_pixels = kLanePixels, tile_channels = kLaneChannels;
  if (matrix) {
    tile_pixels = matrix->pixels, tile_channels = matrix->channels;
    spec = specialized({{"INVOCATIONS", matrix->subgroups() * node.context->info().limit("subgroupSize")},
                        {"TILE_P", matrix->pixels},
                        {"TILE_C", matrix->channels},
                        {"SUB_P", matrix->sub_pixels},
                        {"SUB_C", matrix->sub_channels},
                        {"DEPTH", matrix->depth},
                        {"WHOLE", depth % matrix->depth == 0 ? 1 : 0},
                        {"SPLIT", matrix->split}});
  } else if (c.by_columns) {
    const int64_t ahead = 8 / pixels, subgroup = node.subgroup();
    shader = "gemv_columns.comp";
    tile_pixels = kMostColumnRows, tile_channels = kColumnsGroup / subgroup;
    macros.emplace_back("SUBGROUP", std::to_string(subgroup) + "u");
    spec = specialized({{"ROWS", pixels}, {"AHEAD", ahead}, {"WHOLE", depth / 8 % (subgroup * ahead) == 0 ? 1 : 0}});
  } else if (skinny) {
    shader = "gemv.comp";
    tile_pixels = kMostSkinny, tile_channels = kSkinnyChannels;
    spec = specialized({{"INVOCATIONS", skinny->invocations},
                        {"ROWS", skinny->rows},
                        {"AHEAD", kSkinnyAhead},
                        {"WHOLE", depth % (skinny->invocations / (kSkinnyChannels / 8) * kSkinnyAhead) == 0 ? 1 : 0}});
  } else if (lanes) {
    const bool is_narrow = c.weights.channels_in > 0 && c.weights.channels_in <= 4 && c.taps_w <= kMostRowTaps;
    shader = "conv_lanes.comp";
    macros.emplace_back("X_VEC4", x_vec4 ? "1" : "0");
    macros.emplace_back("KV", std::to_string(kv));
    macros.emplace_back("ROW_TAPS", std::to_string(is_narrow ? c.taps_w : 0));
  } else {
    const Tiling tiling = tiling_of(*node.context, pixels, c.weights.channels_out, c.weights.groups, depth);
    shader = "conv_tiled.comp";
    tile_pixels = tiling.pixels, tile_channels = tiling.channels;
    macros.emplace_back("X_VEC4", x_vec4 ? "1" : "0");
    spec = specialized({{"INVOCATIONS", tiling.invocations()},
                        {"TILE_P", tiling.pixels},
                        {"TILE_C", tiling.channels},
                        {"SPLIT", tiling.split},
                        {"REGISTERS", tiling.registers}});
  }
  const DType factors = c.integers ? c.integers->x : node.float_dtype, sums = c.integers ? DType::int32 : node.float_dtype;
  const auto from = [](Operand operand, int64_t element, DType dtype) {
    operand.byte_offset += static_cast<uint64_t>(element * bits(dtype) / 8);
    return operand;
  };
  StepBuilder step(node.kernel(shader, sums, macros, spec));
  step.bind("x", from(x, c.x_first, factors)).bind("w", c.integers ? w : from(w, c.w_first, factors)).bind("y", from(y, c.y_first, sums));
  if (c.integers) bind_zero_points(step, *c.integers);
  if (bias.kind != ContractionBias::Kind::none) step.bind("b", bias.operand);
  if (residual) step.bind("residual", from(*residual, c.y_first, sums));
  step.set("pixels", pixels).set("out_h", c.out_h).set("out_w", c.out_w);
  if (!c.matrix)
    set_taps(step, c, residual != nullptr);
  else if (c.integers)
    set_zero_points(step.set("w_first", c.w_first), *c.integers)
        .set("x_zero_group", c.integers->x_zero ? c.integers->x_zero->stride_group : 0)
        .set("w_zero_group", c.integers->w_zero ? c.integers->w_zero->stride_group : 0);
  else
    step.set("b_scale", bias.scale).set("b_stride_row", bias.stride_row).set("b_stride_column", bias.stride_column);
  step.set("channels_in", c.weights.channels_in).set("channels_out", c.weights.channels_out);
  set_strides(step, 'x', c.x);
  set_strides(step, 'y', c.y);
  step.set("x_stride_group", c.x_stride_group).set("y_stride_group", c.y_stride_group).set("w_stride_group", c.w_stride_group);
  step.groups(static_cast<uint64_t>(ceil_div(pixels, tile_pixels)), static_cast<uint64_t>(ceil_div(c.weights.channels_out, tile_channels)),
              static_cast<uint64_t>(c.weights.groups));
  node.add(step.build());
}

ContractionBias bias_of(LowerContext& node) {
  if (!node.has_input(2)) return {};
  return {ContractionBias::Kind::channels, node.packed(2)};
}

}  // namespace pumice
