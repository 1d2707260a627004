#include "operators/compiled/index_check.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/number_format.h"
#include "operators/common/composite_lowering.h"
#include "operators/common/strided_copy.h"

namespace pumice {
namespace {

constexpr int64_t kUnlimitedWord = 0xffffffff, kNoIndexWord = 0xfffffffe;  // kUnlimited and kNotAnIndex in the kernel

void infer_index_check_shape(ShapeContext& node) {
  node.output(0, DType::int32, {4});
}

void lower_index_check(LowerContext& node) {
  std::vector<Shape> shapes;
  for (const auto& input : node.inputs) shapes.push_back(input ? input->shape : Shape{});
  const IndexBounds bounds = find_operator(node.attributes->text(kCheckedOperator))->indices(*node.attributes, shapes);
  CompositeLowering parts(node);
  const TensorOperand y = parts.output(0);
  parts.add_operator("ConstantOfShape", {}, {y}, y);
  if (!bounds.has_limits() || node.host_tensor(bounds.input)) return;  // no index can be out of range, or the host has checked the indices
  const TensorDesc& indices = node.input(bounds.input);
  if (indices.elements() == 0) return;
  const Operand index_operand = get_contiguous_input(node, bounds.input);
  const bool is_real = is_float(indices.dtype);
  std::vector<int64_t> sizes;
  for (const int64_t size : bounds.sizes) sizes.push_back(size == kUnlimited ? kUnlimitedWord : size < 0 ? kNoIndexWord : size);
  const Macros shared = {{"TUPLE", std::to_string(sizes.size()) + "u"}, {"FLOAT_INDICES", is_real ? "1" : "0"}};
  for (const bool stores_index : {false, true}) {
    Macros macros = shared;
    macros.emplace_back("STORE_INDEX", stores_index ? "1" : "0");
    StepBuilder step(node.kernel("index_check.comp", is_real ? indices.dtype : DType::int32, macros));
    step.bind("indices", index_operand)
        .bind("y", y.operand)
        .set("elements", indices.elements())
        .set("index_words", bits(indices.dtype) / 32);
    step.set("from_end", bounds.from_end ? 1 : 0).set("size", sizes);
    node.add(step.set_threads(stores_index ? 1 : static_cast<uint64_t>(indices.elements())).build());
  }
}

}  // namespace

const OperatorRow& get_index_check_row() {
  static const OperatorRow row = [] {
    OperatorRow check_row;
    check_row.name = "IndexCheck";
    check_row.skeleton = KernelKind::scan;
    check_row.shape = infer_index_check_shape;
    check_row.lower = lower_index_check;
    return check_row;
  }();
  return row;
}

IndexCheckResult decode_index_check(const std::byte* result_bytes, bool is_real) {
  std::array<uint32_t, 4> words;
  std::memcpy(words.data(), result_bytes, sizeof words);
  IndexCheckResult result{words[1], static_cast<int64_t>(~words[0]), static_cast<int64_t>(uint64_t{words[3]} << 32 | words[2]), {}};
  result.text = std::to_string(result.index);
  if (!is_real) return result;
  const auto value = static_cast<double>(std::bit_cast<float>(words[2]));
  constexpr double kMin = -9.2e18, kMax = 9.2e18;  // range of int64
  result.index = std::isnan(value) ? std::numeric_limits<int64_t>::min() : static_cast<int64_t>(std::clamp(value, kMin, kMax));
  result.text = format_general(value);
  return result;
}

}  // namespace pumice
