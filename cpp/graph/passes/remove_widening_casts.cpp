#include "graph/passes/remove_widening_casts.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/half.h"
#include "operators/table/lowering.h"

namespace pumice {
namespace {

bool is_exact(float number, DType dtype) {
  const auto bits = std::bit_cast<uint32_t>(number);
  if (dtype == DType::bfloat16) return (bits & 0xffffu) == 0;
  return std::bit_cast<uint32_t>(float_from_half(half_from_float(number))) == bits;
}

// Calls `look` on a constant's elements in chunks until it returns false; returns true if it never did.
bool for_each_run(const HostTensor& constant, const std::function<bool(std::span<const float>)>& look) {
  constexpr int64_t kRun = int64_t{1} << 14;
  const int64_t count = constant.desc.elements();
  std::vector<float> numbers(static_cast<size_t>(std::min(kRun, count)));
  for (int64_t begin = 0; begin < count; begin += kRun) {
    const auto run = std::span(numbers).first(static_cast<size_t>(std::min(kRun, count - begin)));
    constant.convert_to(DType::float32, begin, std::as_writable_bytes(run));
    if (!look(run)) return false;
  }
  return true;
}

// Whether all elements of the constant are exact in `dtype`.
bool holds(const HostTensor& constant, DType dtype) {
  return for_each_run(constant, [&](std::span<const float> numbers) {
    return std::ranges::all_of(numbers, [&](float number) { return is_exact(number, dtype); });
  });
}

// Returns the exponent for splitting a constant into fp16 hi + lo; nullopt if its range is too large or an element is not finite. See
// shaders/include/split_fp16.glsl.
std::optional<int> exponent_of_halves(const HostTensor& constant) {
  constexpr uint32_t kAbsolute = 0x7fffffffu, kSpecial = 255, kBias = 127;
  constexpr uint32_t kApart = 28, kLeast = 32, kMost = 240;  // maximum exponent range; limits of the largest exponent
  constexpr int kScaled = 14;                                // exponent of the largest element after scaling
  uint32_t largest = 0, least = kAbsolute;
  for_each_run(constant, [&](std::span<const float> numbers) {
    for (const float number : numbers) {
      const uint32_t size = std::bit_cast<uint32_t>(number) & kAbsolute;
      largest = std::max(largest, size);
      if (size != 0) least = std::min(least, size);
    }
    return largest >> 23 < kSpecial;
  });
  if (largest == 0) return 0;
  const uint32_t high = largest >> 23, low = least >> 23;
  if (high > kMost || high < kLeast || low + kApart < high) return {};
  return static_cast<int>(high) - static_cast<int>(kBias) - kScaled;
}

class NarrowReads {
 public:
  explicit NarrowReads(ProgramGraph& graph) : graph_(graph), from_(graph.values.size(), kAbsent) {}

  void run() {
    for (const ProgramNode& node : graph_.nodes)
      if (widens(node)) from_[index(node.outputs[0])] = node.inputs[0];
    for (ProgramNode& node : graph_.nodes) {
      if (node.on_host) continue;
      if (node.wide && node.row->factors != 0) read_factors(node);
      for (size_t k = 0; k < node.inputs.size(); ++k)
        if (is_cast(node.inputs[k]) && takes_narrow(node, k)) node.inputs[k] = from_[index(node.inputs[k])];
      if (node.wide && node.row->splits_factors && !node.narrow_factors && graph_.float_dtype == DType::float16) split_factors(node);
    }
    const std::vector<uint32_t> uses = graph_.uses();
    std::erase_if(graph_.nodes, [&](const ProgramNode& node) {
      const bool left_out = node.row->casts && is_cast(node.outputs[0]) && uses[index(node.outputs[0])] == 0;
      if (left_out) graph_.report[node.report].note = "not needed";
      return left_out;
    });
  }

 private:
  // Whether the node is a Cast from the program's 16-bit floats to float32.
  bool widens(const ProgramNode& node) const {
    if (!node.row->casts || node.on_host || node.inputs[0] == kAbsent) return false;
    const GraphValue& from = graph_.value(node.inputs[0]);
    return !from.constant && !from.owned && from.dtype == graph_.float_dtype && is_half_width(from.dtype) &&
           graph_.value(node.outputs[0]).dtype == DType::float32;
  }

  bool is_cast(ValueId value) const { return value != kAbsent && index(value) < from_.size() && from_[index(value)] != kAbsent; }

  static bool takes_narrow(const ProgramNode& node, size_t input) {
    const bool is_residual = node.has_residual && input == kResidualInput;
    return node.row->mixes_floats || (node.wide && (is_residual ? node.row->stores_either : has_bit(node.row->narrow_inputs, input)));
  }

  void read_factors(ProgramNode& node) {
    if (node.attributes.real("alpha", 1) != 1) return;  // alpha scales the weights before they are stored
    std::vector<ValueId> factors;
    for (size_t k = 0; has_bit(node.row->factors, k); ++k) {
      factors.push_back(is_cast(node.inputs[k]) ? from_[index(node.inputs[k])] : narrow_constant(node.inputs[k]));
      if (factors.back() == kAbsent) return;
    }
    std::ranges::copy(factors, node.inputs.begin());
    node.narrow_factors = true;
  }

  // Splits the constant second factor of a float32 product into fp16 hi and lo.
  void split_factors(ProgramNode& node) {
    if (node.attributes.real("alpha", 1) != 1) return;
    const GraphValue &left = graph_.value(node.inputs[0]), &right = graph_.value(node.inputs[1]);
    if (left.constant || left.owned || !right.constant || !is_working_float(right.dtype)) return;
    if (left.dtype != DType::float16 && left.dtype != DType::float32) return;
    const auto [found, added] = exponents_.try_emplace(node.inputs[1], std::nullopt);
    if (added) found->second = exponent_of_halves(*right.constant);
    if (found->second) node.halves = HalvesOfFactors{*found->second, left.dtype == DType::float16};
  }

  // Returns a copy of a constant in the program's float dtype if that is exact, else kAbsent.
  ValueId narrow_constant(ValueId value) {
    if (!graph_.value(value).constant || !is_working_float(graph_.value(value).dtype)) return kAbsent;
    const auto [found, added] = constants_.try_emplace(value, kAbsent);
    if (added && holds(*graph_.value(value).constant, graph_.float_dtype)) {
      GraphValue made = graph_.value(value);
      made.wide = false;
      found->second = graph_.add_value(std::move(made));
    }
    return found->second;
  }

  ProgramGraph& graph_;
  std::vector<ValueId> from_;                        // for each value: operand of the cast that produces it
  std::map<ValueId, ValueId> constants_;             // copies in the program's float dtype
  std::map<ValueId, std::optional<int>> exponents_;  // exponent of each constant that is split into fp16 hi and lo
};

}  // namespace

void read_narrow_floats(ProgramGraph& graph) {
  if (graph.float_dtype == DType::float32) return;
  NarrowReads(graph).run();
}

}  // namespace pumice
