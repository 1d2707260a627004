#include "operators/table/flop.h"

#include "operators/table/operator_row.h"

namespace pumice {
namespace {

uint64_t count_elements(const TensorDesc& desc) {
  return static_cast<uint64_t>(desc.elements());
}

}  // namespace

uint64_t count_gemm_flops(const LowerContext& node) {
  const Shape& shape = node.input(0).shape;
  if (shape.empty()) return 0;
  const bool transposed = node.attributes && node.attributes->integer("transA", 0) != 0 && shape.size() >= 2;
  return 2 * count_elements(node.output(0)) * static_cast<uint64_t>(transposed ? shape[shape.size() - 2] : shape.back());
}

uint64_t count_attention_flops(const LowerContext& node, int64_t keys) {
  return 2 * (count_elements(node.input(0)) + count_elements(node.output(0))) * static_cast<uint64_t>(keys);
}

uint64_t count_node_flops(const LowerContext& node) {
  if (!node.row || !node.has_output(0) || !node.has_input(0)) return 0;
  if (node.row->flop) return node.row->flop(node);
  switch (node.row->skeleton) {
    case KernelKind::map:
      return count_elements(node.output(0));
    case KernelKind::reduce:
    case KernelKind::scan:
    case KernelKind::window:
      return count_elements(node.input(0));
    default:
      return 0;
  }
}

}  // namespace pumice
