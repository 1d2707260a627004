#include "operators/conv_gemm/conv_gemm_dispatch.h"

#include <optional>

#include "core/rounding.h"
#include "operators/common/mixed_precision.h"
#include "operators/common/row_registers.h"
#include "operators/conv_gemm/conv_gemm_plan.h"
#include "operators/conv_gemm/conv_gemm_tiling.h"
#include "operators/conv_gemm/dispatch_splitting.h"

namespace pumice {
namespace {

int64_t max_groups(const NodeContext& node, const char* axis) {
  return static_cast<int64_t>(std::min<uint64_t>(node.context->limit("maxComputeWorkGroupCount_" + std::string(axis)), INT32_MAX));
}

// Number of columns per dispatch for a matrix that is not packed in blocks; 0 if it is.
int64_t max_dispatch_columns(const NodeContext& node, const ConvGemm& c) {
  if (c.order == WeightOrder::strides) return max_groups(node, "1") * kCpuChannels;
  if (c.order == WeightOrder::fragments)
    return std::min(max_groups(node, "1") * kMinMmaColumns, columns_per_binding(node, c.weights, bits(node.float_dtype)));
  if (c.order == WeightOrder::split_fp16)
    return std::min(max_groups(node, "1") * kMinMmaColumns, columns_per_binding(node, c.weights, kSplitFp16Bits));
  return c.order == WeightOrder::col_major ? max_col_major_columns(node, c.weights.channels_in) : 0;
}

// `all`: these taps are the whole kernel, so the weights need no tap stride.
void set_filter_taps(StepBuilder& step, const ConvGemm& c, bool all) {
  step.set("in_h", c.x.h).set("in_w", c.x.w);
  step.set("in_step_h", c.in_step_h).set("in_step_w", c.in_step_w).set("tap_step_h", c.tap_step_h).set("tap_step_w", c.tap_step_w);
  step.set("base_h", c.base_h).set("base_w", c.base_w).set("taps_h", c.taps_h).set("taps_w", c.taps_w);
  step.set("tap_first", c.tap_first).set("tap_row", c.tap_row).set("tap_column", c.tap_column);
  if (!all) step.set("kernel_taps", c.weights.taps);
}

// Returns the float dtype of an operand: the dtype of the node's tensor, or else the internal dtype.
DType float_dtype_of(const LowerContext& node, const Operand& operand) {
  const bool is_input = operand.place == MemoryKind::input, is_output = operand.place == MemoryKind::output;
  if (!is_input && !is_output) return node.float_dtype;
  const DType dtype = is_input ? node.input(operand.index).dtype : node.output(operand.index).dtype;
  return is_operator_float(dtype) ? dtype : node.float_dtype;
}

// Storage dtypes of a float contraction's arrays.
MixedPrecisionArrays float_array_types(const LowerContext& node, const ConvGemmCall& call) {
  const bool adds = call.bias.kind == ConvGemmBias::Kind::matrix;
  return mixed_precision_arrays({{"X", call.c.x_dtype},
                                 {"W", node.float_dtype},
                                 {"B", adds ? float_dtype_of(node, call.bias.operand) : node.float_dtype},
                                 {"R", node.residual_dtype(node.float_dtype)},
                                 {"Y", call.c.y_dtype}});
}

// Adds the contraction as one dispatch.
void add_dispatch(LowerContext& node, const ConvGemmCall& call, ConvGemmPlan plan) {
  const ConvGemm& c = call.c;
  const ConvGemmBias& bias = call.bias;
  Macros macros = std::move(plan.macros);
  macros.emplace_back("MATRIX", c.is_gemm ? "1" : "0");
  macros.emplace_back("HAS_BIAS", std::to_string(static_cast<int>(bias.kind)));
  if (c.x.grouped) macros.emplace_back("X_GROUPED", "1");
  if (c.y.grouped) macros.emplace_back("Y_GROUPED", "1");
  if (c.integers) {
    for (auto& macro : int8_macros(*c.integers)) macros.push_back(std::move(macro));
  } else {
    for (auto& macro : node.epilogue_macros()) macros.push_back(std::move(macro));
  }
  if (pools(c)) macros.emplace_back("POOL_EPILOGUE(x)", node.attributes->text("pool_epilogue", "x"));
  const Operand* residual = c.integers ? nullptr : node.residual();
  if (residual) macros.emplace_back("RESIDUAL", "1");
  const DType x = c.integers ? c.integers->x : c.x_dtype, w = c.integers ? c.integers->w : node.float_dtype;
  const DType sums = c.integers ? DType::int32 : c.y_dtype;
  const MixedPrecisionArrays arrays = c.integers ? MixedPrecisionArrays{sums} : float_array_types(node, call);
  arrays.append_to(macros);
  StepBuilder step(node.kernel(plan.shader, arrays.storage, macros, plan.spec));
  step.variant(std::move(plan.variant), std::move(plan.spilled));
  const bool has_weight_range = plan.weights_count > 0;
  step.bind("x", call.x, c.x_first, x_span(c), bits(x));
  step.bind("w", call.w, has_weight_range ? plan.weights_first : c.w_first, has_weight_range ? plan.weights_count : w_span(node, c),
            bits(w));
  step.bind("y", call.y, c.y_first, y_span(c), bits(sums));
  if (residual) step.bind("residual", *residual, c.y_first, y_span(c), bits(node.input(kResidualInput).dtype));
  if (c.integers) bind_zero_points(step, *c.integers);
  if (bias.kind == ConvGemmBias::Kind::channels) step.bind("b", bias.operand).set("b_first", bias.first);
  step.set("pixels", call.pixels()).set("out_h", c.out_h).set("out_w", c.out_w);
  if (!c.is_gemm) {
    set_filter_taps(step, c, residual != nullptr);
    if (c.integers && c.integers->w_zero) step.set("w_zero_first", c.integers->w_zero->first);
  } else {
    step.set("x_stride_group", c.x_stride_group).set("y_stride_group", c.y_stride_group).set("w_stride_group", c.w_stride_group);
    if (c.integers)
      set_zero_points(step, *c.integers)
          .set("x_zero_group", c.integers->x_zero ? c.integers->x_zero->stride_group : 0)
          .set("w_zero_group", c.integers->w_zero ? c.integers->w_zero->stride_group : 0);
    else
      step.set("b_scale", bias.scale).set("b_stride_row", bias.stride_row).set("b_stride_column", bias.stride_column);
    if (c.order == WeightOrder::split_fp16) step.set("w_exponent", node.split_fp16->exponent);
    if (c.order == WeightOrder::strides) step.set("w_stride_in", c.weights.stride_in).set("w_stride_out", c.weights.stride_out);
    if (bias.kind == ConvGemmBias::Kind::matrix) {
      const int64_t span = (call.pixels() - 1) * bias.stride_row + (c.weights.channels_out - 1) * bias.stride_column + 1;
      step.bind("b", bias.operand, bias.first, span, bits(float_dtype_of(node, bias.operand)));
    }
  }
  step.set("channels_in", c.weights.channels_in).set("channels_out", c.weights.channels_out);
  set_strides(step, 'x', c.x);
  set_strides(step, 'y', c.y);
  step.groups(static_cast<uint64_t>(plan.tiles > 0 ? plan.tiles : ceil_div(call.pixels(), plan.tile_pixels)),
              static_cast<uint64_t>(ceil_div(c.weights.channels_out, plan.tile_channels)), static_cast<uint64_t>(c.weights.groups));
  node.report_additions(plan.additions);
  Step built = step.build();
  built.choice = std::move(plan.choice);
  node.add(std::move(built));
}

// Limits of a dispatch of this plan.
DispatchLimits get_dispatch_limits(const LowerContext& node, const ConvGemm& c, const ConvGemmPlan& plan) {
  const int64_t bytes = max_binding_bytes(*node.context), group = c.w_stride_group * static_cast<int64_t>(bits(node.float_dtype)) / 8;
  // gemv_cpu processes all rows of a dispatch at once. Only packed matrices have other kernels for more rows.
  return {c.order == WeightOrder::strides ? kMaxCpuRows : max_groups(node, "0") * plan.tile_pixels,
          std::min(max_groups(node, "2"), group > 0 ? std::max<int64_t>(bytes / group, 1) : INT32_MAX), bytes};
}

void add_call(LowerContext& node, const ConvGemmCall& call) {
  const ConvGemm& c = call.c;
  if (const ConvGemmCalls chunks = split_by_channels(node, call, max_dispatch_columns(node, c)); !chunks.empty()) {
    for (const ConvGemmCall& chunk : chunks) add_call(node, chunk);
    return;
  }
  ConvGemmPlan plan = select_plan(node, c, call.pixels());
  node.check_loops(plan.iterations);
  if (const ConvGemmCalls chunks = split_by_pixels(call, get_dispatch_limits(node, c, plan)); !chunks.empty()) {
    for (const ConvGemmCall& chunk : chunks) add_call(node, chunk);
    return;
  }
  add_dispatch(node, call, std::move(plan));
}

ConvGemmCall make_call(const LowerContext& node, const ConvGemm& c, const Operand& x, const Operand& w, const ConvGemmBias& bias,
                       const Operand& y) {
  ConvGemmCall call{c, x, w, bias, y};
  call.c.x_dtype = float_dtype_of(node, x);
  call.c.y_dtype = float_dtype_of(node, y);
  return call;
}

}  // namespace

void add_conv_gemm(LowerContext& node, const ConvGemm& c, const Operand& x, const Operand& w, const ConvGemmBias& bias, const Operand& y) {
  if (c.x.n * c.out_h * c.out_w == 0 || c.weights.channels_out == 0 || c.weights.groups == 0) return;
  add_call(node, make_call(node, c, x, w, bias, y));
}

bool add_pooled_conv(LowerContext& node, const ConvGemm& c, const Operand& x, const Operand& w, const ConvGemmBias& bias,
                     const Operand& y) {
  const ConvGemmCall call = make_call(node, c, x, w, bias, y);
  if (call.pixels() == 0 || c.weights.channels_out == 0 || c.weights.groups == 0) return false;
  if (!prefers_fused_pool(node, call.c, call.pixels()) || !split_by_channels(node, call, 0).empty()) return false;
  ConvGemmPlan plan = select_plan(node, call.c, call.pixels());
  if (!split_by_pixels(call, get_dispatch_limits(node, call.c, plan)).empty()) return false;
  node.check_loops(plan.iterations);
  add_dispatch(node, call, std::move(plan));
  return true;
}

ConvGemmBias bias_of(LowerContext& node) {
  if (!node.has_input(2)) return {};
  return {ConvGemmBias::Kind::channels, node.packed(2)};
}

}  // namespace pumice
