#include "shader/spirv/memory_layout.h"

namespace pumice {

uint64_t MemoryLayout::element_count() const {
  uint64_t product = 1;
  for (const uint32_t size : axes) product *= size == 0 ? 1 : size;
  return product;
}

std::string to_string(const MemoryLayout& layout) {
  std::string text =
      layout.scalar == ScalarType::other ? "a structure of " + std::to_string(layout.bytes) + " bytes" : std::string(name(layout.scalar));
  if (layout.axes.empty()) return text;
  std::string sizes;
  for (const uint32_t size : layout.axes) sizes += (sizes.empty() ? "" : ", ") + (size == 0 ? std::string("n") : std::to_string(size));
  return text + "[" + sizes + "]";
}

}  // namespace pumice
