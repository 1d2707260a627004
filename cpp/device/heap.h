// Memory kinds of buffers.
#pragma once

#include <cstdint>
#include <string_view>

namespace pumice {

// `written`: host-visible memory, preferably device-local, for small data that the host writes once; internal only.
enum class Heap : uint8_t { default_, upload, readback, written };
std::string_view name(Heap heap);

}  // namespace pumice
