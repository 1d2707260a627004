#include "operators/table/precision_support.h"

#include "dispatch/kernel/coopmat_support.h"
#include "shader/source/glslang_loader.h"

namespace pumice {
namespace {

struct PrecisionFeatures {
  std::string_view precision;
  DType dtype;
  std::vector<std::string_view> storage, coopmat;  // names of the required features
};

const std::vector<PrecisionFeatures>& list_precision_features() {
  static const std::vector<PrecisionFeatures> all = {
      {"fp32", DType::float32, {}, {}},
      {"fp16", DType::float16, {"storageBuffer16BitAccess"}, {"shaderFloat16"}},
      {"bf16", DType::bfloat16, {"storageBuffer16BitAccess", "shaderBFloat16Type"}, {"shaderBFloat16CooperativeMatrix"}},
  };
  return all;
}

PrecisionSupport query_precision_support(const DeviceInfo& device, const PrecisionFeatures& required) {
  PrecisionSupport result{required.precision, get_storage_type(device, required.dtype), false, {}};
  if (required.dtype == DType::float32) return result;
  const auto note_missing = [&](const auto& features) {
    for (const std::string_view feature : features)
      if (!device.feature(feature)) result.lacks.emplace_back(feature);
  };
  note_missing(required.storage);
  const StorageType native = required.dtype == DType::float16 ? StorageType::fp16 : StorageType::bf16;
  if (result.lacks.empty() && result.storage != native)
    for (const auto& extension : find_missing_extensions(native))
      result.lacks.push_back(extension + " of glslang " + std::string(get_glslang_version()));
  note_missing(required.coopmat);
  note_missing(kCoopmatFeatures);
  if (!has_coopmat_shape(device, 16, required.dtype, DType::float32))
    result.lacks.push_back("matrices of 16x16x16 " + std::string(name(required.dtype)));
  result.matrices = result.lacks.empty();
  return result;
}

}  // namespace

PrecisionSupport get_precision_support(const DeviceInfo& device, DType float_dtype) {
  for (const PrecisionFeatures& required : list_precision_features())
    if (required.dtype == float_dtype) return query_precision_support(device, required);
  return {};
}

std::vector<PrecisionSupport> precision_support(const DeviceInfo& device) {
  std::vector<PrecisionSupport> all;
  for (const PrecisionFeatures& required : list_precision_features()) all.push_back(query_precision_support(device, required));
  return all;
}

}  // namespace pumice
