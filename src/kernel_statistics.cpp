#include "bindings.h"
#include "core/error.h"

namespace pumice {
namespace {

py::dict record_of(const ExecutableStatistic& one) {
  py::dict record;
  record["name"] = one.name;
  record["description"] = one.description;
  record["value"] = std::visit([](const auto value) -> py::object { return py::cast(value); }, one.value);
  return record;
}

py::dict record_of(const ExecutableRepresentation& one) {
  py::dict record;
  record["name"] = one.name;
  record["description"] = one.description;
  // Drivers should return UTF-8 text; replace invalid bytes instead of failing.
  record["content"] = one.is_text ? py::reinterpret_steal<py::object>(
                                        PyUnicode_DecodeUTF8(one.content.data(), static_cast<py::ssize_t>(one.content.size()), "replace"))
                                  : py::object(py::bytes(one.content));
  return record;
}

py::dict record_of(const PipelineExecutable& one) {
  py::list statistics, representations;
  for (const auto& statistic : one.statistics) statistics.append(record_of(statistic));
  for (const auto& representation : one.representations) representations.append(record_of(representation));
  py::dict record;
  record["name"] = one.name;
  record["description"] = one.description;
  record["subgroup_size"] = one.subgroup_size;
  record["statistics"] = statistics;
  record["representations"] = representations;
  return record;
}

}  // namespace

Record driver_record(const KernelVariant& variant) {
  size_t bytes = 0;
  std::vector<PipelineExecutable> reported;
  std::optional<std::string> unsupported_reason;
  {
    const ReleasedGil release;  // the driver compiles here
    bytes = variant.spirv_bytes();
    try {
      reported = variant.executables();
    } catch (const UnsupportedError& error) {
      unsupported_reason = error.what();
    }
  }
  py::list executables;
  for (const auto& one : reported) executables.append(record_of(one));
  Record record;
  record["storage"] = std::string(name(variant.shader()->options.storage));
  record["local_size"] = py::make_tuple(variant.local_size()[0], variant.local_size()[1], variant.local_size()[2]);
  record["spirv_bytes"] = variant.shader()->spirv.size() * sizeof(uint32_t);
  record["submitted_bytes"] = bytes;
  record["refusal"] = unsupported_reason;
  const Spills spills = find_spills(reported);
  record["spills"] = spills.amount();
  record["spill_bytes"] = spills.bytes;
  record["executables"] = executables;
  return record;
}

std::shared_ptr<const KernelVariant> find_build(Kernel& kernel, const std::shared_ptr<const KernelVariant>& fp32_variant,
                                                const std::optional<std::string>& storage) {
  if (!storage) return fp32_variant;
  std::string builds;
  for (const auto& variant : kernel.variants()) {
    const std::string build(name(variant->shader()->options.storage));
    if (build == *storage) return variant;
    builds += (builds.empty() ? "" : ", ") + build;
  }
  throw BindingError("K1", "storage", kernel.name(), "one of the builds so far, " + builds + "; a call makes the one that its arrays need",
                     *storage);
}

}  // namespace pumice
