#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/half.h"
#include "graph/passes/passes.h"
#include "operators/table/lowering.h"

namespace pumice {
namespace {

bool is_representable(float number, DType dtype) {
  const auto bits = std::bit_cast<uint32_t>(number);
  if (dtype == DType::bfloat16) return (bits & 0xffffu) == 0;
  return std::bit_cast<uint32_t>(float_from_half(half_from_float(number))) == bits;
}

// Calls `visit` on the elements of a constant in chunks until it returns false. Returns whether all calls returned true.
bool for_each_chunk(const HostTensor& constant, const std::function<bool(std::span<const float>)>& visit) {
  constexpr int64_t kChunkElements = int64_t{1} << 14;
  const int64_t count = constant.desc.elements();
  std::vector<float> numbers(static_cast<size_t>(std::min(kChunkElements, count)));
  for (int64_t begin = 0; begin < count; begin += kChunkElements) {
    const auto run = std::span(numbers).first(static_cast<size_t>(std::min(kChunkElements, count - begin)));
    constant.convert_to(DType::float32, begin, std::as_writable_bytes(run));
    if (!visit(run)) return false;
  }
  return true;
}

// Whether `dtype` represents all elements of the constant exactly.
bool are_elements_representable(const HostTensor& constant, DType dtype) {
  return for_each_chunk(constant, [&](std::span<const float> numbers) {
    return std::ranges::all_of(numbers, [&](float number) { return is_representable(number, dtype); });
  });
}

// Returns the exponent for splitting a constant into fp16 hi + lo; nullopt if its range is too large or an element is not finite. See
// shaders/include/split_fp16.glsl.
std::optional<int> find_split_exponent(const HostTensor& constant) {
  constexpr uint32_t kMagnitudeMask = 0x7fffffffu, kSpecialExponent = 255, kBias = 127;
  constexpr uint32_t kMaxExponentRange = 28, kMinExponent = 32,
                     kMaxExponent = 240;  // maximum exponent range, and limits of the largest exponent
  constexpr int kScaledExponent = 14;     // exponent of the largest element after scaling
  uint32_t largest = 0, smallest = kMagnitudeMask;
  for_each_chunk(constant, [&](std::span<const float> numbers) {
    for (const float number : numbers) {
      const uint32_t size = std::bit_cast<uint32_t>(number) & kMagnitudeMask;
      largest = std::max(largest, size);
      if (size != 0) smallest = std::min(smallest, size);
    }
    return largest >> 23 < kSpecialExponent;
  });
  if (largest == 0) return 0;
  const uint32_t high = largest >> 23, low = smallest >> 23;
  if (high > kMaxExponent || high < kMinExponent || low + kMaxExponentRange < high) return {};
  return static_cast<int>(high) - static_cast<int>(kBias) - kScaledExponent;
}

class WideningCastRemoval {
 public:
  explicit WideningCastRemoval(ProgramGraph& graph) : graph_(graph), from_(graph.values.size(), kAbsent) {}

  void run() {
    for (const ProgramNode& node : graph_.nodes)
      if (is_widening_cast(node)) from_[to_index(node.outputs[0])] = node.inputs[0];
    for (ProgramNode& node : graph_.nodes) {
      if (node.on_host) continue;
      if (node.fp32 && node.row->precision.gemm_inputs != 0) use_16_bit_factors(node);
      for (size_t k = 0; k < node.inputs.size(); ++k)
        if (is_widened_value(node.inputs[k]) && accepts_16_bit(node, k)) node.inputs[k] = from_[to_index(node.inputs[k])];
      if (node.fp32 && node.row->precision.splits_into_fp16 && !node.low_precision_factors && graph_.float_dtype == DType::float16)
        split_weights_into_fp16(node);
    }
    const std::vector<uint32_t> uses = graph_.count_uses();
    std::erase_if(graph_.nodes, [&](const ProgramNode& node) {
      const bool left_out = node.row->casts && is_widened_value(node.outputs[0]) && uses[to_index(node.outputs[0])] == 0;
      if (left_out) graph_.report[node.report].note = "not needed";
      return left_out;
    });
  }

 private:
  // Whether the node is a Cast from the 16-bit float dtype of the program to float32.
  bool is_widening_cast(const ProgramNode& node) const {
    if (!node.row->casts || node.on_host || node.inputs[0] == kAbsent) return false;
    const GraphValue& from = graph_.value(node.inputs[0]);
    return !from.constant && !from.owned && from.dtype == graph_.float_dtype && is_16bit_float(from.dtype) &&
           graph_.value(node.outputs[0]).dtype == DType::float32;
  }

  bool is_widened_value(ValueId value) const {
    return value != kAbsent && to_index(value) < from_.size() && from_[to_index(value)] != kAbsent;
  }

  static bool accepts_16_bit(const ProgramNode& node, size_t input) {
    const bool is_residual = node.has_residual && input == kResidualInput;
    return node.row->precision.mixed_precision ||
           (node.fp32 && (is_residual ? node.row->precision.stores_fp32_or_half : has_bit(node.row->precision.half_inputs, input)));
  }

  void use_16_bit_factors(ProgramNode& node) {
    if (node.attributes.real("alpha", 1) != 1) return;  // alpha is multiplied into the weights before they are stored
    std::vector<ValueId> factors;
    for (size_t k = 0; has_bit(node.row->precision.gemm_inputs, k); ++k) {
      factors.push_back(is_widened_value(node.inputs[k]) ? from_[to_index(node.inputs[k])] : as_16_bit_constant(node.inputs[k]));
      if (factors.back() == kAbsent) return;
    }
    std::ranges::copy(factors, node.inputs.begin());
    node.low_precision_factors = true;
  }

  // Splits the constant weights of a float32 matmul into fp16 hi and lo.
  void split_weights_into_fp16(ProgramNode& node) {
    if (node.attributes.real("alpha", 1) != 1) return;
    const GraphValue &left = graph_.value(node.inputs[0]), &right = graph_.value(node.inputs[1]);
    if (left.constant || left.owned || !right.constant || !is_operator_float(right.dtype)) return;
    if (left.dtype != DType::float16 && left.dtype != DType::float32) return;
    const auto [found, added] = exponents_.try_emplace(node.inputs[1], std::nullopt);
    if (added) found->second = find_split_exponent(*right.constant);
    if (found->second) node.split_fp16 = SplitFp16Params{*found->second, left.dtype == DType::float16};
  }

  // Returns a copy of a constant in the float dtype of the program if that is exact, else kAbsent.
  ValueId as_16_bit_constant(ValueId value) {
    if (!graph_.value(value).constant || !is_operator_float(graph_.value(value).dtype)) return kAbsent;
    const auto [found, added] = constants_.try_emplace(value, kAbsent);
    if (added && are_elements_representable(*graph_.value(value).constant, graph_.float_dtype)) {
      GraphValue low_precision_copy = graph_.value(value);
      low_precision_copy.fp32 = false;
      found->second = graph_.add_value(std::move(low_precision_copy));
    }
    return found->second;
  }

  ProgramGraph& graph_;
  std::vector<ValueId> from_;                        // for each value: the input of the widening cast that produces it, or kAbsent
  std::map<ValueId, ValueId> constants_;             // constant -> its exact copy in the float dtype of the program
  std::map<ValueId, std::optional<int>> exponents_;  // constant -> its exponent for the split into fp16 hi and lo
};

}  // namespace

void remove_widening_casts(ProgramGraph& graph) {
  if (graph.float_dtype == DType::float32) return;
  WideningCastRemoval(graph).run();
}

}  // namespace pumice
