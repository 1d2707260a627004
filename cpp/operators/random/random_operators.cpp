// Operator rows for random numbers, which are functions of a caller-provided state: a two-word key and a two-word run counter.
#include "core/error.h"
#include "operators/random/lowerings.h"
#include "operators/random/random.h"
#include "operators/table/onnx_dtype.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

constexpr DTypeSet kState = make_dtype_set(DType::uint32);

void check_random_state(const ShapeContext& node) {
  check_vector(node, 0, 4, "a state");
}

DType get_declared_dtype(const ShapeContext& node, DTypeSet possible) {
  const int64_t number = node.attributes().integer("dtype");
  const auto dtype = from_onnx_dtype(number);
  if (dtype && contains(possible, *dtype)) return *dtype;
  throw UnsupportedError("node '" + std::string(node.node()) + "': random numbers as " +
                         (dtype ? std::string(name(*dtype)) : "ONNX element type " + std::to_string(number)) +
                         "; supported: " + join_dtype_names(possible));
}

void infer_random_shape(ShapeContext& node) {
  check_random_state(node);
  node.output(0, get_declared_dtype(node, kReals), node.get_host_integers(1));
}

// Infers the shape of a dropout mask. The probability is a scalar or has one value per element.
void infer_random_mask_shape(ShapeContext& node) {
  check_random_state(node);
  const Shape& p = node.input(1).shape;
  const Shape mask_shape = node.has(2) ? node.get_host_integers(2) : p;
  if (mask_shape != p && element_count(p) != 1)
    node.fail("probabilities of shape " + to_string(p) + " for a mask of shape " + to_string(mask_shape) +
              "; expected one, or as many as elements");
  node.output(0, DType::bool_, mask_shape);
}

void infer_random_state_shape(ShapeContext& node) {
  check_random_state(node);
  check_vector(node, 1, 1, "a number");
  node.output(0, DType::uint32, {4});
}

void infer_multinomial_shape(ShapeContext& node) {
  check_random_state(node);
  const int64_t samples = node.attributes().integer("sample_size");
  const Shape& x = node.input(1).shape;
  if (samples < 1) node.fail("expected 'sample_size' of at least 1; given " + std::to_string(samples));
  if (x.size() != 2 || x[1] < 1) node.fail("expected [batch, classes] with at least one class; given " + to_string(x));
  node.output(0, get_declared_dtype(node, kIndices), {x[0], samples});
}

// Adds the properties that all random operators have: input 0 is the state, and every node has its own stream.
OperatorRow make_random_row(RandomKind kind, OperatorRow row) {
  row.skeleton = KernelKind::random;
  row.schema.inputs.insert(row.schema.inputs.begin(), value_role("state", kState));
  row.schema.attributes.push_back(integer_attribute("stream", 0));
  row.schema.attributes.push_back(optional_attribute("key", AttributeKind::integer));
  row.lower = lower_random;
  row.form = static_cast<int>(kind);
  row.precision.mixed_precision = true;
  return row;
}

}  // namespace

OperatorRows define_random_operators() {
  const ValueRole shape = value_role("shape", kInt64);
  OperatorRows rows;
  rows.push_back(make_random_row(
      RandomKind::uniform, {.name = "pumice::RandomUniform",
                            .schema = {.inputs = {shape},
                                       .outputs = {value_role("y", kReals)},
                                       .attributes = {integer_attribute("dtype", 1), real_attribute("low", 0), real_attribute("high", 1)}},
                            .shape = infer_random_shape,
                            .host_inputs = make_input_mask(1)}));
  rows.push_back(make_random_row(
      RandomKind::normal, {.name = "pumice::RandomNormal",
                           .schema = {.inputs = {shape},
                                      .outputs = {value_role("y", kReals)},
                                      .attributes = {integer_attribute("dtype", 1), real_attribute("mean", 0), real_attribute("scale", 1)}},
                           .shape = infer_random_shape,
                           .host_inputs = make_input_mask(1)}));
  rows.push_back(make_random_row(
      RandomKind::mask,
      {.name = "pumice::RandomMask",
       .schema = {.inputs = {value_role("probability", kFloats), optional_role("shape", kInt64)}, .outputs = {value_role("y", kBool)}},
       .shape = infer_random_mask_shape,
       .host_inputs = make_input_mask(2)}));
  rows.push_back(
      make_random_row(RandomKind::state, {.name = "pumice::RandomState",
                                          .schema = {.inputs = {value_role("number", kInt32)}, .outputs = {value_role("y", kState)}},
                                          .shape = infer_random_state_shape}));
  rows.push_back({.name = "pumice::Multinomial",
                  .skeleton = KernelKind::random,
                  .schema = {.inputs = {value_role("state", kState), value_role("x", kFloats)},
                             .outputs = {value_role("y", kIndices)},
                             .attributes = {integer_attribute("dtype", 6), integer_attribute("sample_size", 1),
                                            integer_attribute("stream", 0), optional_attribute("key", AttributeKind::integer)}},
                  .shape = infer_multinomial_shape,
                  .lower = lower_multinomial});
  return rows;
}

}  // namespace pumice
