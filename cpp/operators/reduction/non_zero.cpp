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

// Adds the indices of the nonzero elements of input `input_index`, int64[rank, count], using the start of each run from the node's last
// input.
void add_nonzero_indices(LowerContext& node, size_t input_index, int64_t count, const Operand& y) {
  const TensorDesc& x = node.input(input_index);
  Macros macros = make_nonzero_macros(x.dtype, false);
  macros.emplace_back("RANK", std::to_string(x.rank()));
  StepBuilder step(node.kernel("non_zero.comp", DType::float32, macros));
  step.bind("x", dense_input(node, input_index)).bind("starts", node.in(input_index + 2)).bind("y", y);
  std::vector<int64_t> sizes(x.shape);
  sizes.resize(kMaxAxes, 1);
  const int64_t runs = count_non_zero_runs(x.elements());
  step.set("elements", x.elements()).set("runs", runs).set("count", count).set("size", sizes);
  node.add(step.threads(static_cast<uint64_t>(runs)).build());
}

}  // namespace

void lower_count_non_zero(LowerContext& node) {
  const TensorDesc& x = node.input(0);
  CompositeLowering composition(node);
  if (x.elements() == 0) {
    for (const size_t i : {0, 1})
      if (node.has_output(i)) composition.add("ConstantOfShape", {}, {composition.input(0)}, composition.output(i));
    return;
  }
  const int64_t runs = count_non_zero_runs(x.elements());
  const TensorOperand counts = composition.scratch(DType::int32, {runs + 1});
  const TensorOperand starts = node.has_output(1) ? composition.output(1) : composition.scratch(DType::int32, {runs + 1});
  StepBuilder step(node.kernel("non_zero.comp", DType::float32, make_nonzero_macros(x.dtype, true)));
  step.bind("x", dense_input(node, 0)).bind("y", counts.operand).set("elements", x.elements()).set("runs", runs);
  node.add(step.threads(static_cast<uint64_t>(runs) + 1).build());
  add_exclusive_sum(node, counts.operand, starts.operand, runs + 1);
  if (node.has_output(0)) add_strided_copy(node, DType::int32, {{1}, {{1}, {1}}}, {starts.operand, runs}, {node.out(0)});
}

void lower_non_zero(LowerContext& node) {
  const TensorDesc& y = node.output(0);
  if (y.elements() > 0) add_nonzero_indices(node, 0, y.shape[1], node.out(0));
}

void lower_device_compress(LowerContext& node) {
  if (node.output(0).elements() == 0) return;
  CompositeLowering composition(node);
  const int64_t count = node.host(2)->as_int64()[0];
  const TensorOperand indices = composition.scratch(DType::int64, {count}), x = composition.input(0);
  add_nonzero_indices(node, 1, count, indices.operand);
  Attributes attributes;
  attributes.set("axis", node.attributes->integer("axis", 0));
  const bool flat = !node.attributes->has("axis");
  composition.add("Gather", attributes, {flat ? x.reshaped({x.desc.elements()}) : x, indices}, composition.output(0));
}

}  // namespace pumice
