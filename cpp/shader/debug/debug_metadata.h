// Metadata that decodes the ring buffer of a debugged shader: its printf formats and bounds-checked accesses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

struct PrintfFormat {
  std::string file;
  uint32_t line = 0;
  std::string text;  // the format string without quotes, with escapes resolved
};

// A bounds-checked buffer access in the source.
struct AccessSite {
  std::string file;
  uint32_t line = 0;
  std::string buffer;  // "x", or "x[].corners" for a nested array
  bool signed_index = false;
  bool writes = false;
};

struct DebugMetadata {
  std::vector<PrintfFormat> formats;
  std::vector<AccessSite> accesses;

  bool empty() const { return formats.empty() && accesses.empty(); }
};

// The ring buffer is a binding added by the engine. Its header counts the words reserved, the messages lost and the out-of-bounds accesses;
// records follow. A record consists of format index + 1, or kAccessRecord | access index; the invocation's x, y, z; arguments. A zero first
// word ends the list.
struct RingBufferHeader {
  uint32_t reserved = 0, lost = 0, violations = 0, unused = 0;
};
inline constexpr std::string_view kRingBufferName = "pumice_ring";     // name of the ring buffer in the interface
inline constexpr std::string_view kBufferSizesName = "pumice_limits";  // array of the bound sizes of the shader's bindings, in bytes
inline constexpr uint32_t kAccessRecord = 0x80000000u;
inline constexpr uint32_t kRecordHeaderWords = 4;
inline constexpr uint32_t kAccessRecordWords = kRecordHeaderWords + 2;  // 2 argument words: index and size
inline constexpr uint32_t kMaxAccessRecords = 16;                       // records per execution; further accesses are only counted

inline bool is_debug_binding(std::string_view name) {
  return name == kRingBufferName || name == kBufferSizesName;
}

}  // namespace pumice
