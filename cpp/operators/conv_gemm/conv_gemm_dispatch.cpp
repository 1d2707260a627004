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

int64_t get_max_workgroups(const NodeContext& node, const char* axis) {
  return static_cast<int64_t>(std::min<uint64_t>(node.context->limit("maxComputeWorkGroupCount_" + std::string(axis)), INT32_MAX));
}

// Returns the maximum number of columns per dispatch for a matrix that is not packed in blocks; 0 for a matrix that is.
int64_t get_max_dispatch_columns(const NodeContext& node, const ConvGemmParams& c) {
  if (c.order == WeightOrder::strides) return get_max_workgroups(node, "1") * kCpuChannels;
  if (c.order == WeightOrder::fragments)
    return std::min(get_max_workgroups(node, "1") * kMinMmaColumns, get_columns_per_binding(node, c.weights, bits(node.float_dtype)));
  if (c.order == WeightOrder::split_fp16)
    return std::min(get_max_workgroups(node, "1") * kMinMmaColumns, get_columns_per_binding(node, c.weights, kSplitFp16Bits));
  return c.order == WeightOrder::col_major ? get_max_col_major_columns(node, c.weights.channels_in) : 0;
}

// Sets the push constants of the filter taps. `all`: the dispatch computes all taps, so its kernel has no push constant `kernel_taps`.
void set_filter_taps(StepBuilder& step, const ConvGemmParams& c, bool all) {
  step.set("in_h", c.x.h).set("in_w", c.x.w);
  step.set("in_step_h", c.in_step_h).set("in_step_w", c.in_step_w).set("tap_step_h", c.tap_step_h).set("tap_step_w", c.tap_step_w);
  step.set("base_h", c.base_h).set("base_w", c.base_w).set("taps_h", c.taps_h).set("taps_w", c.taps_w);
  step.set("tap_first", c.tap_first).set("tap_row", c.tap_row).set("tap_column", c.tap_column);
  if (!all) step.set("kernel_taps", c.weights.taps);
}

// Returns the float dtype of an operand: for an input or output of the node its dtype, for scratch memory the dtype of intermediate floats.
DType get_float_dtype(const LowerContext& node, const Operand& operand) {
  const bool is_input = operand.memory == MemoryKind::input, is_output = operand.memory == MemoryKind::output;
  if (!is_input && !is_output) return node.float_dtype;
  const DType dtype = is_input ? node.input(operand.index).dtype : node.output(operand.index).dtype;
  return is_operator_float(dtype) ? dtype : node.float_dtype;
}

// Returns the storage dtypes of the arrays of a float GEMM or convolution.
MixedPrecisionArrays choose_float_array_types(const LowerContext& node, const ConvGemmDispatch& dispatch) {
  const bool adds = dispatch.bias.kind == ConvGemmBias::BiasKind::matrix;
  return make_mixed_precision_arrays({{"X", dispatch.c.x_dtype},
                                      {"W", node.float_dtype},
                                      {"B", adds ? get_float_dtype(node, dispatch.bias.operand) : node.float_dtype},
                                      {"R", node.get_residual_dtype(node.float_dtype)},
                                      {"Y", dispatch.c.y_dtype}});
}

// Adds a GEMM or convolution as one dispatch.
void add_single_dispatch(LowerContext& node, const ConvGemmDispatch& dispatch, ConvGemmPlan plan) {
  const ConvGemmParams& c = dispatch.c;
  const ConvGemmBias& bias = dispatch.bias;
  Macros macros = std::move(plan.macros);
  macros.emplace_back("MATRIX", c.is_gemm ? "1" : "0");
  macros.emplace_back("HAS_BIAS", std::to_string(static_cast<int>(bias.kind)));
  if (c.x.grouped) macros.emplace_back("X_GROUPED", "1");
  if (c.y.grouped) macros.emplace_back("Y_GROUPED", "1");
  if (c.integers) {
    for (auto& macro : make_int8_macros(*c.integers)) macros.push_back(std::move(macro));
  } else {
    for (auto& macro : node.make_epilogue_macros()) macros.push_back(std::move(macro));
  }
  if (has_pool(c)) macros.emplace_back("POOL_EPILOGUE(x)", node.attributes->text("pool_epilogue", "x"));
  const Operand* residual = c.integers ? nullptr : node.residual();
  if (residual) macros.emplace_back("RESIDUAL", "1");
  const DType x = c.integers ? c.integers->x : c.x_dtype, w = c.integers ? c.integers->w : node.float_dtype;
  const DType sums = c.integers ? DType::int32 : c.y_dtype;
  const MixedPrecisionArrays arrays = c.integers ? MixedPrecisionArrays{sums} : choose_float_array_types(node, dispatch);
  arrays.append_to(macros);
  StepBuilder step(node.kernel(plan.shader, arrays.storage, macros, plan.spec));
  step.set_variant(std::move(plan.variant), std::move(plan.spilled));
  const bool has_weight_range = plan.weights_count > 0;
  step.bind("x", dispatch.x, c.x_first, count_x_elements(c), bits(x));
  step.bind("w", dispatch.w, has_weight_range ? plan.weights_first : c.w_first,
            has_weight_range ? plan.weights_count : count_w_elements(node, c), bits(w));
  step.bind("y", dispatch.y, c.y_first, count_y_elements(c), bits(sums));
  if (residual) step.bind("residual", *residual, c.y_first, count_y_elements(c), bits(node.input(kResidualInput).dtype));
  if (c.integers) bind_zero_points(step, *c.integers);
  if (bias.kind == ConvGemmBias::BiasKind::channels) step.bind("b", bias.operand).set("b_first", bias.first);
  step.set("pixels", dispatch.pixels()).set("out_h", c.out_h).set("out_w", c.out_w);
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
    if (bias.kind == ConvGemmBias::BiasKind::matrix) {
      const int64_t span = (dispatch.pixels() - 1) * bias.stride_row + (c.weights.channels_out - 1) * bias.stride_column + 1;
      step.bind("b", bias.operand, bias.first, span, bits(get_float_dtype(node, bias.operand)));
    }
  }
  step.set("channels_in", c.weights.channels_in).set("channels_out", c.weights.channels_out);
  set_strides(step, 'x', c.x);
  set_strides(step, 'y', c.y);
  step.set_workgroups(static_cast<uint64_t>(plan.tiles > 0 ? plan.tiles : ceil_div(dispatch.pixels(), plan.tile_pixels)),
                      static_cast<uint64_t>(ceil_div(c.weights.channels_out, plan.tile_channels)), static_cast<uint64_t>(c.weights.groups));
  node.report_additions(plan.additions);
  Step built = step.build();
  built.choice = std::move(plan.choice);
  node.add(std::move(built));
}

// Returns the limits of one dispatch of this plan.
DispatchLimits get_dispatch_limits(const LowerContext& node, const ConvGemmParams& c, const ConvGemmPlan& plan) {
  const int64_t bytes = max_binding_bytes(*node.context), group = c.w_stride_group * static_cast<int64_t>(bits(node.float_dtype)) / 8;
  // gemv_cpu processes all rows of a dispatch at once. For more rows, other kernels exist only for packed matrices.
  return {c.order == WeightOrder::strides ? kMaxCpuRows : get_max_workgroups(node, "0") * plan.tile_pixels,
          std::min(get_max_workgroups(node, "2"), group > 0 ? std::max<int64_t>(bytes / group, 1) : INT32_MAX), bytes};
}

void add_dispatches(LowerContext& node, const ConvGemmDispatch& dispatch) {
  const ConvGemmParams& c = dispatch.c;
  if (const ConvGemmDispatches chunks = split_by_channels(node, dispatch, get_max_dispatch_columns(node, c)); !chunks.empty()) {
    for (const ConvGemmDispatch& chunk : chunks) add_dispatches(node, chunk);
    return;
  }
  ConvGemmPlan plan = select_conv_gemm_plan(node, c, dispatch.pixels());
  node.check_loop_limit(plan.iterations);
  if (const ConvGemmDispatches chunks = split_by_pixels(dispatch, get_dispatch_limits(node, c, plan)); !chunks.empty()) {
    for (const ConvGemmDispatch& chunk : chunks) add_dispatches(node, chunk);
    return;
  }
  add_single_dispatch(node, dispatch, std::move(plan));
}

ConvGemmDispatch make_dispatch(const LowerContext& node, const ConvGemmParams& c, const Operand& x, const Operand& w,
                               const ConvGemmBias& bias, const Operand& y) {
  ConvGemmDispatch dispatch{c, x, w, bias, y};
  dispatch.c.x_dtype = get_float_dtype(node, x);
  dispatch.c.y_dtype = get_float_dtype(node, y);
  return dispatch;
}

}  // namespace

void add_conv_gemm(LowerContext& node, const ConvGemmParams& c, const Operand& x, const Operand& w, const ConvGemmBias& bias,
                   const Operand& y) {
  if (c.x.n * c.out_h * c.out_w == 0 || c.weights.channels_out == 0 || c.weights.groups == 0) return;
  add_dispatches(node, make_dispatch(node, c, x, w, bias, y));
}

bool add_pooled_conv(LowerContext& node, const ConvGemmParams& c, const Operand& x, const Operand& w, const ConvGemmBias& bias,
                     const Operand& y) {
  const ConvGemmDispatch dispatch = make_dispatch(node, c, x, w, bias, y);
  if (dispatch.pixels() == 0 || c.weights.channels_out == 0 || c.weights.groups == 0) return false;
  if (!prefers_fused_pool(node, dispatch.c, dispatch.pixels()) || !split_by_channels(node, dispatch, 0).empty()) return false;
  ConvGemmPlan plan = select_conv_gemm_plan(node, dispatch.c, dispatch.pixels());
  if (!split_by_pixels(dispatch, get_dispatch_limits(node, dispatch.c, plan)).empty()) return false;
  node.check_loop_limit(plan.iterations);
  add_single_dispatch(node, dispatch, std::move(plan));
  return true;
}

ConvGemmBias get_packed_bias(LowerContext& node) {
  if (!node.has_input(2)) return {};
  return {ConvGemmBias::BiasKind::channels, node.get_packed_input(2)};
}

}  // namespace pumice
