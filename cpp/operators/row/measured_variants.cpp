#include "operators/row/measured_variants.h"

#include <algorithm>
#include <bit>

namespace pumice {

std::string size_class(int64_t size) {
  if (size < 1) return std::to_string(size);
  const auto bits = static_cast<uint64_t>(size);
  return std::to_string(std::bit_ceil(bits)) + "/" + std::to_string(std::min<int64_t>(int64_t{1} << std::countr_zero(bits), 256));
}

}  // namespace pumice
