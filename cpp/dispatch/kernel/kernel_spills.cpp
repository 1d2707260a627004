// Queries drivers for register spills and caches the results on disk.
#include <cstring>

#include "core/error.h"
#include "core/files/cache_file.h"
#include "core/files/hash.h"
#include "core/log.h"
#include "dispatch/kernel/driver_bug_test.h"
#include "dispatch/kernel/kernel.h"
#include "dispatch/kernel/kernel_limits.h"

namespace pumice {
namespace {

constexpr std::string_view kSpillsKind = "spills";

// Spill counts of software drivers are meaningless: they keep registers in memory.
bool reports_spills(const std::shared_ptr<Context>& context) {
  if (get_driver_quirks(context).has(Quirk::simulated_spills)) return true;
  return context->info().kind != DeviceKind::software && context->feature(kExecutablesFeature);
}

// Returns the cache entry name; nullopt if there is no cache. The module and pipeline depend only on the shader, the driver's properties
// and masked features.
std::optional<std::string> make_spills_entry_name(const std::shared_ptr<Context>& context, const Shader& shader,
                                                  const std::vector<SpecializationConstant>& constants) {
  if (!get_cache_directory()) return {};
  const DeviceInfo& info = context->info();
  Sha256 hash;
  hash.add_field(shader.key).add_field(info.name).add_field(info.driver_uuid).add_field(static_cast<uint64_t>(info.driver_version));
  for (const auto& constant : constants) hash.add_field(constant.id).add_field(constant.bits);
  hash.add_field(get_driver_quirks(context).bits()).add_field(context->limit("subgroupSize")).add_field(info.matrix_subgroup_size());
  for (const char* feature : {kInt64Feature, "subgroupSizeControl", "computeFullSubgroups"})
    hash.add_field(static_cast<uint64_t>(context->feature(feature)));
  const std::string key = hash.hex();
  return key.substr(0, 2) + "/" + key.substr(2, 32);
}

}  // namespace

std::optional<uint64_t> KernelVariant::get_cached_spills() const {
  const std::lock_guard lock(spills_mutex_);
  if (spills_) return spills_;
  const auto owner = context();
  if (!reports_spills(owner)) return spills_ = 0;
  const auto entry = make_spills_entry_name(owner, *shader_, specialization_);
  const auto cached = entry ? read_cache_entry(kSpillsKind, *entry) : std::nullopt;
  if (!cached || cached->size() != sizeof(uint64_t)) return {};
  uint64_t spills = 0;
  std::memcpy(&spills, cached->data(), sizeof spills);
  return spills_ = spills;
}

uint64_t KernelVariant::query_spills() const {
  if (const auto cached = get_cached_spills()) return *cached;
  const auto owner = context();
  const auto entry = make_spills_entry_name(owner, *shader_, specialization_);
  uint64_t spills = 0;
  bool is_reported = true;
  if (get_driver_quirks(owner).has(Quirk::simulated_spills)) {
    constexpr uint32_t kLeast = 256;
    const uint32_t invocations = local_size_[0] * local_size_[1] * local_size_[2];
    spills = invocations >= kLeast ? invocations : 0;
  } else {
    try {
      spills = summarize_statistics(query_executables(CaptureMode::statistics)).spills.value_or(0);
    } catch (const Error& error) {  // the kernel still works; do not query again in this process
      is_reported = false;
      log(LogLevel::warning, "kernel '" + name() + "': the driver does not report register spills: " + error.what());
    }
  }
  if (spills > 0) log(LogLevel::info, "kernel '" + name() + "': the driver reports register spills (" + std::to_string(spills) + ")");
  if (entry && is_reported) write_cache_entry(kSpillsKind, *entry, std::as_bytes(std::span(&spills, 1)));
  const std::lock_guard lock(spills_mutex_);
  spills_ = spills;
  return spills;
}

}  // namespace pumice
