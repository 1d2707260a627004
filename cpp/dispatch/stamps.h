// Where a recording of dispatches is stamped with the device's time, and what the stamps say.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dispatch/hazards.h"
#include "dispatch/profiler.h"

namespace pumice {

// Stamp 0 comes before everything. Each span of dispatches ends with a stamp, and begins with one where a barrier stands before it.
struct Stamps {
  struct Span {
    uint32_t first, last;         // dispatches
    uint32_t before, ready, end;  // stamps
  };
  uint32_t count = 0;  // 0: none at all
  std::vector<Span> spans;
  std::vector<uint8_t> ready_at, end_at;  // by dispatch

  bool is_ready_at(size_t dispatch) const { return dispatch < ready_at.size() && ready_at[dispatch]; }
  bool ends_at(size_t dispatch) const { return dispatch < end_at.size() && end_at[dispatch]; }
};

Stamps plain_stamps(size_t dispatches);  // one behind each dispatch
Stamps whole_stamps(size_t dispatches);  // one behind all
Stamps stamps_of(std::span<const Dispatch> dispatches, std::span<const Barrier> barriers, ProfileLevel level);

std::shared_ptr<const std::vector<ProfiledDispatch>> described(std::span<const Dispatch> dispatches, std::span<const Barrier> barriers);
void fill_spans(const Stamps& stamps, std::span<const uint64_t> ticks, uint64_t base, double tick_nanoseconds, ProfiledRun& run);

}  // namespace pumice
