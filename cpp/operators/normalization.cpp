// Softmax and the normalisations.
#include <algorithm>

#include "core/error.h"
#include "operators/families.h"
#include "operators/operator_table.h"
#include "operators/planes.h"

namespace pumice {
namespace {

constexpr int64_t kMostStretches = 256;

int64_t axis_of(const LowerContext& node, int64_t fallback) {
  const int64_t axis = node.attributes->integer("axis", fallback);
  return axis < 0 ? axis + node.input(0).rank() : axis;
}

// y = x * factor + term by channel, the factors being vec2s of [images, channels] or of [channels] alone.
void add_apply(LowerContext& node, const Planes& x, const Planes& y, const Operand& factors, int64_t factor_stride_n) {
  const bool vec4 = x.has_vector_channels(4) && y.has_vector_channels(4);
  const int64_t unit = vec4 ? 4 : 1;
  const auto kernel = node.kernel("norm_apply.comp", node.input(0).dtype, {{"VEC4", vec4 ? "1" : "0"}, {"EPILOGUE(x)", node.epilogue()}});
  StepBuilder step(kernel);
  step.bind("x", node.in(0)).bind("factors", factors).bind("y", node.out(0)).set("elements", y.elements() / unit);
  step.set("channels", y.c / unit).set("height", y.h).set("width", y.w).set("factor_stride_n", factor_stride_n);
  set_strides(step, 'x', x);
  set_strides(step, 'y', y);
  step.set("channels_fastest", y.sc == 1 && y.c > 1 ? 1 : 0).threads(static_cast<uint64_t>(y.elements() / unit));
  node.add(step.build());
}

}  // namespace

void lower_softmax(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (x.elements() == 0) return;
  if (!x.is_packed() || !y.is_packed()) throw UnsupportedError("node '" + std::string(node.node) + "': softmax of a strided tensor");
  int64_t inner = 1, size = 1;
  if (x.rank() > 0) {
    const auto axis = static_cast<size_t>(axis_of(node, -1));
    size = x.shape[axis];
    for (size_t i = axis + 1; i < x.shape.size(); ++i) inner *= x.shape[i];
  }
  const int64_t rows = x.elements() / size;
  node.check_loops(size / 8 * 3 + 16);
  const auto kernel = node.kernel("softmax.comp", x.dtype, {{"LANES", node.prefers_lanes() ? "1" : "0"}});
  StepBuilder step(kernel);
  step.bind("x", node.in(0)).bind("y", node.out(0)).set("rows", rows).set("inner", inner).set("size", size);
  step.set("x_outer", size * inner)
      .set("x_inner", 1)
      .set("x_step", inner)
      .set("y_outer", size * inner)
      .set("y_inner", 1)
      .set("y_step", inner);
  step.set("logarithm", node.row->name == "LogSoftmax" ? 1 : 0).groups(static_cast<uint64_t>(rows));
  node.add(step.build());
}

bool pack_instance_norm(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input != 1 && input != 2) return false;
  pack_floats(node, input, 1, packed);
  return true;
}

void lower_instance_norm(LowerContext& node) {
  const Planes x = planes_of(node, node.input(0)), y = planes_of(node, node.output(0));
  if (x.elements() == 0) return;
  const int64_t pixels = x.h * x.w;
  const int64_t stretch = std::clamp<int64_t>((pixels + kMostStretches - 1) / kMostStretches, std::min<int64_t>(pixels, 64), 60000);
  const int64_t stretches = (pixels + stretch - 1) / stretch;
  const Operand scale = node.packed(1), bias = node.packed(2);
  const Operand parts = node.temporary(static_cast<uint64_t>(x.n * stretches * x.c) * 8),
                factors = node.temporary(static_cast<uint64_t>(x.n * x.c) * 8);
  StepBuilder statistics(node.kernel("norm_statistics.comp", node.input(0).dtype));
  statistics.bind("x", node.in(0))
      .bind("y", parts)
      .set("images", x.n)
      .set("channels", x.c)
      .set("pixels", pixels)
      .set("stretch", stretch)
      .set("stretches", stretches)
      .set("width", x.w);
  set_strides(statistics, 'x', x);
  node.add(statistics.threads(static_cast<uint64_t>(x.n * stretches * x.c)).build());
  StepBuilder combine(node.kernel("norm_combine.comp", DType::float32));
  combine.bind("x", parts).bind("scale", scale).bind("bias", bias).bind("y", factors);
  combine.set("images", x.n).set("channels", x.c).set("pixels", pixels).set("stretch", stretch).set("stretches", stretches);
  node.add(combine.set("epsilon", node.attributes->real("epsilon", 1e-5)).threads(static_cast<uint64_t>(x.n * x.c)).build());
  add_apply(node, x, y, factors, x.c);
}

bool pack_batch_norm(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input == 0) return false;
  pack_floats(node, input, 1, packed);
  return true;
}

void lower_batch_norm(LowerContext& node) {
  const Planes x = planes_of(node, node.input(0)), y = planes_of(node, node.output(0));
  if (x.elements() == 0) return;
  const Operand factors = node.temporary(static_cast<uint64_t>(x.c) * 8);
  StepBuilder step(node.kernel("batch_factors.comp", DType::float32));
  step.bind("scale", node.packed(1))
      .bind("bias", node.packed(2))
      .bind("mean", node.packed(3))
      .bind("variance", node.packed(4))
      .bind("y", factors);
  node.add(step.set("channels", x.c).set("epsilon", node.attributes->real("epsilon", 1e-5)).threads(static_cast<uint64_t>(x.c)).build());
  add_apply(node, x, y, factors, 0);
}

bool pack_layer_norm(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input != 1 && input != 2) return false;
  pack_floats(node, input, 1, packed);
  return true;
}

void lower_layer_norm(LowerContext& node) {
  const TensorDesc &x = node.input(0), &y = node.output(0);
  if (x.elements() == 0) return;
  if (!x.is_packed() || !y.is_packed())
    throw UnsupportedError("node '" + std::string(node.node) + "': layer normalisation of a strided tensor");
  if (node.has_output(1) || node.has_output(2))
    throw UnsupportedError("node '" + std::string(node.node) + "': the Mean and InvStdDev outputs of LayerNormalization");
  int64_t size = 1;
  for (size_t i = static_cast<size_t>(axis_of(node, -1)); i < x.shape.size(); ++i) size *= x.shape[i];
  node.check_loops(size / 8 * 3 + 16);
  const bool has_bias = node.has_input(2);
  if (node.input(1).elements() != size || (has_bias && node.input(2).elements() != size))
    throw UnsupportedError("node '" + std::string(node.node) + "': layer normalisation with a scale of shape " +
                           to_string(node.input(1).shape) + " that broadcasts");
  const auto kernel =
      node.kernel("layer_norm.comp", x.dtype,
                  {{"LANES", node.prefers_lanes() ? "1" : "0"}, {"HAS_BIAS", has_bias ? "1" : "0"}, {"EPILOGUE(x)", node.epilogue()}});
  StepBuilder step(kernel);
  step.bind("x", node.in(0)).bind("scale", node.packed(1)).bind("y", node.out(0));
  if (has_bias) step.bind("bias", node.packed(2));
  step.set("rows", x.elements() / size)
      .set("size", size)
      .set("epsilon", node.attributes->real("epsilon", 1e-5))
      .groups(static_cast<uint64_t>(x.elements() / size));
  node.add(step.build());
}

}  // namespace pumice
