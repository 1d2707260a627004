// Operators from which the importer composes ai.onnx.ml classifiers, and LSH projection.
#include "core/error.h"
#include "operators/common/split_axes.h"
#include "operators/ml/lowerings.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

void infer_tree_ensemble_shape(ShapeContext& node) {
  const Shape &x = node.input(0).shape, &nodes = node.input(1).shape, &entries = node.input(2).shape;
  const int64_t targets = node.attributes().integer("targets");
  if (x.size() != 2 || x[1] < 1) node.fail("expected [rows, features]; given " + to_string(x));
  const int64_t words_per_number = node.input(0).dtype == DType::float64 ? 2 : 1;
  if (nodes.size() != 2 || nodes[1] != 4 + words_per_number || nodes[0] < 1)
    node.fail("expected nodes of " + std::to_string(4 + words_per_number) + " words; given " + to_string(nodes));
  if (entries.size() != 2 || entries[1] != 1 + words_per_number)
    node.fail("expected entries of " + std::to_string(1 + words_per_number) + " words; given " + to_string(entries));
  if (node.input(3).rank() != 1) node.fail("expected a vector of roots; given " + to_string(node.input(3).shape));
  if (targets < 1 || node.attributes().integer("depth") < 0) node.fail("expected 'targets' of at least 1 and a 'depth'");
  node.output(0, node.input(0).dtype, {x[0], targets});
}

void infer_pairwise_coupling_shape(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const int64_t classes = node.attributes().integer("classes");
  if (classes < 2 || x[1] != classes * (classes - 1) / 2)
    node.fail("expected pairs of " + std::to_string(classes) + " classes; given " + to_string(x));
  node.output(0, node.input(0).dtype, {x[0], classes});
}

// The seeds and weights contain the bits of float32 numbers. Each slice along the first axis of x is hashed separately.
void infer_lsh_projection_shape(ShapeContext& node) {
  const Shape &seeds = node.input(0).shape, &x = node.input(1).shape;
  if (x.empty() || element_count(x) == 0) node.fail("expected at least one axis, and sizes above 0; given " + to_string(x));
  if (node.has(2) && node.input(2).shape != Shape{x[0]})
    node.fail("expected weights of shape [" + std::to_string(x[0]) + "]; given " + to_string(node.input(2).shape));
  node.output(0, DType::int32, seeds);
}

std::vector<AttributeSchema> make_tree_attributes() {
  return {choice_attribute("aggregate_function", "SUM", {"SUM", "AVERAGE", "MIN", "MAX"}),
          required_attribute("depth", AttributeKind::integer), required_attribute("targets", AttributeKind::integer)};
}

}  // namespace

OperatorRows define_ml_operators() {
  return {{.name = "pumice::TreeEnsemble",
           .skeleton = KernelKind::reduce,
           .schema = {.inputs = {value_role("x", kFloats), value_role("nodes", kInt32), value_role("entries", kInt32),
                                 value_role("roots", kInt32)},
                      .outputs = {value_role("y", kFloats)},
                      .attributes = make_tree_attributes()},
           .shape = infer_tree_ensemble_shape,
           .lower = lower_tree_ensemble,
           .split = append_batch_axis,
           .epilogue = true},
          {.name = "pumice::TreeEnsemble64",
           .skeleton = KernelKind::reduce,
           .schema = {.inputs = {value_role("x", make_dtype_set(DType::float64)), value_role("nodes", kInt32),
                                 value_role("entries", kInt32), value_role("roots", kInt32)},
                      .outputs = {value_role("y", make_dtype_set(DType::float64))},
                      .attributes = make_tree_attributes()},
           .shape = infer_tree_ensemble_shape,
           .lower = lower_tree_ensemble_fp64,
           .split = append_batch_axis},
          {.name = "pumice::PairwiseCoupling",
           .skeleton = KernelKind::scan,
           .schema = {.inputs = {value_role("pairs", kFloats)},
                      .outputs = {value_role("y", kFloats)},
                      .attributes = {required_attribute("classes", AttributeKind::integer)},
                      .min_rank = 2},
           .shape = infer_pairwise_coupling_shape,
           .lower = lower_pairwise_coupling,
           .split = append_batch_axis},
          {.name = "pumice::HashProjection",
           .skeleton = KernelKind::scan,
           .schema = {.inputs = {value_role("seeds", make_dtype_set(DType::uint32)), value_role("x", kIntegers),
                                 optional_role("weights", make_dtype_set(DType::uint32))},
                      .outputs = {value_role("bits", kInt32)}},
           .shape = infer_lsh_projection_shape,
           .lower = lower_lsh_projection,
           .strides = StrideSupport::any_in}};
}

}  // namespace pumice
