// Operators whose elements are found by indices that are data themselves.
#include <algorithm>

#include "operators/geometry/index_bounds.h"
#include "operators/reduction/non_zero.h"
#include "operators/row/families.h"
#include "operators/row/row_parts.h"

namespace pumice {
namespace {

void shape_of_gather(ShapeContext& node) {
  const Shape &x = node.input(0).shape, &indices = node.input(1).shape;
  const auto axis = x.begin() + static_cast<std::ptrdiff_t>(checked_axis(node, node.attributes().integer("axis", 0), x.size()));
  if (*axis == 0 && node.input(1).elements() > 0) node.fail("elements of an empty axis");
  Shape y(x.begin(), axis);
  y.insert(y.end(), indices.begin(), indices.end());
  y.insert(y.end(), axis + 1, x.end());
  node.output(0, node.input(0).dtype, y);
}

// Indices of one axis, one for each element: the other axes are no longer than those of x.
void check_elements(const ShapeContext& node) {
  const Shape &x = node.input(0).shape, &indices = node.input(1).shape;
  const size_t axis = checked_axis(node, node.attributes().integer("axis", 0), x.size());
  if (indices.size() != x.size())
    node.fail("indices of shape " + to_string(indices) + " for a tensor of shape " + to_string(x) + "; one rank expected");
  for (size_t i = 0; i < x.size(); ++i)
    if (i != axis && indices[i] > x[i])
      node.fail("indices of shape " + to_string(indices) + " are larger than " + to_string(x) + " on axis " + std::to_string(i));
  if (x[axis] == 0 && node.input(1).elements() > 0) node.fail("elements of an empty axis");
}

void shape_of_gather_elements(ShapeContext& node) {
  check_elements(node);
  node.output(0, node.input(0).dtype, node.input(1).shape);
}

void shape_of_scatter_elements(ShapeContext& node) {
  check_elements(node);
  if (node.input(2).shape != node.input(1).shape)
    node.fail("updates of shape " + to_string(node.input(2).shape) + " for indices of shape " + to_string(node.input(1).shape));
  shape_like_input(node);
}

// The shape that addresses in the last axis of input 1 give: those of the addresses, then of what an address leaves open.
Shape addressed_shape(const ShapeContext& node, size_t batch) {
  const Shape &x = node.input(0).shape, &indices = node.input(1).shape;
  if (indices.empty()) node.fail("indices without an axis of addresses");
  if (batch >= std::min(x.size(), indices.size()))
    node.fail("batch_dims of " + std::to_string(batch) + " for " + to_string(x) + " and indices of shape " + to_string(indices));
  const int64_t length = indices.back();
  if (length < 1 || length > static_cast<int64_t>(x.size() - batch))
    node.fail("addresses of " + std::to_string(length) + " indices in a tensor of shape " + to_string(x) +
              (batch > 0 ? ", batches aside" : ""));
  for (size_t i = 0; i < batch; ++i)
    if (indices[i] != x[i]) node.fail("batches of " + to_string(x) + " and of indices of shape " + to_string(indices) + " differ");
  Shape y(indices.begin(), indices.end() - 1);
  const auto open = x.begin() + static_cast<std::ptrdiff_t>(batch) + static_cast<std::ptrdiff_t>(length);
  y.insert(y.end(), open, x.end());
  if (element_count(y) > 0 && element_count({x.begin() + static_cast<std::ptrdiff_t>(batch), open}) == 0)
    node.fail("elements of an empty tensor, " + to_string(x));
  return y;
}

void shape_of_gather_nd(ShapeContext& node) {
  const int64_t batch = node.attributes().integer("batch_dims", 0);
  if (batch < 0) node.fail("batch_dims of " + std::to_string(batch));
  node.output(0, node.input(0).dtype, addressed_shape(node, static_cast<size_t>(batch)));
}

void shape_of_scatter_nd(ShapeContext& node) {
  const Shape expected = addressed_shape(node, 0);
  if (node.input(2).shape != expected)
    node.fail("updates of shape " + to_string(node.input(2).shape) + "; " + to_string(expected) + " expected");
  shape_like_input(node);
}

void shape_of_non_zero(ShapeContext& node) {
  const auto elements = node.host_values(0).as_double();
  const auto zeros = std::count(elements.begin(), elements.end(), 0.0);
  node.output(0, DType::int64, {node.input(0).rank(), static_cast<int64_t>(elements.size()) - zeros});
}

// What is left of input 0 where a condition is true that often.
void shape_compressed(ShapeContext& node, int64_t count) {
  const bool flat = !node.attributes().has("axis");
  Shape y = flat ? Shape{node.input(0).elements()} : node.input(0).shape;
  const size_t axis = flat ? 0 : checked_axis(node, node.attributes().integer("axis"), y.size());
  if (node.input(1).rank() != 1 || node.input(1).shape[0] > y[axis])
    node.fail("a condition of shape " + to_string(node.input(1).shape) + " for an axis of " + std::to_string(y[axis]));
  y[axis] = count;
  node.output(0, node.input(0).dtype, y);
}

void shape_of_compress(ShapeContext& node) {
  const auto condition = node.host_integers(1);
  shape_compressed(node, static_cast<int64_t>(condition.size()) - std::count(condition.begin(), condition.end(), 0));
}

void shape_of_count_non_zero(ShapeContext& node) {
  node.output(0, DType::int32, {1});
  if (node.output_count() > 1) node.output(1, DType::int32, {non_zero_runs(node.input(0).elements()) + 1});
}

// Counts come from where the elements are.
void shape_of_counted_non_zero(ShapeContext& node) {
  node.output(0, DType::int64, {node.input(0).rank(), node.host_integer(1)});
}

void shape_of_counted_compress(ShapeContext& node) {
  shape_compressed(node, node.host_integer(2));
}

// The update is as the cache but for fewer rows on the axis.
void shape_of_tensor_scatter(ShapeContext& node) {
  const Shape& cache = node.input(0).shape;
  Shape update = node.input(1).shape;
  const size_t axis = checked_axis(node, node.attributes().integer("axis", -2), cache.size());
  if (axis == 0) node.fail("the axis is that of the batch");
  const bool fits = update.size() == cache.size() && update[axis] <= cache[axis];
  if (fits) update[axis] = cache[axis];
  if (!fits || update != cache)
    node.fail("an update of shape " + to_string(node.input(1).shape) + " for a cache of shape " + to_string(cache) + " on axis " +
              std::to_string(axis));
  check_vector(node, 2, cache[0], "write_indices");
  shape_like_input(node);
}

void shape_of_trees(ShapeContext& node) {
  const Shape &x = node.input(0).shape, &nodes = node.input(1).shape, &entries = node.input(2).shape;
  const int64_t targets = node.attributes().integer("targets");
  if (x.size() != 2 || x[1] < 1) node.fail("[rows, features] expected; given " + to_string(x));
  if (nodes.size() != 2 || nodes[1] != 5 || nodes[0] < 1) node.fail("nodes of five words expected; given " + to_string(nodes));
  if (entries.size() != 2 || entries[1] != 2) node.fail("entries of two words expected; given " + to_string(entries));
  if (node.input(3).rank() != 1) node.fail("a vector of roots expected; given " + to_string(node.input(3).shape));
  if (targets < 1 || node.attributes().integer("depth") < 0) node.fail("'targets' of at least 1 and a 'depth' expected");
  node.output(0, node.input(0).dtype, {x[0], targets});
}

void shape_of_pairwise_coupling(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const int64_t classes = node.attributes().integer("classes");
  if (classes < 2 || x[1] != classes * (classes - 1) / 2)
    node.fail("pairs of " + std::to_string(classes) + " classes expected; given " + to_string(x));
  node.output(0, node.input(0).dtype, {x[0], classes});
}

}  // namespace

Rows indexed_rows() {
  const ValueRole x = value("x", kAny, 'T'), indices = value("indices", kIndices), updates = value("updates", kAny, 'T');
  const std::vector<ValueRole> y{value("y", kAny)};
  const AttributeSchema axis = integer("axis", 0), reduction = choice("reduction", "none", {"none", "add", "mul", "max", "min"});
  return {
      with_indices(indices_of_axis, {"Gather", Skeleton::index_map, {{x, indices}, y, {axis}, 1}, shape_of_gather, lower_gather}),
      with_indices(indices_of_axis,
                   {"GatherElements", Skeleton::index_map, {{x, indices}, y, {axis}, 1}, shape_of_gather_elements, lower_gather_elements}),
      with_indices(
          indices_of_rows,
          {"GatherND", Skeleton::index_map, {{x, indices}, y, {integer("batch_dims", 0)}, 1}, shape_of_gather_nd, lower_gather_nd}),
      with_indices(indices_of_axis, {"ScatterElements",
                                     Skeleton::scatter,
                                     {{x, indices, updates}, y, {axis, reduction}, 1},
                                     shape_of_scatter_elements,
                                     lower_scatter_elements}),
      {"pumice::TreeEnsemble",
       Skeleton::reduce,
       {{value("x", kFloats), value("nodes", kInt32), value("entries", kInt32), value("roots", kInt32)},
        {value("y", kFloats)},
        {choice("aggregate_function", "SUM", {"SUM", "AVERAGE", "MIN", "MAX"}), required("depth", AttributeKind::integer),
         required("targets", AttributeKind::integer)}},
       shape_of_trees,
       lower_trees},
      {"pumice::PairwiseCoupling",
       Skeleton::scan,
       {{value("pairs", kFloats)}, {value("y", kFloats)}, {required("classes", AttributeKind::integer)}, 2},
       shape_of_pairwise_coupling,
       lower_pairwise_coupling},
      with_indices(indices_of_rows,
                   {"ScatterND", Skeleton::scatter, {{x, indices, updates}, y, {reduction}, 1}, shape_of_scatter_nd, lower_scatter_nd}),
      with_indices(indices_of_cache,
                   {"TensorScatter",
                    Skeleton::scatter,
                    {{value("past_cache", kAny, 'T'), value("update", kAny, 'T'), optional_value("write_indices", kInt64)},
                     {value("present_cache", kAny)},
                     {integer("axis", -2), choice("mode", "linear", {"linear", "circular"})},
                     2},
                    shape_of_tensor_scatter,
                    lower_tensor_scatter}),
      {"Compress",
       Skeleton::index_map,
       {{value("x", kAny), value("condition", kBool)}, y, {optional("axis", AttributeKind::integer)}, 1},
       shape_of_compress,
       lower_compress,
       {},
       host_bits(1),
       nullptr,
       false,
       "pumice::Compress"},
      // No lowering: the host makes it, for its shape depends on the values.
      {"NonZero",
       Skeleton::copy,
       {{value("x", kAny)}, {value("y", kInt64)}, {}, 1},
       shape_of_non_zero,
       nullptr,
       {},
       host_bits(0),
       nullptr,
       false,
       "pumice::NonZero"},
      {kCountNonZero,
       Skeleton::scan,
       {{value("x", kAny)}, {value("count", kInt32), value("starts", kInt32)}},
       shape_of_count_non_zero,
       lower_count_non_zero},
      {"pumice::Compress",
       Skeleton::index_map,
       {{value("x", kAny), value("condition", kBool), value("count", kInt32), value("starts", kInt32)},
        y,
        {optional("axis", AttributeKind::integer)},
        1},
       shape_of_counted_compress,
       lower_compress_counted,
       {},
       host_bits(2)},
      {"pumice::NonZero",
       Skeleton::index_map,
       {{value("x", kAny), value("count", kInt32), value("starts", kInt32)}, {value("y", kInt64)}, {}, 1},
       shape_of_counted_non_zero,
       lower_non_zero,
       {},
       host_bits(1)}};
}

}  // namespace pumice
