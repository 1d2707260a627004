#include "bindings.h"
#include "core/error.h"

namespace pumice {
namespace {

py::dict make_record(const ExecutableStatistic& statistic) {
  py::dict record;
  record["name"] = statistic.name;
  record["description"] = statistic.description;
  record["value"] = std::visit([](const auto value) -> py::object { return py::cast(value); }, statistic.value);
  return record;
}

py::dict make_record(const ExecutableRepresentation& representation) {
  py::dict record;
  record["name"] = representation.name;
  record["description"] = representation.description;
  // Drivers should return UTF-8 text; replace invalid bytes instead of failing.
  record["content"] = representation.is_text
                          ? py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
                                representation.content.data(), static_cast<py::ssize_t>(representation.content.size()), "replace"))
                          : py::object(py::bytes(representation.content));
  return record;
}

py::dict make_record(const PipelineExecutable& executable) {
  py::list statistics, representations;
  for (const auto& statistic : executable.statistics) statistics.append(make_record(statistic));
  for (const auto& representation : executable.representations) representations.append(make_record(representation));
  py::dict record;
  record["name"] = executable.name;
  record["description"] = executable.description;
  record["subgroup_size"] = executable.subgroup_size;
  record["statistics"] = statistics;
  record["representations"] = representations;
  return record;
}

}  // namespace

py::dict make_summary_record(const std::vector<PipelineExecutable>& executables) {
  const PipelineStatistics statistics = summarize_statistics(executables);
  py::dict record;
  record["registers"] = statistics.registers, record["spills"] = statistics.spills, record["spill_bytes"] = statistics.scratch_bytes;
  record["shared_bytes"] = statistics.shared_bytes, record["occupancy"] = statistics.occupancy;
  record["code_bytes"] = statistics.code_bytes, record["instructions"] = statistics.instructions;
  return record;
}

Record make_pipeline_record(const PipelineRecord& pipeline, bool used) {
  py::dict record;
  record["kernel"] = pipeline.name, record["key"] = pipeline.key, record["storage"] = pipeline.storage;
  record["local_size"] = py::make_tuple(pipeline.local_size[0], pipeline.local_size[1], pipeline.local_size[2]);
  record["constants"] = pipeline.constants, record["failure"] = pipeline.failure;
  record["used"] = used, record["compile_seconds"] = pipeline.compile_seconds;
  py::list executables;
  for (const auto& executable : pipeline.executables) executables.append(make_record(executable));
  record["summary"] = make_summary_record(pipeline.executables), record["executables"] = executables;
  return Record(record);
}

Record make_driver_record(const KernelVariant& variant) {
  size_t bytes = 0;
  std::vector<PipelineExecutable> reported;
  std::optional<std::string> unsupported_reason;
  {
    const GilRelease release;  // the driver compiles here
    bytes = variant.spirv_bytes();
    try {
      reported = variant.query_executables();
    } catch (const UnsupportedError& error) {
      unsupported_reason = error.what();
    }
  }
  py::list executables;
  for (const auto& executable : reported) executables.append(make_record(executable));
  Record record;
  record["storage"] = std::string(name(variant.shader()->options.storage));
  record["local_size"] = py::make_tuple(variant.local_size()[0], variant.local_size()[1], variant.local_size()[2]);
  record["spirv_bytes"] = variant.shader()->spirv.size() * sizeof(uint32_t);
  record["submitted_bytes"] = bytes;
  record["refusal"] = unsupported_reason;
  record["summary"] = make_summary_record(reported);
  record["executables"] = executables;
  return record;
}

std::shared_ptr<const KernelVariant> find_variant(Kernel& kernel, const std::shared_ptr<const KernelVariant>& fp32_variant,
                                                  const std::optional<std::string>& storage) {
  if (!storage) return fp32_variant;
  std::string builds;
  for (const auto& variant : kernel.list_variants()) {
    const std::string build(name(variant->shader()->options.storage));
    if (build == *storage) return variant;
    builds += (builds.empty() ? "" : ", ") + build;
  }
  throw BindingError("K1", "storage", kernel.name(),
                     "one of the builds so far, " + builds + "; a call builds the variant that its arrays need", *storage);
}

}  // namespace pumice
