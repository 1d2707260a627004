#include "dv/weights/whc8_layout.h"

#include <cstring>
#include <string>

#include "core/error.h"

namespace pumice::dv {
namespace {

template <typename Function>
void dispatch_by_element_size(size_t bytes, const Function& function) {
  switch (bytes) {
    case 1:
      return function(uint8_t{});
    case 2:
      return function(uint16_t{});
    case 4:
      return function(uint32_t{});
    case 8:
      return function(uint64_t{});
    default:
      throw UnsupportedError("elements of " + std::to_string(bytes) + " bytes in WHC8; supported: 1, 2, 4 and 8");
  }
}

}  // namespace

void to_whc8(size_t element_bytes, uint32_t images, const Extent& extent, const std::byte* source, const HostStrides& strides,
             std::byte* target) {
  dispatch_by_element_size(element_bytes, [&](auto zero) {
    using Element = decltype(zero);
    for (uint32_t image = 0; image < images; ++image, source += strides.image)
      visit_whc8(extent, strides, [&](std::ptrdiff_t at) {
        std::memcpy(target, source + at, sizeof(Element));  // either side may be unaligned
        target += sizeof(Element);
      });
  });
}

void from_whc8(size_t element_bytes, uint32_t images, const Extent& extent, const std::byte* source, std::byte* target,
               const HostStrides& strides) {
  dispatch_by_element_size(element_bytes, [&](auto zero) {
    using Element = decltype(zero);
    for (uint32_t image = 0; image < images; ++image, target += strides.image)
      visit_whc8(extent, strides, [&](std::ptrdiff_t at) {
        std::memcpy(target + at, source, sizeof(Element));
        source += sizeof(Element);
      });
  });
}

}  // namespace pumice::dv
