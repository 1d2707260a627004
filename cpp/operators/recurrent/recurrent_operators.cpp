// Operator rows of recurrent layers.
#include "operators/common/split_axes.h"
#include "operators/geometry/index_bounds.h"
#include "operators/recurrent/lowerings.h"
#include "operators/recurrent/recurrent.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

void check_input_shape(const ShapeContext& node, size_t input, const Shape& expected, std::string_view description) {
  if (node.has(input) && node.input(input).shape != expected)
    node.fail("expected " + std::string(description) + " of shape " + to_string(expected) + "; given " +
              to_string(node.input(input).shape));
}

// Checks the initial states of both directions, which are in one tensor or in one tensor per direction.
void check_states(const ShapeContext& node, size_t input, Shape expected, std::string_view description) {
  if (node.has(input + kBackward)) {
    expected[find_direction_axis(node.attributes().integer("layout", 0) != 0, false)] = 1;
    check_input_shape(node, input + kBackward, expected, std::string(description) + " of the second direction");
  }
  check_input_shape(node, input, expected, description);
}

void infer_recurrent_shape(ShapeContext& node, RecurrentCellKind form, size_t outputs) {
  const Attributes& attributes = node.attributes();
  const Shape &x = node.input(0).shape, &w = node.input(1).shape, &r = node.input(2).shape;
  if (w.size() != 3 || r.size() != 3) node.fail("expected weights of three axes; given " + to_string(w) + " and " + to_string(r));
  const bool batch_first = attributes.integer("layout", 0) != 0;
  const int64_t steps = x[batch_first ? 1 : 0], batch = x[batch_first ? 0 : 1], units = r[2];
  const int64_t directions = count_directions(attributes), gates = find_recurrent_cell(form).gates;
  check_input_shape(node, 1, {directions, gates * units, x[2]}, "weights of the input");
  check_input_shape(node, 2, {directions, gates * units, units}, "recurrent weights");
  check_input_shape(node, 3, {directions, 2 * gates * units}, "biases");
  check_input_shape(node, 4, {batch}, "lengths of the sequences");
  const Shape state = batch_first ? Shape{batch, directions, units} : Shape{directions, batch, units};
  check_states(node, 5, state, "initial hidden states");
  check_states(node, 6, state, "initial cells");
  check_input_shape(node, 7, {directions, 3 * units}, "peepholes");
  if (attributes.has("hidden_size") && attributes.integer("hidden_size") != units)
    node.fail("'hidden_size' is " + std::to_string(attributes.integer("hidden_size")) + " and the recurrent weights are of " +
              std::to_string(units) + " units");
  if (attributes.has("clip") && !(attributes.real("clip") >= 0))
    node.fail("expected a non-negative 'clip'; given " + std::to_string(attributes.real("clip")));
  make_activation_glsl(form, node.node(), attributes);
  const DType dtype = node.input(0).dtype;
  const bool batch_before_directions = attributes.integer(kBatchBeforeDirections, 0) != 0;
  const auto set_output = [&](size_t i, Shape shape) {
    if (has_separate_output(attributes, i)) {
      shape[find_direction_axis(batch_first, i == 0)] = 1;
      node.output(i + kBackward, dtype, shape);
    }
    node.output(i, dtype, std::move(shape));
  };
  set_output(0, batch_first               ? Shape{batch, steps, directions, units}
                : batch_before_directions ? Shape{steps, batch, directions, units}
                                          : Shape{steps, directions, batch, units});
  for (size_t i = 1; i < outputs; ++i) set_output(i, state);
}

void infer_lstm_shape(ShapeContext& node) {
  infer_recurrent_shape(node, kLstmCell, 3);
}
void infer_gru_shape(ShapeContext& node) {
  infer_recurrent_shape(node, kGruCell, 2);
}
void infer_rnn_shape(ShapeContext& node) {
  infer_recurrent_shape(node, kRnnCell, 2);
}

// Counts the FLOPs of the GEMMs, in which each step's input and previous state are multiplied by the weights of all gates.
uint64_t count_recurrent_flops(const LowerContext& node) {
  const Shape& x = node.input(kData).shape;
  return 2 * static_cast<uint64_t>(x[0] * x[1]) * static_cast<uint64_t>(node.input(1).elements() + node.input(2).elements());
}

// Recurrent layers can be split along the batch, because its sequences are independent.
void append_recurrent_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const bool batch_first = node.attributes->integer("layout", 0) != 0;
  const int in = batch_first ? 0 : 1;
  SplitAxis& split = axes.emplace_back(node.input(kData).shape[static_cast<size_t>(in)], std::vector<int>(node.inputs.size(), kNotSplit));
  split.inputs[kData] = in;
  for (const size_t state : kInitialStates)
    for (const size_t i : {state, state + kBackward})
      if (node.has_input(i)) split.inputs[i] = in;
  if (node.has_input(4)) split.inputs[4] = 0;
  const int in_results = node.attributes->integer(kBatchBeforeDirections, 0) != 0 ? 1 : 2;
  for (size_t j = 0; j < node.outputs.size(); ++j)
    split.outputs.push_back(!node.has_output(j) ? kNotSplit : batch_first ? 0 : j % kBackward == 0 ? in_results : 1);
}

// Adds the properties that all recurrent operators have.
OperatorRow make_recurrent_row(OperatorRow row) {
  row.skeleton = KernelKind::scan;
  row.schema.min_rank = row.schema.max_rank = 3;
  row.lower = lower_recurrent;
  row.flop = count_recurrent_flops;
  row.pack = pack_recurrent;
  row.indices = get_rnn_length_bounds;
  row.strides = StrideSupport::packed;
  row.split = append_recurrent_split_axes;
  row.precision.fp32_inputs = 1 << 5 | 1 << 6 | 1 << 8 | 1 << 9;
  row.precision.fp32_outputs = (1 << 2 * kBackward) - 1;
  return row;
}

}  // namespace

OperatorRows define_recurrent_operators() {
  const auto floats = [](std::string_view name) { return optional_role(name, kFloats, 'T'); };
  const std::vector<ValueRole> inputs{value_role("x", kFloats, 'T'),
                                      value_role("w", kFloats, 'T'),
                                      value_role("r", kFloats, 'T'),
                                      floats("b"),
                                      optional_role("sequence_lens", make_dtype_set(DType::int32)),
                                      floats("initial_h")},
      outputs{floats("y"), floats("y_h")};
  auto lstm_inputs = inputs, lstm_outputs = outputs;
  lstm_inputs.insert(lstm_inputs.end(), {floats("initial_c"), floats("p")});
  lstm_outputs.push_back(floats("y_c"));
  const std::vector<AttributeSchema> attributes{optional_attribute("activation_alpha", AttributeKind::reals),
                                                optional_attribute("activation_beta", AttributeKind::reals),
                                                optional_attribute("activations", AttributeKind::texts),
                                                optional_attribute("clip", AttributeKind::real),
                                                choice_attribute("direction", "forward", {"forward", "reverse", "bidirectional"}),
                                                optional_attribute("hidden_size", AttributeKind::integer),
                                                {"layout", AttributeKind::integer, int64_t{0}, false, {int64_t{0}, int64_t{1}}}};
  auto lstm_attributes = attributes, gru_attributes = attributes;
  lstm_attributes.push_back(integer_attribute("input_forget", 0));
  gru_attributes.push_back(integer_attribute("linear_before_reset", 0));
  return {make_recurrent_row({.name = "LSTM",
                              .schema = {.inputs = lstm_inputs, .outputs = lstm_outputs, .attributes = lstm_attributes},
                              .shape = infer_lstm_shape,
                              .form = kLstmCell}),
          make_recurrent_row({.name = "GRU",
                              .schema = {.inputs = inputs, .outputs = outputs, .attributes = gru_attributes},
                              .shape = infer_gru_shape,
                              .form = kGruCell}),
          make_recurrent_row({.name = "RNN",
                              .schema = {.inputs = inputs, .outputs = outputs, .attributes = attributes},
                              .shape = infer_rnn_shape,
                              .form = kRnnCell})};
}

}  // namespace pumice
