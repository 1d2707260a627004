#include "operators/conv_gemm/conv3d.h"

#include "core/error.h"
#include "operators/common/mixed_precision.h"
#include "operators/table/operator_table.h"

namespace pumice {

std::vector<int64_t> pad_to_3d(const std::vector<int64_t>& values, int64_t missing) {
  std::vector<int64_t> axes(3 - values.size(), missing);
  axes.insert(axes.end(), values.begin(), values.end());
  return axes;
}

SpecValues make_window_3d_constants(const WindowGeometry& window) {
  SpecValues spec;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& values, int64_t missing) {
    const auto axes = pad_to_3d(values, missing);
    for (size_t i = 0; i < 3; ++i) spec.emplace_back(name + "_" + "DHW"[i], static_cast<double>(axes[i]));
  };
  add("KERNEL", window.kernel, 1);
  add("STEP", window.strides, 1);
  add("DILATION", window.dilations, 1);
  add("PAD", window.pads_begin, 0);
  return spec;
}

std::vector<int64_t> pad_strides_to_3d(const TensorDesc& desc) {
  const auto axes = pad_to_3d({desc.strides.begin() + 2, desc.strides.end()}, 0);
  std::vector<int64_t> strides{desc.strides[0], desc.strides[1]};
  strides.insert(strides.end(), axes.begin(), axes.end());
  return strides;
}

void check_spatial_rank(const LowerContext& node) {
  if (node.input(0).rank() <= 5) return;
  throw UnsupportedError("node '" + std::string(node.node) + "': " + std::string(node.row->name) + " over " +
                         std::to_string(node.input(0).rank() - 2) + " spatial axes; 1 to 3 are supported");
}

void add_conv3d(LowerContext& node, const Conv3d& conv, const Operand& weights, const ConvGemmBias& bias, const Operand& result) {
  const auto& [window, x, w, y, transposed, integers] = conv;
  if (y.elements() == 0) return;
  if (!w.is_packed()) throw UnsupportedError("node '" + std::string(node.node) + "': expected dense weights, given " + to_string(w));
  const int64_t groups = node.attributes->integer("group", 1), channels_in = x.shape[1] / groups;
  int64_t taps = 1;
  for (const int64_t size : window.kernel) taps *= size;
  node.check_loop_limit(taps * (channels_in + 3));
  const bool has_bias = bias.kind != ConvGemmBias::BiasKind::none;
  Macros macros = {{"TRANSPOSED", transposed ? "1" : "0"}, {"HAS_BIAS", has_bias ? "1" : "0"}};
  if (integers)
    for (auto& macro : make_int8_macros(*integers)) macros.push_back(std::move(macro));
  if (!integers) macros.emplace_back("EPILOGUE(x)", node.epilogue());
  const MixedPrecisionArrays arrays =
      integers ? MixedPrecisionArrays{y.dtype} : make_mixed_precision_arrays({{"X", x.dtype}, {"W", w.dtype}, {"Y", y.dtype}});
  arrays.append_to(macros);
  StepBuilder step(node.kernel("conv3d.comp", arrays.storage, macros, make_window_3d_constants(window)));
  step.bind("x", node.input_operand(0)).bind("w", weights).bind("y", result);
  if (has_bias) step.bind("b", bias.operand);
  if (integers) bind_zero_points(step, *integers);
  step.set("elements", y.elements()).set("channels_in", channels_in).set("channels_out", y.shape[1] / groups).set("groups", groups);
  step.set("out_size", pad_to_3d({y.shape.begin() + 2, y.shape.end()}, 1))
      .set("in_size", pad_to_3d({x.shape.begin() + 2, x.shape.end()}, 1));
  step.set("x_stride", pad_strides_to_3d(x)).set("y_stride", pad_strides_to_3d(y));
  node.add(step.set_threads(static_cast<uint64_t>(y.elements())).build());
}

}  // namespace pumice
