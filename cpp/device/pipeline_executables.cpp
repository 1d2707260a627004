#include "device/pipeline_executables.h"

#include <algorithm>
#include <regex>
#include <string_view>

#include "core/error.h"
#include "device/context.h"
#include "device/context_state.h"

namespace pumice {
namespace {

std::variant<bool, int64_t, uint64_t, double> get_statistic_value(const VkPipelineExecutableStatisticKHR& statistic) {
  switch (statistic.format) {
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR:
      return statistic.value.b32 == VK_TRUE;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
      return statistic.value.i64;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR:
      return statistic.value.f64;
    default:
      return statistic.value.u64;
  }
}

std::vector<ExecutableStatistic> query_statistics(DeviceTable& vk, const VkPipelineExecutableInfoKHR& executable_info) {
  uint32_t count = 0;
  constexpr const char* kCall = "vkGetPipelineExecutableStatisticsKHR";
  check_vk_result(vk.vkGetPipelineExecutableStatisticsKHR(vk.device, &executable_info, &count, nullptr), kCall);
  std::vector<VkPipelineExecutableStatisticKHR> reported_statistics(count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR});
  check_vk_result(vk.vkGetPipelineExecutableStatisticsKHR(vk.device, &executable_info, &count, reported_statistics.data()), kCall);
  std::vector<ExecutableStatistic> result;
  for (const auto& statistic : reported_statistics)
    result.push_back({statistic.name, statistic.description, get_statistic_value(statistic)});
  return result;
}

// Vulkan's two-call idiom: the first call returns the size of each representation.
std::vector<ExecutableRepresentation> query_representations(DeviceTable& vk, const VkPipelineExecutableInfoKHR& executable_info) {
  uint32_t count = 0;
  constexpr const char* kCall = "vkGetPipelineExecutableInternalRepresentationsKHR";
  check_vk_result(vk.vkGetPipelineExecutableInternalRepresentationsKHR(vk.device, &executable_info, &count, nullptr), kCall);
  std::vector<VkPipelineExecutableInternalRepresentationKHR> reported_representations(
      count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR});
  check_vk_result(
      vk.vkGetPipelineExecutableInternalRepresentationsKHR(vk.device, &executable_info, &count, reported_representations.data()), kCall);
  std::vector<std::string> contents;
  for (const auto& representation : reported_representations) contents.emplace_back(representation.dataSize, '\0');
  for (size_t i = 0; i < reported_representations.size(); ++i) reported_representations[i].pData = contents[i].data();
  check_vk_result(
      vk.vkGetPipelineExecutableInternalRepresentationsKHR(vk.device, &executable_info, &count, reported_representations.data()), kCall);
  std::vector<ExecutableRepresentation> result;
  for (size_t i = 0; i < reported_representations.size(); ++i) {
    contents[i].resize(std::min(contents[i].size(), reported_representations[i].dataSize));
    const bool is_text = reported_representations[i].isText == VK_TRUE;
    while (is_text && contents[i].ends_with('\0')) contents[i].pop_back();
    result.push_back({reported_representations[i].name, reported_representations[i].description, is_text, std::move(contents[i])});
  }
  return result;
}

// Returns the low 32 bits, since an invocation cannot address more. NVIDIA 580.159 reports 2^36 + 272 bytes of local memory for a kernel
// that spills 272 bytes, and 2^36 for a kernel that spills none.
uint64_t get_low_32_bits(const std::variant<bool, int64_t, uint64_t, double>& value) {
  const double number = std::visit([](const auto number_value) { return static_cast<double>(number_value); }, value);
  return number > 0 && number < 0x1p63 ? static_cast<uint64_t>(number) & 0xffffffff : 0;
}

// Finds the first of these statistics that any executable reports, and returns its maximum over all executables.
std::optional<uint64_t> find_largest_statistic(const std::vector<PipelineExecutable>& executables,
                                               std::initializer_list<std::string_view> names) {
  std::optional<uint64_t> largest;
  for (const std::string_view name : names) {
    const std::regex pattern(name.begin(), name.end(), std::regex::icase);
    for (const auto& executable : executables)
      for (const auto& statistic : executable.statistics)
        if (std::regex_match(statistic.name, pattern)) largest = std::max(largest.value_or(0), get_low_32_bits(statistic.value));
    if (largest) break;
  }
  return largest;
}

}  // namespace

PipelineStatistics summarize_statistics(const std::vector<PipelineExecutable>& executables) {
  const auto find = [&](std::initializer_list<std::string_view> names) { return find_largest_statistic(executables, names); };
  PipelineStatistics result;
  // In order: NVIDIA; RADV; NVK; Turnip; Honeykrisp; ANV; others. Registers that RADV and NVK move to registers of another kind ("Spilled
  // SGPRs", "Spills to reg") are no spills. Turnip counts accesses of private memory, which are spills or indexed arrays.
  result.registers = find({"register count", "vgprs?", "number of gprs", "registers used", "gprs", "max live registers", "registers?",
                           "num(ber of)? registers", "vector registers?"});
  result.scratch_bytes =
      find({"local memory( size| usage)?", "stack size", "scratch( memory)?( size)?", "slm size", "private memory size"});
  result.spills =
      find({"spilled vgprs?", "spills to memory", "stp count", "spills?", "spill(ed)? (count|registers?)", "register spill(s| count)?"});
  if (!result.spills) result.spills = result.scratch_bytes;
  result.shared_bytes = find({"shared memory( size| usage)?", "lds size", "workgroup memory( size)?", "shared size"});
  result.occupancy =
      find({"occupancy", "subgroups per simd", "max warps/sm", "(max )?waves per (core|simd|cu)", "threads", "active warps"});
  result.code_bytes = find({"binary size", "code size", "shader size"});
  result.instructions = find({"instruction count", "instructions?"});
  return result;
}

void check_executables_supported(const Context& context) {
  if (context.feature(kExecutablesFeature)) return;
  const DeviceInfo& info = context.info();
  throw UnsupportedError("the driver '" + info.driver + "' of '" + info.name +
                         "' reports no statistics of compiled pipelines: they need the feature " + kExecutablesFeature +
                         " of VK_KHR_pipeline_executable_properties");
}

std::vector<PipelineExecutable> query_executables(Context& context, VkPipeline_T* pipeline, CaptureMode capture) {
  if (capture == CaptureMode::none) return {};
  const bool has_texts = capture == CaptureMode::all;
  auto& vk = *get_usable_state(context).vk;
  VkPipelineInfoKHR of{VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR};
  of.pipeline = pipeline;
  uint32_t count = 0;
  check_vk_result(vk.vkGetPipelineExecutablePropertiesKHR(vk.device, &of, &count, nullptr), "vkGetPipelineExecutablePropertiesKHR");
  std::vector<VkPipelineExecutablePropertiesKHR> properties(count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR});
  check_vk_result(vk.vkGetPipelineExecutablePropertiesKHR(vk.device, &of, &count, properties.data()),
                  "vkGetPipelineExecutablePropertiesKHR");
  std::vector<PipelineExecutable> result;
  for (uint32_t i = 0; i < count; ++i) {
    VkPipelineExecutableInfoKHR executable_info{VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR};
    executable_info.pipeline = pipeline;
    executable_info.executableIndex = i;
    result.push_back(
        {properties[i].name, properties[i].description, properties[i].subgroupSize, query_statistics(vk, executable_info), {}});
    if (has_texts) result.back().representations = query_representations(vk, executable_info);
  }
  return result;
}

}  // namespace pumice
