#include "operators/common/mixed_precision.h"

#include <string>

namespace pumice {

void MixedArrays::tell(Macros& kernel) const {
  kernel.insert(kernel.end(), macros.begin(), macros.end());
}

MixedArrays mixed_arrays(std::initializer_list<std::pair<std::string_view, DType>> arrays) {
  MixedArrays made;
  for (const auto& [letter, dtype] : arrays)
    if (is_half_width(dtype)) made.storage = dtype;
  if (made.storage == DType::float32) return made;
  for (const auto& [letter, dtype] : arrays)
    if (dtype == DType::float32) made.macros.emplace_back(std::string(letter) + "_FLOAT", "1");
  return made;
}

}  // namespace pumice
