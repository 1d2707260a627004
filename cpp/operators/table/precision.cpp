#include "operators/table/precision.h"

#include "dispatch/kernel/coopmat_support.h"
#include "shader/source/glslang_loader.h"

namespace pumice {
namespace {

struct Needs {
  std::string_view precision;
  DType dtype;
  std::vector<std::string_view> storage, matrices;  // names of the required features
};

const std::vector<Needs>& needs() {
  static const std::vector<Needs> all = {
      {"fp32", DType::float32, {}, {}},
      {"fp16", DType::float16, {"storageBuffer16BitAccess"}, {"shaderFloat16"}},
      {"bf16", DType::bfloat16, {"storageBuffer16BitAccess", "shaderBFloat16Type"}, {"shaderBFloat16CooperativeMatrix"}},
  };
  return all;
}

PrecisionSupport support(const DeviceInfo& device, const Needs& needed) {
  PrecisionSupport result{needed.precision, storage_of(device, needed.dtype), false, {}};
  if (needed.dtype == DType::float32) return result;
  const auto note_missing = [&](const auto& features) {
    for (const std::string_view feature : features)
      if (!device.feature(feature)) result.lacks.emplace_back(feature);
  };
  note_missing(needed.storage);
  const Storage native = needed.dtype == DType::float16 ? Storage::fp16 : Storage::bf16;
  if (result.lacks.empty() && result.storage != native)
    for (const auto& extension : missing_extensions(native))
      result.lacks.push_back(extension + " of glslang " + std::string(glslang_version()));
  note_missing(needed.matrices);
  note_missing(kMatrixFeatures);
  if (!has_matrix_shape(device, 16, needed.dtype, DType::float32))
    result.lacks.push_back("matrices of 16x16x16 " + std::string(name(needed.dtype)));
  result.matrices = result.lacks.empty();
  return result;
}

}  // namespace

PrecisionSupport support_of(const DeviceInfo& device, DType float_dtype) {
  for (const Needs& needed : needs())
    if (needed.dtype == float_dtype) return support(device, needed);
  return {};
}

std::vector<PrecisionSupport> precision_support(const DeviceInfo& device) {
  std::vector<PrecisionSupport> all;
  for (const Needs& needed : needs()) all.push_back(support(device, needed));
  return all;
}

}  // namespace pumice
