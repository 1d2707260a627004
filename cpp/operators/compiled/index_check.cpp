#include "operators/compiled/index_check.h"

#include <array>
#include <cstring>

#include "operators/means/compose.h"
#include "operators/means/strided.h"

namespace pumice {
namespace {

void shape_of_index_check(ShapeContext& node) {
  node.output(0, DType::int32, {4});
}

void lower_index_check(LowerContext& node) {
  std::vector<Shape> shapes;
  for (const auto& input : node.inputs) shapes.push_back(input ? input->shape : Shape{});
  const IndexBounds bounds = find_operator(node.attributes->text(kCheckedOperator))->indices(*node.attributes, shapes);
  Composition parts(node);
  const Piece y = parts.output(0);
  parts.add("ConstantOfShape", {}, {y}, y);
  if (!bounds.any() || node.host(bounds.input)) return;  // none is out of range, or the host has checked them
  const TensorDesc& indices = node.input(bounds.input);
  if (indices.elements() == 0) return;
  const Operand given = dense_input(node, bounds.input);
  for (const bool tells : {false, true}) {
    StepBuilder step(node.kernel("index_check.comp", DType::int32,
                                 {{"TUPLE", std::to_string(bounds.sizes.size()) + "u"}, {"TELLS", tells ? "1" : "0"}}));
    step.bind("indices", given).bind("y", y.operand).set("elements", indices.elements()).set("index_words", bits(indices.dtype) / 32);
    step.set("from_end", bounds.from_end ? 1 : 0).set("size", bounds.sizes);
    node.add(step.threads(tells ? 1 : static_cast<uint64_t>(indices.elements())).build());
  }
}

}  // namespace

const OperatorRow& index_check_row() {
  static const OperatorRow row = [] {
    OperatorRow made;
    made.name = "IndexCheck";
    made.skeleton = Skeleton::scan;
    made.shape = shape_of_index_check;
    made.lower = lower_index_check;
    return made;
  }();
  return row;
}

FoundIndices found_indices(const std::byte* made) {
  std::array<uint32_t, 4> words;
  std::memcpy(words.data(), made, sizeof words);
  return {words[1], static_cast<int64_t>(~words[0]), static_cast<int64_t>(uint64_t{words[3]} << 32 | words[2])};
}

}  // namespace pumice
