// Lowers pooling.
#include <algorithm>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/nchw_view.h"
#include "operators/conv_gemm/conv3d.h"
#include "operators/geometry/window_geometry.h"
#include "operators/reduction/reduce.h"
#include "operators/table/operator_table.h"
#include "operators/window/lowerings.h"

namespace pumice {
namespace {

struct Window2d {
  int64_t kernel_h = 1, kernel_w = 1, step_h = 1, step_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_h = 0, pad_w = 0, pad_end_h = 0, pad_end_w = 0;
};

int64_t get_height_value(const std::vector<int64_t>& values, int64_t missing) {
  return values.size() == 1 ? missing : values[0];
}

Window2d make_window_2d(const WindowGeometry& geometry) {
  return {get_height_value(geometry.kernel, 1),     geometry.kernel.back(),
          get_height_value(geometry.strides, 1),    geometry.strides.back(),
          get_height_value(geometry.dilations, 1),  geometry.dilations.back(),
          get_height_value(geometry.pads_begin, 0), geometry.pads_begin.back(),
          get_height_value(geometry.pads_end, 0),   geometry.pads_end.back()};
}

// Returns the maximum number of kernel taps on an axis that can be inside `size` elements.
int64_t count_taps_within(int64_t kernel, int64_t dilation, int64_t size) {
  return std::min(kernel, ceil_div(size, dilation));
}

void add_pool_2d(LowerContext& node, const Window2d& window, bool count_padding) {
  const NchwView x = make_nchw_view(node, node.input(0)), y = make_nchw_view(node, node.output(0));
  const bool vec4 = x.has_vector_channels(4) && y.has_vector_channels(4);
  const int64_t unit = vec4 ? 4 : 1, elements = y.elements() / unit;
  if (elements == 0) return;
  const int64_t rows = count_taps_within(window.kernel_h, window.dilation_h, x.h),
                columns = count_taps_within(window.kernel_w, window.dilation_w, x.w);
  node.check_loop_limit(rows * (1 + columns));
  const auto kernel = node.kernel("pool.comp", node.input(0).dtype,
                                  {{"MODE", std::to_string(node.row->form)}, {"VEC4", vec4 ? "1" : "0"}, {"EPILOGUE(x)", node.epilogue()}});
  StepBuilder step(kernel);
  step.bind("x", node.input_operand(0)).bind("y", node.output_operand(0)).set("elements", elements).set("channels", y.c / unit);
  step.set("out_h", y.h)
      .set("out_w", y.w)
      .set("in_h", x.h)
      .set("in_w", x.w)
      .set("window_h", window.kernel_h)
      .set("window_w", window.kernel_w);
  step.set("step_h", window.step_h).set("step_w", window.step_w).set("dilation_h", window.dilation_h).set("dilation_w", window.dilation_w);
  step.set("pad_h", window.pad_h).set("pad_w", window.pad_w);
  step.set("padded_h", x.h + window.pad_h + window.pad_end_h).set("padded_w", x.w + window.pad_w + window.pad_end_w);
  set_strides(step, 'x', x);
  set_strides(step, 'y', y);
  step.set("channels_fastest", y.sc == 1 && y.c > 1 ? 1 : 0)
      .set("count_padding", count_padding ? 1 : 0)
      .set_threads(static_cast<uint64_t>(elements));
  node.add(step.build());
}

// Returns how many loop iterations an invocation needs for a window.
int64_t count_iterations(const WindowGeometry& window, const Shape& x) {
  int64_t taps = 1;
  for (size_t i = 0; i < window.kernel.size(); ++i) taps *= count_taps_within(window.kernel[i], window.dilations[i], x[i + 2]);
  return taps * 3;
}

// Adds a pooling that pool.comp does not support: three spatial axes, an index output, integers, or an Lp norm.
void add_pool_nd(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (y.elements() == 0) return;
  const WindowGeometry window = compute_pool_geometry(*node.attributes, node.node, x.shape);
  node.check_loop_limit(count_iterations(window, x.shape));
  if (node.has_output(1) && !node.output(1).is_packed())
    throw UnsupportedError("node '" + std::string(node.node) + "': expected a dense output 1, the indices, given " +
                           to_string(node.output(1)));
  Macros macros = {{"MODE", node.row->form == kLpPool ? "2" : std::to_string(node.row->form)},
                   {"INDICES", node.has_output(1) ? "1" : "0"},
                   {"RESULT(v)", is_float(x.dtype) ? "epilogue(v)" : "int(v)"},
                   {"EPILOGUE(x)", node.epilogue()}};
  for (const auto& more : {make_element_macros("x", x.dtype), make_element_macros("y", y.dtype)})
    macros.insert(macros.end(), more.begin(), more.end());
  StepBuilder step(node.kernel("pool_nd.comp", x.dtype, macros, make_window_3d_constants(window)));
  step.bind("x", node.input_operand(0)).bind("y", node.output_operand(0));
  if (node.has_output(1)) step.bind("indices", node.output_operand(1));
  const std::vector<int64_t> spatial(x.shape.begin() + 2, x.shape.end());
  std::vector<int64_t> padded = spatial;
  for (size_t i = 0; i < padded.size(); ++i) padded[i] += window.pads_begin[i] + window.pads_end[i];
  step.set("elements", y.elements()).set("channels", x.shape[1]).set("out_size", pad_to_3d({y.shape.begin() + 2, y.shape.end()}, 1));
  step.set("in_size", pad_to_3d(spatial, 1)).set("padded", pad_to_3d(padded, 1));
  step.set("x_stride", pad_strides_to_3d(x)).set("y_stride", pad_strides_to_3d(y));
  step.set("count_padding", node.attributes->integer("count_include_pad", 0) != 0)
      .set("column_major", node.attributes->integer("storage_order", 0) != 0)
      .set("power", static_cast<double>(node.attributes->integer("p", 2)));
  node.add(step.set_threads(static_cast<uint64_t>(y.elements())).build());
}

// Reduces the first `rows` x `columns` elements of each plane to one element. Returns false, adding nothing, if these are too few for a
// workgroup, or few enough for one invocation of a CPU driver.
bool try_reduce_planes(LowerContext& node, int64_t rows, int64_t columns) {
  constexpr int64_t kMinElements = 32, kMaxCpuElements = 16384;
  if (rows * columns <= (node.prefers_cpu_kernels() ? kMaxCpuElements : kMinElements) || node.output(0).elements() == 0) return false;
  const NchwView x = make_nchw_view(node, node.input(0)), y = make_nchw_view(node, node.output(0));
  constexpr const ReductionFold* kFolds[] = {&kMaxFold, &kMeanFold, &kSumFold};  // indexed by PoolingMode
  const FoldGlsl fold = make_fold_glsl(node, *kFolds[node.row->form], node.input(0).dtype);
  add_fold(node, fold, {{x.n, x.c}, {{x.sn, x.sc}, {y.sn, y.sc}}}, {{rows, columns}, {{x.sh, x.sw}}}, node.output_operand(0));
  return true;
}

// Pools windows that are very large or above the driver's loop limit along their longest axis first, then along the others. The mean equals
// the mean of the row means, since all rows have the same padded length. Returns false if this is not needed, or if there are index
// outputs, which cannot be pooled twice.
bool try_pool_separably(LowerContext& node, const WindowGeometry& window) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  constexpr int64_t kMaxPoolIterations = 3 * 4096;  // hierarchical sums are faster and more accurate than one long sum
  const int64_t max_iterations = std::min(node.loop_limit().value_or(kMaxPoolIterations), kMaxPoolIterations);
  if (count_iterations(window, x.shape) <= max_iterations || node.has_output(1) || y.elements() == 0) return false;
  const auto taps = [&](size_t i) { return count_taps_within(window.kernel[i], window.dilations[i], x.shape[i + 2]); };
  const size_t axes = window.kernel.size();
  size_t longest = 0, others = 0;
  for (size_t i = 1; i < axes; ++i)
    if (taps(i) > taps(longest)) longest = i;
  for (size_t i = 0; i < axes; ++i) others += i != longest && taps(i) > 1;
  if (others == 0) return false;
  const auto attributes_of = [&](bool first) {
    Attributes pool_attributes = *node.attributes;
    std::vector<int64_t> kernel(axes, 1), strides(axes, 1), dilations(axes, 1), pads(2 * axes, 0);
    for (size_t i = 0; i < axes; ++i) {
      if ((i == longest) != first) continue;
      kernel[i] = window.kernel[i], strides[i] = window.strides[i], dilations[i] = window.dilations[i];
      pads[i] = window.pads_begin[i], pads[axes + i] = window.pads_end[i];
    }
    pool_attributes.set("kernel_shape", kernel);
    pool_attributes.set("strides", strides);
    pool_attributes.set("pads", pads);
    if (node.row->form != kSumPool) pool_attributes.set("dilations", dilations);
    if (pool_attributes.text("auto_pad", "NOTSET") != "NOTSET") {  // auto_pad ignores ceil_mode, but explicit pads would not
      pool_attributes.set("auto_pad", std::string("NOTSET"));
      pool_attributes.set("ceil_mode", int64_t{0});
    }
    return pool_attributes;
  };
  CompositeLowering composition(node);
  Shape shape = x.shape;
  shape[longest + 2] = y.shape[longest + 2];
  TensorOperand from{x, node.input_operand(0)};
  if (is_operator_float(x.dtype)) {  // keep sums in fp32
    from = composition.allocate_scratch(DType::float32, x.shape);
    composition.add_elementwise("a0", {{x, node.input_operand(0)}}, from);
  }
  const TensorOperand intermediate = composition.allocate_scratch(from.desc.dtype, shape),
                      pooled = composition.allocate_scratch(from.desc.dtype, y.shape);
  composition.add_operator(node.row->name, attributes_of(true), {from}, intermediate);
  if (!is_operator_float(x.dtype)) {
    composition.add_operator(node.row->name, attributes_of(false), {intermediate}, {y, node.output_operand(0)}, true);
  } else {
    composition.add_operator(node.row->name, attributes_of(false), {intermediate}, pooled);
    composition.add_elementwise("a0", {pooled}, {y, node.output_operand(0)}, true);
  }
  return true;
}

// Reduces planes that have a single window, which starts at their first element, unless a mean counts padding.
bool try_reduce_window(LowerContext& node, const Window2d& window, bool count_padding) {
  const NchwView x = make_nchw_view(node, node.input(0)), y = make_nchw_view(node, node.output(0));
  if (y.h * y.w != 1 || window.dilation_h != 1 || window.dilation_w != 1) return false;
  const int64_t rows = std::min(window.kernel_h - window.pad_h, x.h), columns = std::min(window.kernel_w - window.pad_w, x.w);
  const bool has_padding = window.pad_h + window.pad_w + window.pad_end_h + window.pad_end_w > 0;
  if (rows < 1 || columns < 1 || (count_padding && has_padding && node.row->form == kMeanPool)) return false;
  return try_reduce_planes(node, rows, columns);
}

}  // namespace

void lower_pool(LowerContext& node) {
  check_spatial_rank(node);
  const TensorDesc& x = node.input(0);
  const WindowGeometry geometry = compute_pool_geometry(*node.attributes, node.node, x.shape);
  if (x.rank() == 5 || node.has_output(1) || !is_operator_float(x.dtype) || node.row->form == kLpPool)
    return try_pool_separably(node, geometry) ? void() : add_pool_nd(node);
  const Window2d window = make_window_2d(geometry);
  const bool count_padding = node.attributes->integer("count_include_pad", 0) != 0;
  if (!try_reduce_window(node, window, count_padding) && !try_pool_separably(node, geometry)) add_pool_2d(node, window, count_padding);
}

void lower_global_pool(LowerContext& node) {
  const NchwView x = make_nchw_view(node, node.input(0));
  if (!try_reduce_planes(node, x.h, x.w)) add_pool_2d(node, {.kernel_h = x.h, .kernel_w = x.w}, false);
}

void lower_global_lp_pool(LowerContext& node) {
  if (node.output(0).elements() == 0) return;
  CompositeLowering composition(node);
  const TensorOperand x = composition.input(0);
  const int64_t power = node.attributes->integer("p", 2);
  const Shape rows{x.desc.shape[0], x.desc.shape[1], x.desc.elements() / std::max<int64_t>(x.desc.shape[0] * x.desc.shape[1], 1)};
  const TensorOperand powers = composition.allocate_scratch(DType::float32, rows);
  const std::string p = std::to_string(power) + ".0";
  composition.add_elementwise(power == 1 ? "abs(a0)" : "pow(abs(a0), " + p + ")", {x.reshaped(rows)}, powers);
  const TensorOperand sums = composition.add_reduction("ReduceSum", powers, {2});
  composition.add_elementwise(power == 1   ? "a0"
                              : power == 2 ? "sqrt(a0)"
                                           : "pow(a0, 1.0 / " + p + ")",
                              {sums}, composition.output(0).reshaped({rows[0], rows[1], 1}), true);
}

}  // namespace pumice
