// TensorScatter: rows of a cache made anew.
#include <algorithm>

#include "core/error.h"
#include "operators/index/lowerings.h"
#include "operators/means/strided.h"
#include "operators/row/operator_table.h"

namespace pumice {

void lower_tensor_scatter(LowerContext& node) {
  const TensorDesc &cache = node.input(0), &update = node.input(1);
  if (cache.elements() == 0) return;
  // A copy of whole words, which is left out where the output is the memory of the input.
  const auto words = static_cast<int64_t>((cache.element_bytes() + 3) / 4);
  StepBuilder copy(node.kernel("copy_words.comp", DType::float32, {{"ELEMENT_BITS", std::to_string(bits(cache.dtype)) + "u"}}));
  copy.bind("x", dense_input(node, 0)).bind("y", node.out(0)).set("words", words);
  node.add(copy.threads(static_cast<uint64_t>((words + 3) / 4)).build());
  if (update.elements() == 0) return;
  const Operand from = dense_input(node, 1);
  const int64_t given = node.attributes->integer("axis", -2);
  const auto axis = static_cast<size_t>(given < 0 ? given + cache.rank() : given);
  const auto product = [&](size_t first, size_t last) {
    return element_count(
        {cache.shape.begin() + static_cast<std::ptrdiff_t>(first), cache.shape.begin() + static_cast<std::ptrdiff_t>(last)});
  };
  const int64_t element_bits = bits(cache.dtype), row_bits = product(axis + 1, cache.shape.size()) * element_bits;
  if (element_bits < 8)
    throw UnsupportedError("node '" + std::string(node.node) + "': moving elements of " + std::string(name(cache.dtype)));
  const int64_t piece_bits = row_bits % 32 == 0 && phase_of(node, from) % 4 == 0 ? 32 : element_bits;
  const int64_t inner = row_bits / piece_bits, pieces = update.elements() * element_bits / piece_bits;
  const bool placed = node.has_input(2);
  StepBuilder step(node.kernel("tensor_scatter.comp", DType::float32,
                               {{"BITS", std::to_string(piece_bits)},
                                {"ELEMENT_BITS", std::to_string(element_bits) + "u"},
                                {"PLACED", placed ? "1" : "0"},
                                {"CIRCULAR", node.attributes->text("mode", "linear") == "circular" ? "1" : "0"}}));
  step.bind("x", from).bind("y", node.out(0));
  if (placed) step.bind("firsts", dense_input(node, 2));
  step.set("pieces", pieces).set("middle", product(1, axis)).set("rows", update.shape[axis]).set("inner", inner);
  node.add(step.set("size", cache.shape[axis]).threads(static_cast<uint64_t>(pieces)).build());
}

}  // namespace pumice
