// Lowers TopK and argsort. Short rows use a rank sort: for each element, the kernel counts the smaller elements. Longer rows are sorted by
// workgroups in blocks; rows shorter than a block share one. If k is small, the first k elements of all blocks are sorted again until one
// block is left. Otherwise a bitonic network merges the sorted blocks; after each merge, every run is ascending.
#include "operators/sort/sort.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/error.h"
#include "core/rounding.h"
#include "operators/common/strided_copy.h"
#include "operators/sort/lowerings.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

constexpr int64_t kBlock = 1024;  // BLOCK in sort.comp

// Returns the maximum row size for the rank sort. It is larger on software devices, which have to switch between all invocations at every
// barrier.
int64_t get_max_rank_sort_size(const LowerContext& node) {
  return node.context->info().kind == DeviceKind::software ? 256 : 32;
}

// Pairs of sort key and index in scratch memory, in rows of `pitch` pairs.
struct KeyIndexPairs {
  Operand keys, indices;
  int64_t pitch = 0;
};

int64_t count_blocks(int64_t size) {
  return ceil_div(size, kBlock);
}

struct SortLowering {
  LowerContext& node;
  DType dtype;
  int64_t rows, count, inner;
  bool largest;

  Macros make_sort_macros(int stage, bool from_x) const {
    const bool half = is_16bit_float(dtype);
    return {{"STAGE", std::to_string(stage)},
            {"BITS", std::to_string(bits(dtype))},
            {"KIND", is_float(dtype)            ? "2"
                     : is_signed_integer(dtype) ? "1"
                                                : "0"},
            {"UNPACK(v)", half && dtype == DType::bfloat16 ? "pm_bf16_unpack2(v).x" : "pm_fp16_unpack2(v).x"},
            {"LARGEST", largest ? "true" : "false"},
            {"FROM_X", from_x ? "1" : "0"}};
  }

  KeyIndexPairs allocate_pairs(int64_t pitch) const {
    const auto elements = static_cast<uint64_t>(rows * pitch);
    return {node.add_temporary(elements * (bits(dtype) == 64 ? 8 : 4)), node.add_temporary(elements * 4), pitch};
  }

  // Sorts blocks of `from`, or of the input `x` if `from` is null, and keeps the first `kept` pairs of each. `num_blocks`: blocks per row.
  KeyIndexPairs sort_blocks(const Operand& x, const KeyIndexPairs* from, int64_t kept, int64_t num_blocks) const {
    const int64_t size = from ? from->pitch : count;
    const auto block = std::min<int64_t>(kBlock, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size))));
    const KeyIndexPairs result = allocate_pairs(num_blocks * kept);
    StepBuilder step(node.kernel("sort.comp", DType::float32, make_sort_macros(0, !from)));
    if (from)
      step.bind("x_keys", from->keys).bind("x_indices", from->indices);
    else
      step.bind("x", x).set("inner", inner);
    step.bind("y_keys", result.keys).bind("y_indices", result.indices).set("rows", rows).set("count", size).set("blocks", num_blocks);
    step.set("block", block).set("kept", kept).set("pitch", result.pitch);
    node.add(step.set_workgroups(static_cast<uint64_t>(ceil_div(rows * num_blocks, kBlock / block))).build());
    return result;
  }

  // Sorts short rows with the rank sort. Returns only the first `k` indices of each row, without keys.
  KeyIndexPairs rank_sort(const Operand& x, int64_t k) const {
    const KeyIndexPairs result{{}, node.add_temporary(static_cast<uint64_t>(rows * k) * 4), k};
    StepBuilder step(node.kernel("sort.comp", DType::float32, make_sort_macros(3, true)));
    step.bind("x", x).bind("y_indices", result.indices).set("rows", rows).set("count", count).set("kept", k).set("inner", inner);
    node.add(step.set_threads(static_cast<uint64_t>(rows * count)).build());
    return result;
  }

  void merge_blocks(const KeyIndexPairs& pairs) const {
    for (int64_t half = kBlock; half < pairs.pitch; half *= 2) {
      for (int64_t stride = half; stride >= kBlock; stride /= 2) {
        StepBuilder step(node.kernel("sort.comp", DType::float32, make_sort_macros(1, false)));
        step.bind("y_keys", pairs.keys).bind("y_indices", pairs.indices).set("rows", rows).set("pitch", pairs.pitch);
        step.set("stride", stride).set("mirror", stride == half ? 1 : 0);
        node.add(step.set_threads(static_cast<uint64_t>(rows * pairs.pitch / 2)).build());
      }
      StepBuilder step(node.kernel("sort.comp", DType::float32, make_sort_macros(2, false)));
      step.bind("y_keys", pairs.keys).bind("y_indices", pairs.indices).set("rows", rows).set("pitch", pairs.pitch);
      node.add(step.set_workgroups(static_cast<uint64_t>(rows * pairs.pitch / kBlock)).build());
    }
  }

  KeyIndexPairs sort_top_k(const Operand& x, int64_t k) const {
    if (count <= get_max_rank_sort_size(node)) return rank_sort(x, k);
    if (2 * k > kBlock && count > kBlock) {
      // Sort all pairs. Each row is padded to a power of two with pairs that sort last.
      const auto num_blocks = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count_blocks(count))));
      const KeyIndexPairs all = sort_blocks(x, nullptr, kBlock, num_blocks);
      merge_blocks(all);
      return all;
    }
    KeyIndexPairs sorted_pairs = sort_blocks(x, nullptr, k, count_blocks(count));
    while (sorted_pairs.pitch > k) sorted_pairs = sort_blocks(x, &sorted_pairs, k, count_blocks(sorted_pairs.pitch));
    return sorted_pairs;
  }
};

void add_topk_output(LowerContext& node, size_t i, const KeyIndexPairs& sorted_pairs, const SortLowering& sort, const Operand& x,
                     int64_t k) {
  add_contiguous_output(node, i, "topk_gather.comp", {{"WRITE_INDICES", std::to_string(i)}}, [&](StepBuilder& step) {
    step.bind("order", sorted_pairs.indices).set("inner", sort.inner).set("size", k).set("pitch", sorted_pairs.pitch);
    if (i == 0) step.bind("x", x).set("x_size", sort.count);
  });
}

// Lowers TopK along an axis of size 1: copies the elements and sets all indices to 0.
void lower_single_element_topk(LowerContext& node) {
  const TensorDesc& x = node.input(0);
  if (node.has_output(0))
    add_strided_copy(node, x.dtype, {x.shape, {x.strides, node.output(0).strides}}, {node.input_operand(0)}, {node.output_operand(0)});
  if (node.has_output(1))
    add_contiguous_output(node, 1, "fill.comp", {{"DIAGONAL", "0"}},
                          [](StepBuilder& step) { step.set("value", std::array<int64_t, 2>{}); });
}

}  // namespace

Operand add_argsort(LowerContext& node, const Operand& keys, int64_t count) {
  return SortLowering{node, DType::uint32, 1, count, 1, false}.sort_top_k(keys, count).indices;
}

void lower_topk(LowerContext& node) {
  const TensorDesc& x = node.input(0);
  const int64_t requested_axis = node.attributes->integer("axis");
  const auto axis = static_cast<size_t>(requested_axis < 0 ? requested_axis + x.rank() : requested_axis);
  const size_t first_output = node.has_output(0) ? 0 : 1;
  const int64_t k = node.output(first_output).shape[axis], count = x.shape[axis];
  if (node.output(first_output).elements() == 0) return;
  if (count == 1) return lower_single_element_topk(node);
  const SortLowering sort{
      node, x.dtype, x.elements() / count, count, packed_strides(x.shape)[axis], node.attributes->integer("largest") != 0};
  const Operand source = get_contiguous_input(node, 0);
  const KeyIndexPairs sorted_pairs = sort.sort_top_k(source, k);
  for (size_t i = 0; i < 2; ++i)
    if (node.has_output(i)) add_topk_output(node, i, sorted_pairs, sort, source, k);
}

}  // namespace pumice
