// The meaning of the records that a debugged shader writes into its ring: the formats of its printf calls and its checked accesses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

struct PrintFormat {
  std::string file;
  uint32_t line = 0;
  std::string text;  // without quotes and escapes
};

// One access through an index, which is checked.
struct AccessSite {
  std::string file;
  uint32_t line = 0;
  std::string buffer;  // "x", or "x[].corners" for an array within its elements
  bool signed_index = false;
  bool writes = false;
};

struct DebugTable {
  std::vector<PrintFormat> formats;
  std::vector<AccessSite> accesses;

  bool empty() const { return formats.empty() && accesses.empty(); }
};

// The ring is a binding that the engine adds: words that say how many are taken, how many messages were lost and how many accesses were
// out of bounds, and then records. A record: format number + 1, or kAccessRecord | access number; the invocation's x, y, z; arguments.
// A zero in place of the first word ends them.
struct RingHead {
  uint32_t taken = 0, lost = 0, violations = 0, unused = 0;
};
inline constexpr std::string_view kRingName = "pumice_ring";      // the name of its words in the interface
inline constexpr std::string_view kLimitsName = "pumice_limits";  // bytes bound to each of the shader's own bindings, in their order
inline constexpr uint32_t kAccessRecord = 0x80000000u;
inline constexpr uint32_t kRecordHeadWords = 4;
inline constexpr uint32_t kAccessRecordWords = kRecordHeadWords + 2;  // index and size
inline constexpr uint32_t kMostAccessRecords = 16;                    // records of one execution; further accesses are counted

inline bool is_debug_binding(std::string_view name) {
  return name == kRingName || name == kLimitsName;
}

}  // namespace pumice
