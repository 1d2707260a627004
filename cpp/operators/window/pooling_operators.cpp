// Operator rows of pooling.
#include <algorithm>

#include "operators/common/split_axes.h"
#include "operators/geometry/index_bounds.h"
#include "operators/geometry/window_geometry.h"
#include "operators/index/lowerings.h"
#include "operators/table/row_builders.h"
#include "operators/window/lowerings.h"

namespace pumice {
namespace {

void infer_pool_shape(ShapeContext& node) {
  Shape y = node.input(0).shape;
  const WindowGeometry geometry = compute_pool_geometry(node.attributes(), node.node(), y);
  std::copy(geometry.output.begin(), geometry.output.end(), y.begin() + 2);
  node.output(0, node.input(0).dtype, y);
  node.output(1, DType::int64, y);
}

void infer_global_pool_shape(ShapeContext& node) {
  Shape y = node.input(0).shape;
  check_pool_input(node.node(), y);
  std::fill(y.begin() + 2, y.end(), 1);
  node.output(0, node.input(0).dtype, y);
}

std::vector<AttributeSchema> make_pool_attributes(const AttributeSchema& extra) {
  return {text_attribute("auto_pad", "NOTSET"),
          integer_attribute("ceil_mode", 0),
          optional_attribute("dilations", AttributeKind::integers),
          required_attribute("kernel_shape", AttributeKind::integers),
          optional_attribute("pads", AttributeKind::integers),
          optional_attribute("strides", AttributeKind::integers),
          extra};
}

void infer_max_unpool_shape(ShapeContext& node) {
  Shape y = node.input(0).shape;
  const WindowGeometry geometry = compute_unpool_geometry(node.attributes(), node.node(), y);
  if (node.input(1).shape != y) node.fail("expected indices of shape " + to_string(y) + "; given " + to_string(node.input(1).shape));
  std::copy(geometry.output.begin(), geometry.output.end(), y.begin() + 2);
  if (node.has(2)) {
    const Shape declared_shape = node.get_host_integers(2);
    bool fits = declared_shape.size() == y.size();
    for (size_t i = 0; fits && i < y.size(); ++i) fits = i < 2 ? declared_shape[i] == y[i] : declared_shape[i] >= y[i];
    if (!fits) node.fail("expected 'output_shape' of at least " + to_string(y) + "; given " + to_string(declared_shape));
    y = declared_shape;
  }
  node.output(0, node.input(0).dtype, y);
}

// A node with an index output is not split, because indices refer to the whole input.
void append_pool_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  if (node.has_output(1)) return;
  append_batch_and_channel_axes(node, axes);
  append_window_axes(node, compute_pool_geometry(*node.attributes, node.node, node.input(kData).shape), axes);
}

OperatorRow make_pool_row(std::string_view name, PoolingMode mode, OperatorSchema schema) {
  return {.name = name,
          .skeleton = KernelKind::window,
          .schema = std::move(schema),
          .shape = infer_pool_shape,
          .lower = lower_pool,
          .form = mode,
          .strides = StrideSupport::image,
          .layout = {.packed_outputs = 0b10},
          .split = append_pool_split_axes,
          .epilogue = true};
}

OperatorRow make_global_pool_row(std::string_view name, PoolingMode mode, OperatorSchema schema) {
  return {.name = name,
          .skeleton = KernelKind::window,
          .schema = std::move(schema),
          .shape = infer_global_pool_shape,
          .lower = lower_global_pool,
          .form = mode,
          .strides = StrideSupport::image,
          .split = append_batch_and_channel_axes,
          .epilogue = true};
}

}  // namespace

OperatorRows define_pooling_operators() {
  constexpr DTypeSet kPooled = kFloats | make_dtype_set(DType::int8, DType::uint8);
  const std::vector<ValueRole> x{value_role("x", kFloats)}, y{value_role("y", kFloats)}, pooled_x{value_role("x", kPooled)},
      y_and_indices{value_role("y", kPooled), optional_role("indices", kInt64)};
  return {make_pool_row("MaxPool", kMaxPool,
                        {.inputs = pooled_x,
                         .outputs = y_and_indices,
                         .attributes = make_pool_attributes(integer_attribute("storage_order", 0)),
                         .min_rank = 3}),
          make_pool_row(
              "AveragePool", kMeanPool,
              {.inputs = x, .outputs = y, .attributes = make_pool_attributes(integer_attribute("count_include_pad", 0)), .min_rank = 3}),
          // Sum over 1D or 2D windows, with zero padding.
          make_pool_row(
              "pumice::SumPool", kSumPool,
              {.inputs = x,
               .outputs = y,
               .attributes = {required_attribute("kernel_shape", AttributeKind::integers),
                              optional_attribute("pads", AttributeKind::integers), optional_attribute("strides", AttributeKind::integers)},
               .min_rank = 3,
               .max_rank = 4}),
          {.name = "MaxUnpool",
           .skeleton = KernelKind::scatter,
           .schema = {.inputs = {value_role("x", kFloats), value_role("indices", kInt64), optional_role("output_shape", kInt64)},
                      .outputs = y,
                      .attributes = {required_attribute("kernel_shape", AttributeKind::integers),
                                     optional_attribute("pads", AttributeKind::integers),
                                     optional_attribute("strides", AttributeKind::integers)},
                      .min_rank = 3},
           .shape = infer_max_unpool_shape,
           .lower = lower_max_unpool,
           .host_inputs = make_input_mask(2),
           .indices = get_unpool_index_bounds,
           .strides = StrideSupport::packed},
          make_global_pool_row("GlobalAveragePool", kMeanPool, {.inputs = x, .outputs = y, .min_rank = 3}),
          make_global_pool_row("GlobalMaxPool", kMaxPool, {.inputs = x, .outputs = y, .min_rank = 3}),
          make_pool_row("LpPool", kLpPool,
                        {.inputs = x, .outputs = y, .attributes = make_pool_attributes(integer_attribute("p", 2)), .min_rank = 3}),
          {.name = "GlobalLpPool",
           .skeleton = KernelKind::window,
           .schema = {.inputs = x, .outputs = y, .attributes = {integer_attribute("p", 2)}, .min_rank = 3},
           .shape = infer_global_pool_shape,
           .lower = lower_global_lp_pool,
           .strides = StrideSupport::packed,
           .split = append_batch_and_channel_axes,
           .epilogue = true}};
}

}  // namespace pumice
