// Counter-based random numbers: functions of a state, the node's stream number and the element index.
#include "operators/random/random.h"

#include "core/rounding.h"
#include "operators/common/composition.h"
#include "operators/random/lowerings.h"
#include "operators/reduction/reduce.h"

namespace pumice {

void lower_random(LowerContext& node) {
  const auto kind = static_cast<RandomKind>(node.row->form);
  const TensorDesc& y = node.output(0);
  if (y.elements() == 0) return;
  node.check_arithmetic(y.dtype);
  const bool wide = y.dtype == DType::float64, makes_reals = kind == RandomKind::uniform || kind == RandomKind::normal;
  const bool has_key = node.attributes->has("key");
  const int64_t block = wide ? 2 : 4;
  Macros macros{{"KIND", std::to_string(static_cast<int>(kind))},
                {"OWN_KEY", has_key ? "1" : "0"},
                {"DOUBLE", wide ? "1" : "0"},
                {"BLOCK", std::to_string(block) + "u"},
                {"REAL", wide ? "double" : "float"}};
  const auto append = [&](const Macros& more) { macros.insert(macros.end(), more.begin(), more.end()); };
  if (wide) append({{"PM_HAS_FLOAT64", "1"}});
  if (makes_reals) append(element_macros("y", y.dtype));
  if (kind == RandomKind::mask) {
    append(element_macros("x", node.input(1).dtype));
    append({{"P_STEP", node.input(1).elements() == 1 ? "0u" : "1u"}});
  }
  const DType stored = kind == RandomKind::mask ? node.input(1).dtype : makes_reals ? y.dtype : DType::float32;
  StepBuilder step(node.kernel("random.comp", stored, macros));
  const Operand made = dense_output(node, 0);
  step.bind("state", dense_input(node, 0)).bind("y", made).set("elements", y.elements()).set("stream", node.attributes->integer("stream"));
  if (kind == RandomKind::mask) step.bind("x", dense_input(node, 1));
  if (kind == RandomKind::state) step.bind("number", node.in(1));
  if (has_key) {
    const auto key = static_cast<uint64_t>(node.attributes->integer("key"));
    step.set("key", std::vector<int64_t>{static_cast<int64_t>(key & 0xffffffffu), static_cast<int64_t>(key >> 32)});
  }
  if (makes_reals) {
    const bool is_uniform = kind == RandomKind::uniform;
    const double first = node.attributes->real(is_uniform ? "low" : "mean"), second = node.attributes->real(is_uniform ? "high" : "scale");
    step.set("low", first).set("range", is_uniform ? second - first : second);
  }
  node.add(step.threads(static_cast<uint64_t>(ceil_div(y.elements(), block))).build());
  finish_output(node, 0, made);
}

// Samples classes by inverse CDF: the first class whose cumulative probability exceeds a uniform number times the total.
void lower_multinomial(LowerContext& node) {
  const TensorDesc &x = node.input(1), &y = node.output(0);
  if (y.elements() == 0) return;
  node.check_arithmetic(y.dtype);
  Composition parts(node);
  const Piece wide = parts.scratch(DType::float32, x.shape), share = parts.scratch(DType::float32, x.shape);
  const Piece sums = parts.scratch(DType::float32, x.shape), uniform = parts.scratch(DType::float32, y.shape);
  Attributes last_axis, random;
  last_axis.set("axis", int64_t{1});
  for (const char* key : {"stream", "key"})
    if (node.attributes->has(key)) random.set(key, node.attributes->integer(key));
  random.set("low", 0.0);
  random.set("high", 1.0);
  parts.map("a0", {parts.input(1)}, wide);
  parts.add("Softmax", last_axis, {wide}, share);
  add_row_sums(node, share.operand, sums.operand, x.shape[0], x.shape[1]);
  parts.add("pumice::RandomUniform", random, {parts.input(0)}, uniform);
  add_dense(node, 0, "multinomial.comp", {}, [&](StepBuilder& step) {
    step.bind("sums", sums.operand).bind("uniform_", uniform.operand).set("samples", y.shape[1]).set("classes", x.shape[1]);
  });
}

}  // namespace pumice
