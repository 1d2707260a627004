#include "operators/row/flop.h"

#include <algorithm>
#include <string_view>

#include "operators/row/lowering.h"
#include "operators/row/operator_row.h"

namespace pumice {
namespace {

uint64_t elements_of(const TensorDesc& desc) {
  return static_cast<uint64_t>(desc.elements());
}

// The filters are the first input behind the image that has its rank: quantised convolutions have scales in between.
uint64_t convolution(const LowerContext& node, bool transposed) {
  const TensorDesc& image = node.input(0);
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (!node.has_input(i) || node.input(i).shape.size() != image.shape.size()) continue;
    const TensorDesc& filters = node.input(i);
    const auto first = static_cast<uint64_t>(std::max<int64_t>(filters.shape.front(), 1));
    uint64_t made = elements_of(transposed ? image : node.output(0));
    if (node.attributes)
      for (const int64_t size : node.attributes->integers("pool_shape")) made *= static_cast<uint64_t>(size);  // of which one is kept
    return 2 * made * (elements_of(filters) / first);
  }
  return 0;
}

// The terms of one result lie on the last axis of the first matrix, or on the one before where that is transposed.
uint64_t product(const LowerContext& node) {
  const Shape& shape = node.input(0).shape;
  if (shape.empty()) return 0;
  const bool transposed = node.attributes && node.attributes->integer("transA") != 0 && shape.size() >= 2;
  return 2 * elements_of(node.output(0)) * static_cast<uint64_t>(transposed ? shape[shape.size() - 2] : shape.back());
}

// Two products over all keys, where keys and values have as many elements.
uint64_t attention(const LowerContext& node) {
  if (!node.has_input(1)) return 0;
  const Shape& keys = node.input(1).shape;
  return keys.size() < 3 ? 0 : 4 * elements_of(node.output(0)) * static_cast<uint64_t>(keys[keys.size() - 2]);
}

uint64_t contraction(const LowerContext& node) {
  const std::string_view name = node.row->name;
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (has("Attention")) return attention(node);
  if (has("Conv")) return convolution(node, has("Transpose"));
  return has("MatMul") || has("Gemm") || has("Product") ? product(node) : 0;
}

}  // namespace

uint64_t node_flop(const LowerContext& node) {
  if (!node.row || !node.has_output(0) || !node.has_input(0)) return 0;
  switch (node.row->skeleton) {
    case Skeleton::contraction:
      return contraction(node);
    case Skeleton::map:
      return elements_of(node.output(0));
    case Skeleton::reduce:
    case Skeleton::scan:
    case Skeleton::window:
      return elements_of(node.input(0));
    default:
      return node.row->name.find("Attention") != std::string_view::npos ? attention(node) : 0;
  }
}

}  // namespace pumice
