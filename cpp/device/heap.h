// The kinds of device memory that buffers are made of.
#pragma once

#include <cstdint>
#include <string_view>

namespace pumice {

// `written`: on the device where the host can write there, for the little that it writes once; not among the public heaps.
enum class Heap : uint8_t { default_, upload, readback, written };
std::string_view name(Heap heap);

}  // namespace pumice
