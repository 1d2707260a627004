// NNAPI operations along axes: sums, extrema, means, normalizations.
#include <algorithm>

#include "graph/nnapi/expansion.h"
#include "graph/nnapi/operations.h"

namespace pumice::nnapi {
namespace {

std::vector<int64_t> read_distinct_axes(const Expansion& e) {
  const auto rank = static_cast<int64_t>(e.rank(0));
  std::vector<int64_t> axes;
  for (const int64_t actual : e.read_list(1)) {
    const int64_t axis = actual < 0 ? actual + rank : actual;
    if (axis < 0 || axis >= rank)
      e.fail(1, "axes from " + std::to_string(-rank) + " to " + std::to_string(rank - 1) + " expected; given " + std::to_string(actual));
    if (std::ranges::find(axes, axis) == axes.end()) axes.push_back(axis);
  }
  return axes;
}

// Reduces over axes that are known only at run time.
ValueId reduce_runtime_axes(Expansion& e, std::string_view op, ValueId x) {
  const bool keep = e.read_int(2) != 0;
  const ValueId y =
      e.add(op, {x, e.add_runtime_axes(1, x)}, make_attrs({{"keepdims", int64_t{keep}}, {"noop_with_empty_axes", int64_t{1}}}));
  return keep ? y : e.ensure_vector(y);
}

// Reduces over the axes of operand 1. A full reduction has shape [1].
ValueId reduce_axes(Expansion& e, std::string_view op, ValueId x) {
  if (!e.known_ints(1)) return reduce_runtime_axes(e, op, x);
  const auto axes = read_distinct_axes(e);
  const bool keep = e.read_int(2) != 0, all = axes.size() == e.rank(0);
  const ValueId y =
      e.add(op, {x, e.add_int64_vector(axes)}, make_attrs({{"keepdims", int64_t{keep || all}}, {"noop_with_empty_axes", int64_t{1}}}));
  return all && !keep ? e.add("Reshape", {y, e.add_int64_vector({1})}) : y;
}

// Adds a reduction output. The integers of a quantized tensor have the same order as the values they represent, so they are reduced
// directly.
void add_reduce_output(Expansion& e, std::string_view op) {
  e.add_output(reduce_axes(e, op, e[0]), e.operand_quantization(0));
}

constexpr char kSum[] = "ReduceSum", kProd[] = "ReduceProd", kMax[] = "ReduceMax", kMin[] = "ReduceMin", kArgMax[] = "ArgMax",
               kArgMin[] = "ArgMin";

template <const char* op>
void expand_reduce(Expansion& e) {
  add_reduce_output(e, op);
}

// The mean commutes with affine quantization, so the output has the scale and zero point of the input.
void expand_mean(Expansion& e) {
  if (!e.is_quantized(0)) return e.add_output(reduce_axes(e, "ReduceMean", e[0]));
  const Quantization quantization = e.operand_quantization(0), unit_quantization{{1}, 0, {}};
  e.add_output(e.quantize(reduce_axes(e, "ReduceMean", e.dequantize(e[0], unit_quantization)), unit_quantization, e.dtype(0)),
               quantization);
}

void add_arg_reduce_output(Expansion& e, std::string_view op) {
  const size_t rank = e.rank(0);
  const auto axis = static_cast<int64_t>(e.read_axis(1, rank));
  e.add_output(e.cast(e.add(op, {e[0]}, make_attrs({{"axis", axis}, {"keepdims", int64_t{rank == 1}}})), DType::int32));
}

template <const char* op>
void expand_arg_reduce(Expansion& e) {
  add_arg_reduce_output(e, op);
}

ValueId scale_by_beta(Expansion& e) {
  const ValueId x = e.to_real(0);
  const double beta = e.read_real(1);
  return beta == 1 ? x : e.add("Mul", {x, e.add_scalar(beta, e.value_of(x).dtype)});
}

void expand_softmax(Expansion& e) {
  const double beta = e.read_real(1);
  if (!(beta > 0)) e.fail(1, "a positive number expected; given " + std::to_string(beta));
  const ValueId y = e.add("Softmax", {scale_by_beta(e)}, make_attrs({{"axis", e.read_onnx_axis(2, 0, 0, -1)}}));
  if (!e.is_quantized(0)) return e.add_output(y);
  const Quantization quantization = e.fixed_quantization(1.0f / 256, e.dtype(0) == DType::int8 ? -128 : 0);
  e.add_output(e.quantize(y, quantization, e.dtype(0)), quantization);
}

void expand_log_softmax(Expansion& e) {
  e.add_output(e.add("LogSoftmax", {scale_by_beta(e)}, make_attrs({{"axis", e.read_onnx_axis(2, 0, 0, -1)}})));
}

void expand_l2_normalization(Expansion& e) {
  const ValueId y = e.add("LpNormalization", {e.to_real(0)}, make_attrs({{"axis", e.read_onnx_axis(1, 0, 0, -1)}}));
  if (!e.is_quantized(0)) return e.add_output(y);
  const Quantization quantization = e.fixed_quantization(1.0f / 128, e.dtype(0) == DType::int8 ? 0 : 128);
  e.add_output(e.quantize(y, quantization, e.dtype(0)), quantization);
}

}  // namespace

Operations make_reduction_operations() {
  constexpr DTypeSet reals = kFloat | kQuant;
  const auto reduction = [](std::string_view name, int level, std::string_view summary, DTypeSet dtypes, DTypeSet flag,
                            void (*expand)(Expansion&)) {
    const std::vector<Operand> inputs{tensor_arg("x", dtypes), list_arg("axes"), scalar_arg("keep_dims", flag)};
    return Operation{name, level, summary, inputs, {tensor_arg("y", dtypes)}, expand};
  };
  const auto arg_reduction = [](std::string_view name, std::string_view summary, void (*expand)(Expansion&)) {
    return Operation{name, 3, summary, {tensor_arg("x", kFloat | kInt | kQuant), scalar_arg("axis")}, {tensor_arg("y", kInt)}, expand};
  };
  const auto softmax = [](std::string_view name, int level, std::string_view summary, DTypeSet dtypes, void (*expand)(Expansion&)) {
    const std::vector<Operand> inputs{tensor_arg("x", dtypes), scalar_arg("beta", kFloat), scalar_arg("axis", kInt, true)};
    return Operation{name, level, summary, inputs, {tensor_arg("y", dtypes)}, expand};
  };
  return {
      reduction("nnapi::REDUCE_SUM", 3, "The sum.", kFloat, kTruth, expand_reduce<kSum>),
      reduction("nnapi::REDUCE_PROD", 3, "The product.", kFloat, kTruth, expand_reduce<kProd>),
      reduction("nnapi::REDUCE_MAX", 3, "The largest.", reals, kTruth, expand_reduce<kMax>),
      reduction("nnapi::REDUCE_MIN", 3, "The smallest.", reals, kTruth, expand_reduce<kMin>),
      reduction("nnapi::REDUCE_ANY", 3, "Whether any is true.", kTruth, kTruth, expand_reduce<kMax>),
      reduction("nnapi::REDUCE_ALL", 3, "Whether all are true.", kTruth, kTruth, expand_reduce<kMin>),
      reduction("nnapi::MEAN", 2, "The mean.", reals, kInt, expand_mean),
      arg_reduction("nnapi::ARGMAX", "The index of the first of the largest.", expand_arg_reduce<kArgMax>),
      arg_reduction("nnapi::ARGMIN", "The index of the first of the smallest.", expand_arg_reduce<kArgMin>),
      softmax("nnapi::SOFTMAX", 1,
              "exp(beta * x) by its sum along the axis. Quantized results have the scale 1/256 and the lowest integer as zero point.",
              reals, expand_softmax),
      softmax("nnapi::LOG_SOFTMAX", 3, "The logarithm of the softmax of beta * x.", kFloat, expand_log_softmax),
      {"nnapi::L2_NORMALIZATION",
       1,
       "x by the root of the sum of its squares along the axis. Quantized results have the scale 1/128 and the middle integer as zero "
       "point.",
       {tensor_arg("x", reals), scalar_arg("axis", kInt, true)},
       {tensor_arg("y", reals)},
       expand_l2_normalization},
  };
}

}  // namespace pumice::nnapi
