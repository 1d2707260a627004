#include "graph/passes/fp32_constants.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "core/log.h"
#include "core/number_format.h"
#include "operators/table/precision_support.h"
#include "operators/table/result_dtype.h"

namespace pumice {
namespace {

constexpr double kLargestHalf = 65504, kMaxRoundedToZero = 0x1p-25;  // magnitudes up to kMaxRoundedToZero round to 0 in float16
constexpr double kMinNormalHalf = 0x1p-14;                           // smallest normal float16 number; smaller numbers lose precision
constexpr float kBeyondHalf = 65520;                                 // smallest magnitude that overflows float16

constexpr size_t kChunkElements = size_t{1} << 16;  // elements of a constant per chunk

bool overflows_fp16(double number) {
  return std::isfinite(number) && (std::abs(number) >= kBeyondHalf);
}

// Returns the first element that overflows float16, or nullopt. Positive floats compare like their bit patterns.
std::optional<double> find_first_overflow(const HostTensor& constant) {
  const auto count = static_cast<size_t>(constant.desc.elements());
  if (constant.desc.dtype != DType::float32) {
    const auto elements = constant.as_double();
    const auto found = std::ranges::find_if(elements, overflows_fp16);
    return found == elements.end() ? std::nullopt : std::optional(*found);
  }
  constexpr auto kFirst = std::bit_cast<uint32_t>(kBeyondHalf), kInfinity = uint32_t{0x7f800000};
  std::vector<uint32_t> words(std::min(kChunkElements, count));
  for (size_t begin = 0; begin < count; begin += kChunkElements) {
    const size_t run = std::min(kChunkElements, count - begin);
    // Weights in a file are read without memory mapping, so that their pages do not count as memory of the process.
    constant.convert_to(DType::float32, static_cast<int64_t>(begin), std::as_writable_bytes(std::span(words).first(run)));
    uint32_t any = 0;
    for (size_t i = 0; i < run; ++i) any |= static_cast<uint32_t>((words[i] & 0x7fffffffu) - kFirst < kInfinity - kFirst);
    for (size_t i = 0; any != 0 && i < run; ++i)
      if ((words[i] & 0x7fffffffu) - kFirst < kInfinity - kFirst) return std::bit_cast<float>(words[i]);
  }
  return {};
}

// Returns the largest magnitude of the finite elements.
double find_largest_finite(const HostTensor& constant) {
  const auto count = static_cast<size_t>(constant.desc.elements());
  std::vector<float> numbers(std::min(kChunkElements, count));
  float largest = 0;
  for (size_t begin = 0; begin < count; begin += kChunkElements) {
    const auto run = std::span(numbers).first(std::min(kChunkElements, count - begin));
    constant.convert_to(DType::float32, static_cast<int64_t>(begin), std::as_writable_bytes(run));
    for (const float number : run)
      if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
  }
  return largest;
}

class Fp32ConstantPass {
 public:
  explicit Fp32ConstantPass(ProgramGraph& graph) : graph_(graph), numbers_(graph.values.size()), known_(graph.values.size(), false) {}

  void mark_nodes() {
    for (ProgramNode& node : graph_.nodes) {
      if (node.fp32) continue;  // already float32, at the request of the caller
      for (size_t k = 0; k < node.inputs.size(); ++k)
        if (reads_constant(node, k) && get_cached_overflow(node.inputs[k])) mark_fp32_input(node, k);
      if (const auto number = find_fill_overflow(node)) {
        node.fp32 = true;
        report_reason(node, "its 'value'", *number);
      }
      if (const auto number = find_scaled_overflow(node)) {
        node.fp32 = true;
        report_reason(node, "its '" + std::string(node.row->scales) + "' times '" + graph_.value(node.inputs[1]).name + "'", *number);
      }
    }
    // All constants of a float32 node become float32, and so do other nodes that read one of these constants.
    for (bool again = true; again;) {
      again = false;
      for (ProgramNode& node : graph_.nodes) again = propagate_fp32(node) || again;
    }
  }

 private:
  // Whether the node computes with the elements of a constant input. Host-read inputs count only if their elements become elements of the
  // result.
  bool reads_constant(const ProgramNode& node, size_t input) const {
    const ValueId id = node.inputs[input];
    if (id == kAbsent || !graph_.value(id).constant || !is_operator_float(graph_.value(id).dtype)) return false;
    return !is_host_input(node, input) || has_bit(node.row->host.element_inputs, input);
  }

  const std::optional<double>& get_cached_overflow(ValueId id) {
    const auto at = static_cast<size_t>(id);
    if (!known_[at]) numbers_[at] = find_unrepresentable_fp16(*graph_.value(id).constant);
    known_[at] = true;
    return numbers_[at];
  }

  static std::optional<double> find_fill_overflow(const ProgramNode& node) {
    const HostTensor* value = node.row->host.fill_attribute.empty() ? nullptr : node.attributes.tensor(node.row->host.fill_attribute);
    return value ? find_unrepresentable_fp16(*value) : std::nullopt;
  }

  // Returns the largest element of a constant input 1 times the scale attribute, if the result overflows float16 or loses precision in it.
  // If input 1 is not constant, considers only the attribute.
  std::optional<double> find_scaled_overflow(const ProgramNode& node) const {
    if (node.row->scales.empty() || node.inputs.size() < 2 || node.inputs[1] == kAbsent) return {};
    const double scale = node.attributes.real(node.row->scales, 1);
    const GraphValue& input = graph_.value(node.inputs[1]);
    if (scale == 1 || !is_operator_float(input.dtype)) return {};
    const double largest = input.constant && input.constant->data ? find_largest_finite(*input.constant) : 1, number = scale * largest;
    const bool is_small = number != 0 && std::abs(number) < kMinNormalHalf && largest >= kMinNormalHalf;
    return overflows_fp16(number) || is_small ? std::optional(number) : std::nullopt;
  }

  void mark_fp32_input(ProgramNode& node, size_t input) {
    const ValueId id = node.inputs[input];
    graph_.value(id).fp32 = true;
    if (!is_inactive_bound(graph_, node, input)) report_reason(node, "'" + graph_.value(id).name + "'", *get_cached_overflow(id));
  }

  void report_reason(const ProgramNode& node, const std::string& source, double number) {
    const bool is_subnormal = std::abs(number) > kMaxRoundedToZero && !overflows_fp16(number);
    const std::string reason_text = source + " holds " + format_general(number) +
                                    (is_subnormal ? ", which float16 represents with few digits" : ", which float16 cannot represent");
    std::string& reason = graph_.report[node.report].fp32;
    if (reason.empty()) reason = "float32: " + reason_text;
    log(LogLevel::warning,
        "node '" + node.name + "' computes in float32: " + reason_text + " (its range ends at " + format_general(kLargestHalf) + ")");
  }

  bool propagate_fp32(ProgramNode& node) {
    bool changed = false, any = node.fp32;
    for (size_t k = 0; k < node.inputs.size(); ++k) any = any || (reads_constant(node, k) && graph_.value(node.inputs[k]).fp32);
    if (!any || node.row->precision.mixed_precision) return false;
    changed = !node.fp32;
    node.fp32 = true;
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (reads_constant(node, k) && !graph_.value(node.inputs[k]).fp32) graph_.value(node.inputs[k]).fp32 = changed = true;
    return changed;
  }

  ProgramGraph& graph_;
  std::vector<std::optional<double>> numbers_;  // for each constant: its first element that float16 cannot represent
  std::vector<bool> known_;
};

}  // namespace

std::optional<double> find_unrepresentable_fp16(const HostTensor& constant) {
  if (!constant.data || !is_operator_float(constant.desc.dtype) || constant.desc.dtype == DType::float16) return {};
  if (constant.desc.elements() == 1) {
    const double number = constant.as_double()[0];
    if (number != 0 && std::abs(number) <= kMaxRoundedToZero) return number;
  }
  return find_first_overflow(constant);
}

bool is_inactive_bound(const ProgramGraph& graph, const ProgramNode& node, size_t input) {
  const bool is_min = has_bit(node.row->precision.lower_bound_inputs, input);
  if ((!is_min && !has_bit(node.row->precision.upper_bound_inputs, input)) || node.inputs[input] == kAbsent) return false;
  const GraphValue& bound = graph.value(node.inputs[input]);
  if (!bound.constant || !bound.fp32 || bound.constant->desc.elements() != 1) return false;
  const double number = bound.constant->as_double()[0];
  return is_min ? number <= -kBeyondHalf : number >= kBeyondHalf;
}

void keep_fp32_constants(ProgramGraph& graph) {
  if (graph.float_dtype == DType::float16) Fp32ConstantPass(graph).mark_nodes();
}

}  // namespace pumice
