// Memory kinds of buffers.
#pragma once

#include <cstdint>
#include <string_view>

namespace pumice {

// `written`: device memory that the host can write if available, for small data that is written once; internal only.
enum class Heap : uint8_t { default_, upload, readback, written };
std::string_view name(Heap heap);

}  // namespace pumice
