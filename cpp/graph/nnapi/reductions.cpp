// Operations along axes: sums, extrema, means, normalisations.
#include <algorithm>

#include "graph/nnapi/expansion.h"
#include "graph/nnapi/operations.h"

namespace pumice::nnapi {
namespace {

std::vector<int64_t> distinct_axes(const Expansion& e) {
  const auto rank = static_cast<int64_t>(e.rank(0));
  std::vector<int64_t> axes;
  for (const int64_t actual : e.list(1)) {
    const int64_t axis = actual < 0 ? actual + rank : actual;
    if (axis < 0 || axis >= rank)
      e.fail(1, "axes from " + std::to_string(-rank) + " to " + std::to_string(rank - 1) + " expected; given " + std::to_string(actual));
    if (std::ranges::find(axes, axis) == axes.end()) axes.push_back(axis);
  }
  return axes;
}

// Reduces over axes that the program computes.
ValueId reduce_runtime_axes(Expansion& e, std::string_view op, ValueId x) {
  const bool keep = e.integer(2) != 0;
  const ValueId y = e.add(op, {x, e.runtime_axes(1, x)}, with({{"keepdims", int64_t{keep}}, {"noop_with_empty_axes", int64_t{1}}}));
  return keep ? y : e.at_least_1d(y);
}

// Reduces over the given axes. A full reduction has shape [1].
ValueId reduce_axes(Expansion& e, std::string_view op, ValueId x) {
  if (!e.known(1)) return reduce_runtime_axes(e, op, x);
  const auto axes = distinct_axes(e);
  const bool keep = e.integer(2) != 0, all = axes.size() == e.rank(0);
  const ValueId y = e.add(op, {x, e.integers(axes)}, with({{"keepdims", int64_t{keep || all}}, {"noop_with_empty_axes", int64_t{1}}}));
  return all && !keep ? e.add("Reshape", {y, e.integers({1})}) : y;
}

// Reduces a quantized tensor by reducing its integers, which have the same order.
void expand_reduce(Expansion& e, std::string_view op) {
  e.add_output(reduce_axes(e, op, e[0]), e.operand_quantization(0));
}

constexpr char kSum[] = "ReduceSum", kProd[] = "ReduceProd", kMax[] = "ReduceMax", kMin[] = "ReduceMin", kArgMax[] = "ArgMax",
               kArgMin[] = "ArgMin";

template <const char* op>
void reduce(Expansion& e) {
  expand_reduce(e, op);
}

// Averaging commutes with affine quantization, so the output uses the input's scale and zero point.
void mean(Expansion& e) {
  if (!e.is_quantized(0)) return e.add_output(reduce_axes(e, "ReduceMean", e[0]));
  const Quantization quantization = e.operand_quantization(0), one{{1}, 0, {}};
  e.add_output(e.quantized(reduce_axes(e, "ReduceMean", e.dequantized(e[0], one)), one, e.dtype(0)), quantization);
}

void expand_arg(Expansion& e, std::string_view op) {
  const size_t rank = e.rank(0);
  const auto axis = static_cast<int64_t>(e.axis(1, rank));
  e.add_output(e.cast(e.add(op, {e[0]}, with({{"axis", axis}, {"keepdims", int64_t{rank == 1}}})), DType::int32));
}

template <const char* op>
void arg(Expansion& e) {
  expand_arg(e, op);
}

ValueId scaled(Expansion& e) {
  const ValueId x = e.reals(0);
  const double beta = e.real(1);
  return beta == 1 ? x : e.add("Mul", {x, e.scalar(beta, e.of(x).dtype)});
}

void softmax(Expansion& e) {
  const double beta = e.real(1);
  if (!(beta > 0)) e.fail(1, "a number above 0 expected; given " + std::to_string(beta));
  const ValueId y = e.add("Softmax", {scaled(e)}, with({{"axis", e.any_axis(2, 0, 0, -1)}}));
  if (!e.is_quantized(0)) return e.add_output(y);
  const Quantization quantization = e.fixed_quantization(1.0f / 256, e.dtype(0) == DType::int8 ? -128 : 0);
  e.add_output(e.quantized(y, quantization, e.dtype(0)), quantization);
}

void log_softmax(Expansion& e) {
  e.add_output(e.add("LogSoftmax", {scaled(e)}, with({{"axis", e.any_axis(2, 0, 0, -1)}})));
}

void l2_normalization(Expansion& e) {
  const ValueId y = e.add("LpNormalization", {e.reals(0)}, with({{"axis", e.any_axis(1, 0, 0, -1)}}));
  if (!e.is_quantized(0)) return e.add_output(y);
  const Quantization quantization = e.fixed_quantization(1.0f / 128, e.dtype(0) == DType::int8 ? 0 : 128);
  e.add_output(e.quantized(y, quantization, e.dtype(0)), quantization);
}

}  // namespace

Operations reduction_operations() {
  constexpr DTypeSet reals = kFloat | kQuant;
  const auto along = [](std::string_view name, int level, std::string_view summary, DTypeSet dtypes, DTypeSet flag,
                        void (*expand)(Expansion&)) {
    return Operation{name, level, summary, {tensor("x", dtypes), list("axes"), scalar("keep_dims", flag)}, {tensor("y", dtypes)}, expand};
  };
  const auto best = [](std::string_view name, std::string_view summary, void (*expand)(Expansion&)) {
    return Operation{name, 3, summary, {tensor("x", kFloat | kInt | kQuant), scalar("axis")}, {tensor("y", kInt)}, expand};
  };
  const auto normal = [](std::string_view name, int level, std::string_view summary, DTypeSet dtypes, void (*expand)(Expansion&)) {
    return Operation{
        name, level, summary, {tensor("x", dtypes), scalar("beta", kFloat), scalar("axis", kInt, true)}, {tensor("y", dtypes)}, expand};
  };
  return {
      along("nnapi::REDUCE_SUM", 3, "The sum.", kFloat, kTruth, reduce<kSum>),
      along("nnapi::REDUCE_PROD", 3, "The product.", kFloat, kTruth, reduce<kProd>),
      along("nnapi::REDUCE_MAX", 3, "The largest.", reals, kTruth, reduce<kMax>),
      along("nnapi::REDUCE_MIN", 3, "The smallest.", reals, kTruth, reduce<kMin>),
      along("nnapi::REDUCE_ANY", 3, "Whether any is true.", kTruth, kTruth, reduce<kMax>),
      along("nnapi::REDUCE_ALL", 3, "Whether all are true.", kTruth, kTruth, reduce<kMin>),
      along("nnapi::MEAN", 2, "The mean.", reals, kInt, mean),
      best("nnapi::ARGMAX", "The index of the first of the largest.", arg<kArgMax>),
      best("nnapi::ARGMIN", "The index of the first of the smallest.", arg<kArgMin>),
      normal("nnapi::SOFTMAX", 1,
             "exp(beta * x) by its sum along the axis. Quantized results have the scale 1/256 and the lowest integer as zero point.", reals,
             softmax),
      normal("nnapi::LOG_SOFTMAX", 3, "The logarithm of the softmax of beta * x.", kFloat, log_softmax),
      {"nnapi::L2_NORMALIZATION",
       1,
       "x by the root of the sum of its squares along the axis. Quantized results have the scale 1/128 and the middle integer as zero "
       "point.",
       {tensor("x", reals), scalar("axis", kInt, true)},
       {tensor("y", reals)},
       l2_normalization},
  };
}

}  // namespace pumice::nnapi
