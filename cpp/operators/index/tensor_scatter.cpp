// Lowers TensorScatter, which overwrites rows of a KV cache.
#include <algorithm>

#include "core/error.h"
#include "operators/common/strided_copy.h"
#include "operators/index/lowerings.h"
#include "operators/table/operator_table.h"

namespace pumice {
namespace {

// New rows of a cache, [batch, middle, rows, inner], with strides in elements; inner elements are contiguous.
struct CacheUpdate {
  Operand operand;
  int64_t batch_stride, middle_stride, row_stride;
};

// Returns the update as a strided view. For a cache [batch, heads, rows, size] it is read in place, because new keys and values are often
// slices of a fused QKV projection.
CacheUpdate get_cache_update(LowerContext& node, size_t axis) {
  const TensorDesc& update = node.input(1);
  if (update.rank() == 4 && axis == 2 && (update.strides[3] == 1 || update.shape[3] == 1))
    return {node.input_operand(1), update.strides[0], update.strides[1], update.strides[2]};
  const Operand operand = get_contiguous_input(node, 1);
  const Shape& shape = update.shape;
  const auto from = shape.begin() + static_cast<std::ptrdiff_t>(axis);
  const int64_t inner = element_count({from + 1, shape.end()}), head_elements = update.shape[axis] * inner;
  return {operand, element_count({shape.begin() + 1, from}) * head_elements, head_elements, inner};
}

}  // namespace

void lower_tensor_scatter(LowerContext& node) {
  const TensorDesc &cache = node.input(0), &update = node.input(1);
  if (cache.elements() == 0) return;
  // Copy the cache word by word. This step is omitted if the output aliases the input.
  const auto words = static_cast<int64_t>((cache.element_bytes() + 3) / 4);
  StepBuilder copy(node.kernel("copy_words.comp", DType::float32, {{"ELEMENT_BITS", std::to_string(bits(cache.dtype)) + "u"}}));
  copy.bind("x", get_contiguous_input(node, 0)).bind("y", node.output_operand(0)).set("words", words);
  node.add(copy.set_threads(static_cast<uint64_t>((words + 3) / 4)).build());
  if (update.elements() == 0) return;
  const int64_t declared_axis = node.attributes->integer("axis", -2);
  const auto axis = static_cast<size_t>(declared_axis < 0 ? declared_axis + cache.rank() : declared_axis);
  const CacheUpdate from = get_cache_update(node, axis);
  const auto count_elements = [&](size_t first, size_t last) {
    return element_count(
        {cache.shape.begin() + static_cast<std::ptrdiff_t>(first), cache.shape.begin() + static_cast<std::ptrdiff_t>(last)});
  };
  const int64_t element_bits = bits(cache.dtype), row_bits = count_elements(axis + 1, cache.shape.size()) * element_bits;
  if (element_bits < 8)
    throw UnsupportedError("node '" + std::string(node.node) + "': moving elements of " + std::string(name(cache.dtype)));
  const bool whole_words =
      (from.batch_stride | from.middle_stride | from.row_stride) * element_bits % 32 == 0 && get_misalignment(node, from.operand) % 4 == 0;
  const int64_t piece_bits = row_bits % 32 == 0 && whole_words ? 32 : element_bits;
  const int64_t inner = row_bits / piece_bits, pieces = update.elements() * element_bits / piece_bits;
  const bool has_indices = node.has_input(2);
  StepBuilder step(node.kernel("tensor_scatter.comp", DType::float32,
                               {{"BITS", std::to_string(piece_bits)},
                                {"ELEMENT_BITS", std::to_string(element_bits) + "u"},
                                {"HAS_WRITE_INDICES", has_indices ? "1" : "0"},
                                {"CIRCULAR", node.attributes->text("mode", "linear") == "circular" ? "1" : "0"}}));
  step.bind("x", from.operand).bind("y", node.output_operand(0));
  if (has_indices) step.bind("write_indices", get_contiguous_input(node, 2));
  step.set("pieces", pieces).set("middle", count_elements(1, axis)).set("rows", update.shape[axis]).set("inner", inner);
  const auto in_pieces = [&](int64_t elements) { return elements * element_bits / piece_bits; };
  step.set("x_batch_stride", in_pieces(from.batch_stride))
      .set("x_middle_stride", in_pieces(from.middle_stride))
      .set("x_row_stride", in_pieces(from.row_stride));
  node.add(step.set("size", cache.shape[axis]).set_threads(static_cast<uint64_t>(pieces)).build());
}

}  // namespace pumice
