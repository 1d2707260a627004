// GEMM with a matrix of few columns, followed by a row-wise Softmax.
#include <algorithm>
#include <bit>

#include "core/rounding.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/mixed_precision.h"
#include "operators/conv_gemm/conv_gemm_dispatch.h"
#include "operators/conv_gemm/lowerings.h"
#include "operators/conv_gemm/weight_packing.h"

namespace pumice {
namespace {

constexpr int64_t kSoftmaxGroup = 256;  // invocations per workgroup
enum GemmSoftmaxInput : size_t { kA, kB, kBias };
enum GemmSoftmaxOutput : size_t { kProbabilities, kProduct };

bool is_transposed(const NodeContext& node) {
  return node.attributes->integer("transB", 0) != 0;
}

WeightView view_weights(const NodeContext& node, const TensorDesc& b) {
  const bool transposed = is_transposed(node);
  const int64_t k = b.shape[transposed ? 1 : 0], n = b.shape[transposed ? 0 : 1];
  return {1, n, k, 1, k * n, transposed ? k : 1, transposed ? 1 : n, 1};
}

// Whether to use the fused kernel: barriers are cheap on this device, and reading the matrix again for every row costs less than a second
// dispatch.
bool prefers_fused_softmax(const LowerContext& node) {
  constexpr int64_t kMaxRead = 1 << 22;  // maximum number of matrix elements that all workgroups read in total
  const int64_t read = node.input(kA).shape[0] * node.input(kB).elements();
  return !node.prefers_cpu_kernels() && node.max_invocations() >= kSoftmaxGroup && read <= kMaxRead;
}

// Lowers to separate GEMM and Softmax kernels.
void lower_gemm_and_softmax(LowerContext& node) {
  const TensorDesc &x = node.input(kA), &y = node.output(kProbabilities);
  Operand logits = node.has_output(kProduct) ? node.output_operand(kProduct) : node.add_temporary(y.bytes());
  logits.element_bits = static_cast<uint32_t>(bits(y.dtype));
  ConvGemmParams c = make_gemm_params(make_matrix_view(x.shape[0], x.shape[1], x.strides[0], x.strides[1]),
                                      view_weights(node, node.input(kB)), make_matrix_view(y.shape[0], y.shape[1], y.shape[1], 1));
  const Operand left = prepare_gemm_input(node, c);
  add_conv_gemm(node, c, left, node.get_packed_input(kB), get_packed_bias(node), logits);
  Attributes along_rows;
  along_rows.set("axis", int64_t{-1});
  CompositeLowering(node).add_operator("Softmax", along_rows, {{y, logits}}, {y, node.output_operand(kProbabilities)});
}

}  // namespace

bool pack_matmul_softmax(const PackContext& node, size_t input, PackedWeight& packed) {
  if (input == kB) pack_weights(node, input, view_weights(node, node.input(input)), 1, packed);
  if (input == kBias) pack_as_float32(node, input, 1, packed);
  return input == kB || input == kBias;
}

void lower_matmul_softmax(LowerContext& node) {
  const TensorDesc &x = node.input(kA), &y = node.output(kProbabilities);
  if (y.elements() == 0) return;
  if (!prefers_fused_softmax(node)) return lower_gemm_and_softmax(node);
  const int64_t rows = x.shape[0], k_size = x.shape[1], columns = y.shape[1];
  const auto across = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(round_up(columns, 8) / 4)));
  const int64_t k_threads = kSoftmaxGroup / across, partial_sums = kSoftmaxGroup / (across * 4);
  node.check_loop_limit(ceil_div(k_size, k_threads) * 3 + k_threads / partial_sums + partial_sums + 2 * columns);
  const MixedPrecisionArrays arrays = make_mixed_precision_arrays({{"X", x.dtype}, {"W", node.float_dtype}, {"Y", y.dtype}});
  Macros macros = {{"HAS_BIAS", node.has_input(kBias) ? "1" : "0"},
                   {"HAS_PRODUCT", node.has_output(kProduct) ? "1" : "0"},
                   {"EPILOGUE(x)", node.epilogue()}};
  arrays.append_to(macros);
  StepBuilder step(node.kernel("gemm_softmax.comp", arrays.storage, macros, {{"INVOCATIONS", kSoftmaxGroup}, {"THREADS_PER_ROW", across}}));
  step.bind("x", node.input_operand(kA)).bind("w", node.get_packed_input(kB)).bind("y", node.output_operand(kProbabilities));
  if (node.has_input(kBias)) step.bind("b", node.get_packed_input(kBias));
  if (node.has_output(kProduct)) step.bind("product", node.output_operand(kProduct));
  step.set("rows", rows).set("k_size", k_size).set("columns", columns);
  step.set("x_stride_row", x.strides[0]).set("x_stride_column", x.strides[1]);
  node.report_additions(std::max(ceil_div(k_size, k_threads) + k_threads / partial_sums + partial_sums + 2, columns));
  node.add(step.set_workgroups(static_cast<uint64_t>(rows)).build());
}

}  // namespace pumice
