// Counts nonzero elements and finds their indices. The host reads the count to determine the output size.
#include "operators/reduction/non_zero.h"

#include "operators/common/composite_lowering.h"
#include "operators/reduction/lowerings.h"
#include "operators/reduction/reduce.h"

namespace pumice {
namespace {

constexpr size_t kMaxAxes = 8;

Macros make_nonzero_macros(DType dtype, bool counts) {
  const int64_t width = bits(dtype);
  const char* sign = !is_float(dtype) ? "0u" : width == 16 ? "0x8000u" : "0x80000000u";
  return {{"BITS", std::to_string(width)}, {"SIGN", sign}, {"RUN", std::to_string(kNonZeroRun) + "u"}, {"COUNTS", counts ? "1" : "0"}};
}

// Adds the step that writes the indices of the nonzero elements of input `input_index` to y, int64[rank, count]. The last input of the node
// contains the output offset of each run.
void add_nonzero_indices(LowerContext& node, size_t input_index, int64_t count, const Operand& y) {
  const TensorDesc& x = node.input(input_index);
  Macros macros = make_nonzero_macros(x.dtype, false);
  macros.emplace_back("RANK", std::to_string(x.rank()));
  StepBuilder step(node.kernel("non_zero.comp", DType::float32, macros));
  step.bind("x", get_contiguous_input(node, input_index)).bind("starts", node.input_operand(input_index + 2)).bind("y", y);
  std::vector<int64_t> sizes(x.shape);
  sizes.resize(kMaxAxes, 1);
  const int64_t runs = count_non_zero_runs(x.elements());
  step.set("elements", x.elements()).set("runs", runs).set("count", count).set("size", sizes);
  node.add(step.set_threads(static_cast<uint64_t>(runs)).build());
}

}  // namespace

void lower_count_non_zero(LowerContext& node) {
  const TensorDesc& x = node.input(0);
  CompositeLowering composition(node);
  if (x.elements() == 0) {
    for (const size_t i : {0, 1})
      if (node.has_output(i)) composition.add_operator("ConstantOfShape", {}, {composition.input(0)}, composition.output(i));
    return;
  }
  const int64_t runs = count_non_zero_runs(x.elements());
  const TensorOperand counts = composition.allocate_scratch(DType::int32, {runs + 1});
  const TensorOperand starts = node.has_output(1) ? composition.output(1) : composition.allocate_scratch(DType::int32, {runs + 1});
  StepBuilder step(node.kernel("non_zero.comp", DType::float32, make_nonzero_macros(x.dtype, true)));
  step.bind("x", get_contiguous_input(node, 0)).bind("y", counts.operand).set("elements", x.elements()).set("runs", runs);
  node.add(step.set_threads(static_cast<uint64_t>(runs) + 1).build());
  add_exclusive_sum(node, counts.operand, starts.operand, runs + 1);
  if (node.has_output(0)) add_strided_copy(node, DType::int32, {{1}, {{1}, {1}}}, {starts.operand, runs}, {node.output_operand(0)});
}

void lower_non_zero(LowerContext& node) {
  const TensorDesc& y = node.output(0);
  if (y.elements() > 0) add_nonzero_indices(node, 0, y.shape[1], node.output_operand(0));
}

void lower_device_compress(LowerContext& node) {
  if (node.output(0).elements() == 0) return;
  CompositeLowering composition(node);
  const int64_t count = node.host_tensor(2)->as_int64()[0];
  const TensorOperand indices = composition.allocate_scratch(DType::int64, {count}), x = composition.input(0);
  add_nonzero_indices(node, 1, count, indices.operand);
  Attributes attributes;
  attributes.set("axis", node.attributes->integer("axis", 0));
  const bool flat = !node.attributes->has("axis");
  composition.add_operator("Gather", attributes, {flat ? x.reshaped({x.desc.elements()}) : x, indices}, composition.output(0));
}

}  // namespace pumice
