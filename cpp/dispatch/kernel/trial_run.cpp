#include "dispatch/kernel/trial_run.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>

#include "core/error.h"
#include "core/files/cache_file.h"
#include "dispatch/kernel/kernel_limits.h"

namespace pumice {
namespace {

constexpr double kTrialSeconds = 2, kIdleSeconds = 0.02;

double get_cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// Returns the CPU features of the host. Software drivers compile for these.
std::string read_cpu_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  return {};
}

}  // namespace

Sha256 hash_driver(const DeviceInfo& info) {
  Sha256 hash;
  hash.add_field(info.name).add_field(info.driver_uuid).add_field(static_cast<uint64_t>(info.driver_version)).add_field(info.driver_info);
  for (const auto& [feature, is_enabled] : info.features) hash.add_field(feature).add_field(static_cast<uint64_t>(is_enabled));
  if (info.kind != DeviceKind::software) return hash;
  hash.add_field(read_cpu_flags());
  for (const char* variable : {"GALLIUM_OVERRIDE_CPU_CAPS", "LP_NATIVE_VECTOR_WIDTH"})
    if (const char* text = std::getenv(variable)) hash.add_field(variable).add_field(text);
  return hash;
}

QuirkSet find_cached_quirks(const DeviceInfo& info, Sha256 key, const std::function<QuirkSet()>& run) {
  constexpr std::string_view kKind = "trials";
  if (!get_cache_directory()) return run();
  const std::string name = info.uuid + "-" + key.hex().substr(0, 32);
  uint64_t bits = 0;
  if (const auto cached = read_cache_entry(kKind, name); cached && cached->size() == sizeof bits) {
    std::memcpy(&bits, cached->data(), sizeof bits);
    return QuirkSet(bits);
  }
  const QuirkSet quirks = run();
  bits = quirks.bits();
  write_cache_entry(kKind, name, std::as_bytes(std::span(&bits, 1)));
  return quirks;
}

std::shared_ptr<const Pipeline> make_trial_pipeline(Context& context, const Shader& shader, std::vector<SpecializationConstant> constants,
                                                    uint32_t subgroup_size) {
  PipelineDesc desc;
  desc.subgroup_size = subgroup_size;
  desc.name = shader.name;
  desc.spirv = shader.spirv;
  for (const auto& binding : shader.interface.bindings) desc.bindings.push_back({binding.binding, get_descriptor_kind(binding)});
  desc.push_bytes = shader.interface.push_bytes;
  desc.specialization = std::move(constants);
  desc.counted = false;
  return Pipeline::create(context, desc);
}

void wait_for_trial(Context& context, uint64_t id) {
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = get_cpu_seconds();
  const bool is_software = context.info().kind == DeviceKind::software;
  while (true) {
    try {
      return context.wait(id, 0.05);
    } catch (const TimeoutError&) {
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const double cpu_seconds = get_cpu_seconds() - cpu_start;
      if (seconds < kTrialSeconds || (is_software && cpu_seconds > kIdleSeconds && cpu_seconds < kTrialSeconds)) continue;
    }
    const std::string driver = context.info().driver, device = context.info().name;
    context.close({}, 0.0);
    throw DeviceError("the driver '" + driver + "' of '" + device + "' did not finish the driver trial within " +
                      std::to_string(static_cast<int>(kTrialSeconds)) + " seconds; it cannot run the engine's kernels");
  }
}

}  // namespace pumice
