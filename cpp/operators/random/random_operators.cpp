// Operator rows for random numbers, which are functions of a caller-provided state: a two-word key and a two-word run counter.
#include "core/error.h"
#include "operators/random/lowerings.h"
#include "operators/random/random.h"
#include "operators/table/onnx_dtype.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

constexpr DTypeSet kState = set_of(DType::uint32);

void check_random_state(const ShapeContext& node) {
  check_vector(node, 0, 4, "a state");
}

DType get_declared_dtype(const ShapeContext& node, DTypeSet possible) {
  const int64_t number = node.attributes().integer("dtype");
  const auto dtype = dtype_from_onnx(number);
  if (dtype && contains(possible, *dtype)) return *dtype;
  throw UnsupportedError("node '" + std::string(node.node()) + "': random numbers as " +
                         (dtype ? std::string(name(*dtype)) : "ONNX element type " + std::to_string(number)) + "; they can be " +
                         join_names(possible));
}

void shape_of_random(ShapeContext& node) {
  check_random_state(node);
  node.output(0, get_declared_dtype(node, kReals), node.host_integers(1));
}

// The probability is a scalar, or has one value per element.
void shape_of_random_mask(ShapeContext& node) {
  check_random_state(node);
  const Shape& p = node.input(1).shape;
  const Shape mask_shape = node.has(2) ? node.host_integers(2) : p;
  if (mask_shape != p && element_count(p) != 1)
    node.fail("probabilities of shape " + to_string(p) + " for a mask of shape " + to_string(mask_shape) + "; one or as many expected");
  node.output(0, DType::bool_, mask_shape);
}

void shape_of_random_state(ShapeContext& node) {
  check_random_state(node);
  check_vector(node, 1, 1, "a number");
  node.output(0, DType::uint32, {4});
}

void shape_of_multinomial(ShapeContext& node) {
  check_random_state(node);
  const int64_t samples = node.attributes().integer("sample_size");
  const Shape& x = node.input(1).shape;
  if (samples < 1) node.fail("'sample_size' of at least 1 expected; given " + std::to_string(samples));
  if (x.size() != 2 || x[1] < 1) node.fail("[batch, classes] with at least one class expected; given " + to_string(x));
  node.output(0, get_declared_dtype(node, kIndices), {x[0], samples});
}

// Adds the properties common to all distributions: the first input is the state, and every node has its own stream.
OperatorRow make_random_row(RandomKind kind, OperatorRow row) {
  row.skeleton = KernelKind::random;
  row.schema.inputs.insert(row.schema.inputs.begin(), value("state", kState));
  row.schema.attributes.push_back(integer("stream", 0));
  row.schema.attributes.push_back(optional("key", AttributeKind::integer));
  row.lower = lower_random;
  row.form = static_cast<int>(kind);
  row.mixed_precision = true;
  return row;
}

}  // namespace

OperatorRows random_operators() {
  const ValueRole shape = value("shape", kInt64);
  OperatorRows rows;
  rows.push_back(make_random_row(
      RandomKind::uniform,
      {.name = "pumice::RandomUniform",
       .schema = {.inputs = {shape}, .outputs = {value("y", kReals)}, .attributes = {integer("dtype", 1), real("low", 0), real("high", 1)}},
       .shape = shape_of_random,
       .host_inputs = input_bits(1)}));
  rows.push_back(make_random_row(RandomKind::normal, {.name = "pumice::RandomNormal",
                                                      .schema = {.inputs = {shape},
                                                                 .outputs = {value("y", kReals)},
                                                                 .attributes = {integer("dtype", 1), real("mean", 0), real("scale", 1)}},
                                                      .shape = shape_of_random,
                                                      .host_inputs = input_bits(1)}));
  rows.push_back(make_random_row(RandomKind::mask, {.name = "pumice::RandomMask",
                                                    .schema = {.inputs = {value("probability", kFloats), optional_value("shape", kInt64)},
                                                               .outputs = {value("y", kBool)}},
                                                    .shape = shape_of_random_mask,
                                                    .host_inputs = input_bits(2)}));
  rows.push_back(make_random_row(RandomKind::state, {.name = "pumice::RandomState",
                                                     .schema = {.inputs = {value("number", kInt32)}, .outputs = {value("y", kState)}},
                                                     .shape = shape_of_random_state}));
  rows.push_back({.name = "pumice::Multinomial",
                  .skeleton = KernelKind::random,
                  .schema = {.inputs = {value("state", kState), value("x", kFloats)},
                             .outputs = {value("y", kIndices)},
                             .attributes = {integer("dtype", 6), integer("sample_size", 1), integer("stream", 0),
                                            optional("key", AttributeKind::integer)}},
                  .shape = shape_of_multinomial,
                  .lower = lower_multinomial});
  return rows;
}

}  // namespace pumice
