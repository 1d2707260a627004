#include "operators/conv_gemm/depthwise.h"

#include "core/rounding.h"
#include "operators/common/mixed_precision.h"
#include "operators/common/row_registers.h"
#include "operators/reduction/reduce.h"

namespace pumice {
namespace {

int64_t get_width_value(const std::vector<int64_t>& values, int64_t missing) {
  return values.empty() ? missing : values.back();
}

int64_t get_height_value(const std::vector<int64_t>& values, int64_t missing) {
  return values.size() == 2 ? values[0] : missing;
}

// Whether four adjacent elements of a row of y always form an aligned vec4.
bool has_vec4_rows(const LowerContext& node, const NchwView& y) {
  return y.sw == 1 && y.w % 4 == 0 && y.sh % 4 == 0 && y.sc % 4 == 0 && y.sn % 4 == 0 && node.output(0).is_packed();
}

}  // namespace

bool is_depthwise(const Attributes& attributes, const TensorDesc& w) {
  constexpr int64_t kMaxTaps = 49,
                    kMaxSpan = 24;  // maximum number of unrolled taps, and of input elements of a row that are kept in registers
  if (w.rank() < 3 || w.rank() > 4 || w.shape[1] != 1 || !w.is_packed() || w.shape[0] < 2) return false;
  if (attributes.integer("group", 1) != w.shape[0]) return false;
  const int64_t height = w.rank() == 4 ? w.shape[2] : 1, width = w.shape.back();
  const int64_t step = get_width_value(attributes.integers("strides"), 1), dilation = get_width_value(attributes.integers("dilations"), 1);
  return height * width <= kMaxTaps && height > 0 && width > 0 && 3 * step + (width - 1) * dilation + 1 <= kMaxSpan;
}

void add_depthwise(LowerContext& node, const WindowGeometry& window, const ConvGemmBias& bias) {
  const NchwView x = make_nchw_view(node, node.input(0)), y = make_nchw_view(node, node.output(0));
  if (y.elements() == 0) return;
  const bool vec4 = x.has_vector_channels(4) && y.has_vector_channels(4) && is_vec4_aligned(node), rows = !vec4 && has_vec4_rows(node, y);
  const bool has_bias = bias.kind != ConvGemmBias::BiasKind::none;
  Macros macros = node.make_epilogue_macros();
  macros.insert(macros.end(), {{"VEC4", vec4 ? "1" : "0"}, {"Y_ROW_VEC4", rows ? "1" : "0"}, {"HAS_BIAS", has_bias ? "1" : "0"}});
  const SpecValues spec = {{"KERNEL_H", get_height_value(window.kernel, 1)},
                           {"KERNEL_W", window.kernel.back()},
                           {"STEP_W", window.strides.back()},
                           {"DILATION_W", window.dilations.back()}};
  const MixedPrecisionArrays arrays =
      make_mixed_precision_arrays({{"X", node.input(0).dtype}, {"W", node.input(1).dtype}, {"Y", node.output(0).dtype}});
  arrays.append_to(macros);
  StepBuilder step(node.kernel("conv_depthwise.comp", arrays.storage, macros, spec));
  step.bind("x", node.input_operand(0)).bind("w", node.input_operand(1)).bind("y", node.output_operand(0));
  if (has_bias) step.bind("b", bias.operand);
  const int64_t channels = vec4 ? y.c / 4 : y.c, row_vec4s = ceil_div(y.w, 4);
  step.set("images", y.n).set("channels", channels).set("out_h", y.h).set("out_w", y.w).set("row_vec4s", row_vec4s);
  step.set("in_h", x.h).set("in_w", x.w);
  step.set("step_h", get_height_value(window.strides, 1)).set("dilation_h", get_height_value(window.dilations, 1));
  step.set("base_h", -get_height_value(window.pads_begin, 0)).set("base_w", -window.pads_begin.back());
  set_strides(step, 'x', x);
  set_strides(step, 'y', y);
  node.add(step.set_threads(static_cast<uint64_t>(y.n * y.h * channels * row_vec4s)).build());
}

}  // namespace pumice
