// Pooling.
#include "operators/geometry/index_bounds.h"
#include "operators/geometry/window_geometry.h"
#include "operators/row/families.h"
#include "operators/row/row_parts.h"

namespace pumice {
namespace {

void shape_of_pool(ShapeContext& node) {
  Shape y = node.input(0).shape;
  const WindowGeometry geometry = pool_geometry(node.attributes(), node.node(), y);
  std::copy(geometry.output.begin(), geometry.output.end(), y.begin() + 2);
  node.output(0, node.input(0).dtype, y);
  node.output(1, DType::int64, y);
}

void shape_of_global_pool(ShapeContext& node) {
  Shape y = node.input(0).shape;
  check_pooled(node.node(), y);
  std::fill(y.begin() + 2, y.end(), 1);
  node.output(0, node.input(0).dtype, y);
}

std::vector<AttributeSchema> pool_attributes(const AttributeSchema& own) {
  return {text("auto_pad", "NOTSET"),
          integer("ceil_mode", 0),
          optional("dilations", AttributeKind::integers),
          required("kernel_shape", AttributeKind::integers),
          optional("pads", AttributeKind::integers),
          optional("strides", AttributeKind::integers),
          own};
}

void shape_of_max_unpool(ShapeContext& node) {
  Shape y = node.input(0).shape;
  const WindowGeometry geometry = unpool_geometry(node.attributes(), node.node(), y);
  if (node.input(1).shape != y) node.fail("indices of shape " + to_string(y) + " expected; given " + to_string(node.input(1).shape));
  std::copy(geometry.output.begin(), geometry.output.end(), y.begin() + 2);
  if (node.has(2)) {
    const Shape given = node.host_integers(2);
    bool fits = given.size() == y.size();
    for (size_t i = 0; fits && i < y.size(); ++i) fits = i < 2 ? given[i] == y[i] : given[i] >= y[i];
    if (!fits) node.fail("'output_shape' of at least " + to_string(y) + " expected; given " + to_string(given));
    y = given;
  }
  node.output(0, node.input(0).dtype, y);
}

}  // namespace

Rows window_rows() {
  constexpr DTypeSet kPooled = kFloats | set_of(DType::int8, DType::uint8);
  const std::vector<ValueRole> x{value("x", kFloats)}, y{value("y", kFloats)}, maxima{value("x", kPooled)},
      y_and_indices{value("y", kPooled), optional_value("indices", kInt64)};
  return {
      {"MaxPool", Skeleton::window, {maxima, y_and_indices, pool_attributes(integer("storage_order", 0)), 3}, shape_of_pool, lower_pool},
      {"AveragePool", Skeleton::window, {x, y, pool_attributes(integer("count_include_pad", 0)), 3}, shape_of_pool, lower_pool},
      // The sum over a window, in which padding counts as zero; over one or two axes.
      {"pumice::SumPool",
       Skeleton::window,
       {x,
        y,
        {required("kernel_shape", AttributeKind::integers), optional("pads", AttributeKind::integers),
         optional("strides", AttributeKind::integers)},
        3,
        4},
       shape_of_pool,
       lower_pool},
      with_indices(indices_of_pooled, {"MaxUnpool",
                                       Skeleton::scatter,
                                       {{value("x", kFloats), value("indices", kInt64), optional_value("output_shape", kInt64)},
                                        y,
                                        {required("kernel_shape", AttributeKind::integers), optional("pads", AttributeKind::integers),
                                         optional("strides", AttributeKind::integers)},
                                        3},
                                       shape_of_max_unpool,
                                       lower_max_unpool,
                                       {},
                                       host_bits(2)}),
      {"GlobalAveragePool", Skeleton::window, {x, y, {}, 3}, shape_of_global_pool, lower_global_pool},
      {"GlobalMaxPool", Skeleton::window, {x, y, {}, 3}, shape_of_global_pool, lower_global_pool},
      {"LpPool", Skeleton::window, {x, y, pool_attributes(integer("p", 2)), 3}, shape_of_pool, lower_pool},
      {"GlobalLpPool", Skeleton::window, {x, y, {integer("p", 2)}, 3}, shape_of_global_pool, lower_global_lp_pool}};
}

}  // namespace pumice
