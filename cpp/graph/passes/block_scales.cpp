#include "graph/passes/block_scales.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/half.h"
#include "core/number_format.h"

namespace pumice {
namespace {

constexpr size_t kScalesOfBlocks = 2;                // input of pumice::BlockMatMul
constexpr float kLeast = 0x1p-14f, kMost = 0x1p15f;  // below kLeast fp16 loses precision
constexpr int64_t kScalesAtOnce = int64_t{1} << 14;  // scales read per chunk

struct Rounded {
  std::optional<float> misfit;  // a scale that is not near a normal fp16 number
  bool is_exact = true;
};

Rounded rounded(const HostTensor& scales) {
  const int64_t count = scales.desc.elements();
  std::vector<float> numbers(static_cast<size_t>(std::min(kScalesAtOnce, count)));
  Rounded made;
  for (int64_t begin = 0; begin < count; begin += kScalesAtOnce) {
    const auto run = std::span(numbers).first(static_cast<size_t>(std::min(kScalesAtOnce, count - begin)));
    scales.convert_to(DType::float32, begin, std::as_writable_bytes(run));
    for (const float number : run) {
      const float size = std::abs(number);
      if (size != 0 && !(size >= kLeast && size < kMost)) return {number, false};
      made.is_exact = made.is_exact && float_from_half(half_from_float(number)) == number;
    }
  }
  return made;
}

}  // namespace

void round_block_scales(ProgramGraph& graph) {
  if (graph.float_dtype != DType::float16) return;
  std::map<ValueId, Rounded> known;
  for (ProgramNode& node : graph.nodes) {
    if (node.op() != "pumice::BlockMatMul" || node.wide) continue;
    const auto& scales = graph.value(node.inputs[kScalesOfBlocks]).constant;
    if (!scales || !scales->data || scales->desc.dtype != DType::float32) continue;
    const auto [found, added] = known.try_emplace(node.inputs[kScalesOfBlocks]);
    if (added) found->second = rounded(*scales);
    if (!found->second.misfit) node.attributes.set("half_scales", int64_t{1});
    std::string& said = graph.report[node.report].scales;
    if (const auto misfit = found->second.misfit)
      said = "float32 scales, no matrix units: " + general_text(*misfit) + " is no normal number of float16";
    else if (!found->second.is_exact)
      said = "scales rounded to float16";
  }
}

}  // namespace pumice
