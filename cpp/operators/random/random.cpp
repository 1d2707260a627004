// Lowers random number operators. They are counter-based: a number depends only on the state, the node's stream number and the element
// index.
#include "operators/random/random.h"

#include "core/rounding.h"
#include "operators/common/composite_lowering.h"
#include "operators/random/lowerings.h"
#include "operators/reduction/reduce.h"

namespace pumice {

void lower_random(LowerContext& node) {
  const auto kind = static_cast<RandomKind>(node.row->form);
  const TensorDesc& y = node.output(0);
  if (y.elements() == 0) return;
  node.check_arithmetic(y.dtype);
  const bool is_fp64 = y.dtype == DType::float64, is_real_valued = kind == RandomKind::uniform || kind == RandomKind::normal;
  const bool has_key = node.attributes->has("key");
  const int64_t block = is_fp64 ? 2 : 4;
  Macros macros{{"KIND", std::to_string(static_cast<int>(kind))},
                {"NODE_KEY", has_key ? "1" : "0"},
                {"DOUBLE", is_fp64 ? "1" : "0"},
                {"BLOCK", std::to_string(block) + "u"},
                {"REAL", is_fp64 ? "double" : "float"}};
  const auto append = [&](const Macros& more) { macros.insert(macros.end(), more.begin(), more.end()); };
  if (is_fp64) append({{"PM_HAS_FLOAT64", "1"}});
  if (is_real_valued) append(make_element_macros("y", y.dtype));
  if (kind == RandomKind::mask) {
    append(make_element_macros("x", node.input(1).dtype));
    append({{"P_STEP", node.input(1).elements() == 1 ? "0u" : "1u"}});
  }
  const DType stored = kind == RandomKind::mask ? node.input(1).dtype : is_real_valued ? y.dtype : DType::float32;
  StepBuilder step(node.kernel("random.comp", stored, macros));
  const Operand y_dense = get_contiguous_output(node, 0);
  step.bind("state", get_contiguous_input(node, 0)).bind("y", y_dense);
  step.set("elements", y.elements()).set("stream", node.attributes->integer("stream"));
  if (kind == RandomKind::mask) step.bind("x", get_contiguous_input(node, 1));
  if (kind == RandomKind::state) step.bind("number", node.input_operand(1));
  if (has_key) {
    const auto key = static_cast<uint64_t>(node.attributes->integer("key"));
    step.set("key", std::vector<int64_t>{static_cast<int64_t>(key & 0xffffffffu), static_cast<int64_t>(key >> 32)});
  }
  if (is_real_valued) {
    const bool is_uniform = kind == RandomKind::uniform;
    const double first = node.attributes->real(is_uniform ? "low" : "mean"), second = node.attributes->real(is_uniform ? "high" : "scale");
    step.set("low", first).set("range", is_uniform ? second - first : second);
  }
  node.add(step.set_threads(static_cast<uint64_t>(ceil_div(y.elements(), block))).build());
  copy_contiguous_output(node, 0, y_dense);
}

// Samples classes by inverse CDF: selects the first class whose cumulative probability exceeds a uniform random number times the total.
void lower_multinomial(LowerContext& node) {
  const TensorDesc &x = node.input(1), &y = node.output(0);
  if (y.elements() == 0) return;
  node.check_arithmetic(y.dtype);
  CompositeLowering parts(node);
  const TensorOperand logits = parts.allocate_scratch(DType::float32, x.shape),
                      probabilities = parts.allocate_scratch(DType::float32, x.shape);
  const TensorOperand sums = parts.allocate_scratch(DType::float32, x.shape), uniform = parts.allocate_scratch(DType::float32, y.shape);
  Attributes last_axis, random;
  last_axis.set("axis", int64_t{1});
  for (const char* key : {"stream", "key"})
    if (node.attributes->has(key)) random.set(key, node.attributes->integer(key));
  random.set("low", 0.0);
  random.set("high", 1.0);
  parts.add_elementwise("a0", {parts.input(1)}, logits);
  parts.add_operator("Softmax", last_axis, {logits}, probabilities);
  add_row_cumsum(node, probabilities.operand, sums.operand, x.shape[0], x.shape[1]);
  parts.add_operator("pumice::RandomUniform", random, {parts.input(0)}, uniform);
  add_contiguous_output(node, 0, "multinomial.comp", {}, [&](StepBuilder& step) {
    step.bind("sums", sums.operand).bind("uniform_", uniform.operand).set("samples", y.shape[1]).set("classes", x.shape[1]);
  });
}

}  // namespace pumice
