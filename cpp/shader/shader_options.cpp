#include "shader/shader_options.h"

#include <array>

#include "core/error.h"

namespace pumice {
namespace {

constexpr std::array<std::string_view, 5> kStorageNames{"fp32", "fp16", "fp16_packed", "bf16", "bf16_packed"};

}  // namespace

std::string_view name(Storage storage) {
  return kStorageNames.at(static_cast<size_t>(storage));
}

Storage storage_from_name(std::string_view name) {
  std::string known;
  for (size_t i = 0; i < kStorageNames.size(); ++i) {
    if (kStorageNames[i] == name) return static_cast<Storage>(i);
    known += (i ? ", " : "") + std::string(kStorageNames[i]);
  }
  throw UnsupportedError("unknown storage '" + std::string(name) + "': expected one of " + known);
}

}  // namespace pumice
