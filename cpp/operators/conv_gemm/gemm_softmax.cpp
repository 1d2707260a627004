// GEMM with a matrix of few columns, followed by a row-wise Softmax.
#include <algorithm>
#include <bit>

#include "core/rounding.h"
#include "operators/conv_gemm/conv_gemm_dispatch.h"
#include "operators/conv_gemm/weight_packing.h"
#include "operators/conv_gemm/lowerings.h"
#include "operators/common/composition.h"
#include "operators/common/mixed_precision.h"

namespace pumice {
namespace {

constexpr int64_t kSoftmaxGroup = 256;  // invocations per workgroup
enum ProductInput : size_t { kLeft, kRight, kAdded };
enum ProductOutput : size_t { kProbabilities, kProduct };

bool is_transposed(const NodeContext& node) {
  return node.attributes->integer("transB", 0) != 0;
}

WeightView few_columns(const NodeContext& node, const TensorDesc& b) {
  const bool transposed = is_transposed(node);
  const int64_t k = b.shape[transposed ? 1 : 0], n = b.shape[transposed ? 0 : 1];
  return {1, n, k, 1, k * n, transposed ? k : 1, transposed ? 1 : n, 1};
}

// Whether to use the fused kernel: barriers are cheap, and re-reading the matrix in the workgroup of each row costs less than the saved
// dispatch.
bool is_at_once(const LowerContext& node) {
  constexpr int64_t kMostRead = 1 << 22;  // maximum number of matrix elements that all workgroups together read
  const int64_t read = node.input(kLeft).shape[0] * node.input(kRight).elements();
  return !node.prefers_lanes() && node.most_invocations() >= kSoftmaxGroup && read <= kMostRead;
}

// GEMM and Softmax as separate kernels.
void lower_one_by_one(LowerContext& node) {
  const TensorDesc &x = node.input(kLeft), &y = node.output(kProbabilities);
  Operand between = node.has_output(kProduct) ? node.out(kProduct) : node.temporary(y.bytes());
  between.element_bits = static_cast<uint32_t>(bits(y.dtype));
  Contraction c = matrix_product(matrix_planes(x.shape[0], x.shape[1], x.strides[0], x.strides[1]), few_columns(node, node.input(kRight)),
                                 matrix_planes(y.shape[0], y.shape[1], y.shape[1], 1));
  const Operand left = matrix_rows(node, c);
  add_contraction(node, c, left, node.packed(kRight), bias_of(node), between);
  Attributes along_rows;
  along_rows.set("axis", int64_t{-1});
  Composition(node).add("Softmax", along_rows, {{y, between}}, {y, node.out(kProbabilities)});
}

}  // namespace

bool pack_product_softmax(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input == kRight) pack_weights(node, input, few_columns(node, node.input(input)), 1, packed);
  if (input == kAdded) pack_floats(node, input, 1, packed);
  return input == kRight || input == kAdded;
}

void lower_product_softmax(LowerContext& node) {
  const TensorDesc &x = node.input(kLeft), &y = node.output(kProbabilities);
  if (y.elements() == 0) return;
  if (!is_at_once(node)) return lower_one_by_one(node);
  const int64_t rows = x.shape[0], depth = x.shape[1], columns = y.shape[1];
  const auto across = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(round_up(columns, 8) / 4)));
  const int64_t deep = kSoftmaxGroup / across, parts = kSoftmaxGroup / (across * 4);
  node.check_loops(ceil_div(depth, deep) * 3 + deep / parts + parts + 2 * columns);
  const MixedArrays arrays = mixed_arrays({{"X", x.dtype}, {"W", node.float_dtype}, {"Y", y.dtype}});
  Macros macros = {{"HAS_BIAS", node.has_input(kAdded) ? "1" : "0"},
                   {"HAS_PRODUCT", node.has_output(kProduct) ? "1" : "0"},
                   {"EPILOGUE(x)", node.epilogue()}};
  arrays.tell(macros);
  StepBuilder step(node.kernel("gemm_softmax.comp", arrays.storage, macros, {{"INVOCATIONS", kSoftmaxGroup}, {"ACROSS", across}}));
  step.bind("x", node.in(kLeft)).bind("w", node.packed(kRight)).bind("y", node.out(kProbabilities));
  if (node.has_input(kAdded)) step.bind("b", node.packed(kAdded));
  if (node.has_output(kProduct)) step.bind("product", node.out(kProduct));
  step.set("rows", rows).set("depth", depth).set("columns", columns);
  step.set("x_stride_row", x.strides[0]).set("x_stride_column", x.strides[1]);
  node.tell_additions(std::max(ceil_div(depth, deep) + deep / parts + parts + 2, columns));
  node.add(step.groups(static_cast<uint64_t>(rows)).build());
}

}  // namespace pumice
