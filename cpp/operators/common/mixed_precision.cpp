#include "operators/common/mixed_precision.h"

#include <string>

namespace pumice {

void MixedPrecisionArrays::append_to(Macros& kernel_macros) const {
  kernel_macros.insert(kernel_macros.end(), macros.begin(), macros.end());
}

MixedPrecisionArrays make_mixed_precision_arrays(std::initializer_list<std::pair<std::string_view, DType>> arrays) {
  MixedPrecisionArrays result;
  for (const auto& [letter, dtype] : arrays)
    if (is_16bit_float(dtype)) result.storage = dtype;
  if (result.storage == DType::float32) return result;
  for (const auto& [letter, dtype] : arrays)
    if (dtype == DType::float32) result.macros.emplace_back(std::string(letter) + "_FLOAT", "1");
  return result;
}

}  // namespace pumice
