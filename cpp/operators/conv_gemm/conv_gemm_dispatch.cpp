#include "operators/conv_gemm/conv_gemm_dispatch.h"

#include <optional>

#include "core/rounding.h"
#include "operators/conv_gemm/dispatch_splitting.h"
#include "operators/conv_gemm/conv_gemm_plan.h"
#include "operators/conv_gemm/conv_gemm_tiling.h"
#include "operators/common/row_registers.h"
#include "operators/common/mixed_precision.h"

namespace pumice {
namespace {

int64_t most_groups(const NodeContext& node, const char* axis) {
  return static_cast<int64_t>(std::min<uint64_t>(node.context->limit("maxComputeWorkGroupCount_" + std::string(axis)), INT32_MAX));
}

// Number of columns per dispatch for a matrix that is not packed in blocks; 0 if it is.
int64_t columns_of_dispatch(const NodeContext& node, const Contraction& c) {
  if (c.order == WeightOrder::strides) return most_groups(node, "1") * kLaneChannels;
  if (c.order == WeightOrder::fragments)
    return std::min(most_groups(node, "1") * kLeastQuadColumns, block_of_fragments(node, c.weights, bits(node.float_dtype)));
  if (c.order == WeightOrder::halves)
    return std::min(most_groups(node, "1") * kLeastQuadColumns, block_of_fragments(node, c.weights, kHalvesBits));
  return c.order == WeightOrder::columns ? most_columns(node, c.weights.channels_in) : 0;
}

// `all`: these taps are the whole kernel, so the weights need no tap stride.
void set_taps(StepBuilder& step, const Contraction& c, bool all) {
  step.set("in_h", c.x.h).set("in_w", c.x.w);
  step.set("in_step_h", c.in_step_h).set("in_step_w", c.in_step_w).set("tap_step_h", c.tap_step_h).set("tap_step_w", c.tap_step_w);
  step.set("base_h", c.base_h).set("base_w", c.base_w).set("taps_h", c.taps_h).set("taps_w", c.taps_w);
  step.set("tap_first", c.tap_first).set("tap_row", c.tap_row).set("tap_column", c.tap_column);
  if (!all) step.set("kernel_taps", c.weights.taps);
}

// Returns the float dtype of an operand: the dtype of the node's tensor, or else the internal dtype.
DType floats_of(const LowerContext& node, const Operand& operand) {
  const bool is_input = operand.place == Place::input, is_output = operand.place == Place::output;
  if (!is_input && !is_output) return node.float_dtype;
  const DType dtype = is_input ? node.input(operand.index).dtype : node.output(operand.index).dtype;
  return is_working_float(dtype) ? dtype : node.float_dtype;
}

// Storage dtypes of a float contraction's arrays.
MixedArrays float_arrays(const LowerContext& node, const PlacedContraction& placed) {
  const bool adds = placed.bias.kind == ContractionBias::Kind::matrix;
  return mixed_arrays({{"X", placed.c.x_dtype},
                       {"W", node.float_dtype},
                       {"B", adds ? floats_of(node, placed.bias.operand) : node.float_dtype},
                       {"R", node.residual_dtype(node.float_dtype)},
                       {"Y", placed.c.y_dtype}});
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
    for (auto& macro : node.epilogue_macros()) macros.push_back(std::move(macro));
  }
  if (pools(c)) macros.emplace_back("POOL_EPILOGUE(x)", node.attributes->text("pool_epilogue", "x"));
  const Operand* residual = c.integers ? nullptr : node.residual();
  if (residual) macros.emplace_back("RESIDUAL", "1");
  const DType x = c.integers ? c.integers->x : c.x_dtype, w = c.integers ? c.integers->w : node.float_dtype;
  const DType sums = c.integers ? DType::int32 : c.y_dtype;
  const MixedArrays arrays = c.integers ? MixedArrays{sums} : float_arrays(node, placed);
  arrays.tell(macros);
  StepBuilder step(node.kernel(plan.shader, arrays.storage, macros, plan.spec));
  step.variant(std::move(plan.variant), std::move(plan.spilled));
  const bool has_own_weights = plan.weights_count > 0;
  step.bind("x", placed.x, c.x_first, x_span(c), bits(x));
  step.bind("w", placed.w, has_own_weights ? plan.weights_first : c.w_first, has_own_weights ? plan.weights_count : w_span(node, c),
            bits(w));
  step.bind("y", placed.y, c.y_first, y_span(c), bits(sums));
  if (residual) step.bind("residual", *residual, c.y_first, y_span(c), bits(node.input(kResidualInput).dtype));
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
    if (c.order == WeightOrder::halves) step.set("w_exponent", node.halves->exponent);
    if (c.order == WeightOrder::strides) step.set("w_stride_in", c.weights.stride_in).set("w_stride_out", c.weights.stride_out);
    if (bias.kind == ContractionBias::Kind::matrix) {
      const int64_t span = (placed.pixels() - 1) * bias.stride_row + (c.weights.channels_out - 1) * bias.stride_column + 1;
      step.bind("b", bias.operand, bias.first, span, bits(floats_of(node, bias.operand)));
    }
  }
  step.set("channels_in", c.weights.channels_in).set("channels_out", c.weights.channels_out);
  set_strides(step, 'x', c.x);
  set_strides(step, 'y', c.y);
  step.groups(static_cast<uint64_t>(plan.tiles > 0 ? plan.tiles : ceil_div(placed.pixels(), plan.tile_pixels)),
              static_cast<uint64_t>(ceil_div(c.weights.channels_out, plan.tile_channels)), static_cast<uint64_t>(c.weights.groups));
  node.tell_additions(plan.additions);
  Step made = step.build();
  made.choice = std::move(plan.choice);
  node.add(std::move(made));
}

// Limits of a dispatch of this plan.
DispatchRoom room_of(const LowerContext& node, const Contraction& c, const ContractionPlan& plan) {
  const int64_t bytes = largest_range(*node.context), group = c.w_stride_group * static_cast<int64_t>(bits(node.float_dtype)) / 8;
  // gemv_cpu processes all rows of a dispatch at once. Only packed matrices have other kernels for more rows.
  return {c.order == WeightOrder::strides ? kMostLaneRows : most_groups(node, "0") * plan.tile_pixels,
          std::min(most_groups(node, "2"), group > 0 ? std::max<int64_t>(bytes / group, 1) : INT32_MAX), bytes};
}

void add_placed(LowerContext& node, const PlacedContraction& placed) {
  const Contraction& c = placed.c;
  if (const Parts parts = channel_parts(node, placed, columns_of_dispatch(node, c)); !parts.empty()) {
    for (const PlacedContraction& part : parts) add_placed(node, part);
    return;
  }
  ContractionPlan plan = plan_of(node, c, placed.pixels());
  node.check_loops(plan.iterations);
  if (const Parts parts = pixel_parts(placed, room_of(node, c, plan)); !parts.empty()) {
    for (const PlacedContraction& part : parts) add_placed(node, part);
    return;
  }
  add_whole(node, placed, std::move(plan));
}

PlacedContraction placed_contraction(const LowerContext& node, const Contraction& c, const Operand& x, const Operand& w,
                                     const ContractionBias& bias, const Operand& y) {
  PlacedContraction placed{c, x, w, bias, y};
  placed.c.x_dtype = floats_of(node, x);
  placed.c.y_dtype = floats_of(node, y);
  return placed;
}

}  // namespace

void add_contraction(LowerContext& node, const Contraction& c, const Operand& x, const Operand& w, const ContractionBias& bias,
                     const Operand& y) {
  if (c.x.n * c.out_h * c.out_w == 0 || c.weights.channels_out == 0 || c.weights.groups == 0) return;
  add_placed(node, placed_contraction(node, c, x, w, bias, y));
}

bool add_pooled_contraction(LowerContext& node, const Contraction& c, const Operand& x, const Operand& w, const ContractionBias& bias,
                            const Operand& y) {
  const PlacedContraction placed = placed_contraction(node, c, x, w, bias, y);
  if (placed.pixels() == 0 || c.weights.channels_out == 0 || c.weights.groups == 0) return false;
  if (!pools_at_once(node, placed.c, placed.pixels()) || !channel_parts(node, placed, 0).empty()) return false;
  ContractionPlan plan = plan_of(node, placed.c, placed.pixels());
  if (!pixel_parts(placed, room_of(node, placed.c, plan)).empty()) return false;
  node.check_loops(plan.iterations);
  add_whole(node, placed, std::move(plan));
  return true;
}

ContractionBias bias_of(LowerContext& node) {
  if (!node.has_input(2)) return {};
  return {ContractionBias::Kind::channels, node.packed(2)};
}

}  // namespace pumice
