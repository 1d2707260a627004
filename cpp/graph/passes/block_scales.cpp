#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/half.h"
#include "core/number_format.h"
#include "graph/passes/passes.h"

namespace pumice {
namespace {

constexpr size_t kBlockScalesInput = 2;                     // input index of pumice::BlockQuantMatMul
constexpr float kMinScale = 0x1p-14f, kMaxScale = 0x1p15f;  // range of normal fp16 numbers, in which fp16 keeps full precision
constexpr int64_t kChunkScales = int64_t{1} << 14;          // scales per chunk

struct RoundingResult {
  std::optional<float> misfit;  // first scale that is not a normal fp16 number after rounding
  bool is_exact = true;
};

RoundingResult check_scale_rounding(const HostTensor& scales) {
  const int64_t count = scales.desc.elements();
  std::vector<float> numbers(static_cast<size_t>(std::min(kChunkScales, count)));
  RoundingResult result;
  for (int64_t begin = 0; begin < count; begin += kChunkScales) {
    const auto run = std::span(numbers).first(static_cast<size_t>(std::min(kChunkScales, count - begin)));
    scales.convert_to(DType::float32, begin, std::as_writable_bytes(run));
    for (const float number : run) {
      const float size = std::abs(number);
      if (size != 0 && !(size >= kMinScale && size < kMaxScale)) return {number, false};
      result.is_exact = result.is_exact && float_from_half(half_from_float(number)) == number;
    }
  }
  return result;
}

}  // namespace

void round_block_scales(ProgramGraph& graph) {
  if (graph.float_dtype != DType::float16) return;
  std::map<ValueId, RoundingResult> results;
  for (ProgramNode& node : graph.nodes) {
    if (node.op() != "pumice::BlockQuantMatMul" || node.fp32) continue;
    const auto& scales = graph.value(node.inputs[kBlockScalesInput]).constant;
    if (!scales || !scales->data || scales->desc.dtype != DType::float32) continue;
    const auto [found, added] = results.try_emplace(node.inputs[kBlockScalesInput]);
    if (added) found->second = check_scale_rounding(*scales);
    if (!found->second.misfit) node.attributes.set("fp16_scales", int64_t{1});
    std::string& note = graph.report[node.report].scales;
    if (const auto misfit = found->second.misfit)
      note = "float32 scales, no cooperative matrices: " + format_general(*misfit) + " is not a normal float16 number";
    else if (!found->second.is_exact)
      note = "scales rounded to float16";
  }
}

}  // namespace pumice
