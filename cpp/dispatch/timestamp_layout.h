// Placement of timestamps in a recording, and their evaluation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dispatch/hazards.h"
#include "dispatch/profiler.h"

namespace pumice {

// Timestamp 0 precedes all dispatches. A timestamp follows each span of dispatches. If a barrier precedes the span, another
// timestamp follows the barrier.
struct TimestampLayout {
  struct TimestampSpan {
    uint32_t first, last;         // indices of the first and the last dispatch
    uint32_t before, ready, end;  // indices of the timestamps
  };
  uint32_t count = 0;  // number of timestamps; 0 if there are none
  std::vector<TimestampSpan> spans;
  std::vector<uint8_t> ready_at, end_at;  // for each dispatch, whether a timestamp directly precedes or follows it

  bool is_ready_at(size_t dispatch) const { return dispatch < ready_at.size() && ready_at[dispatch]; }
  bool ends_at(size_t dispatch) const { return dispatch < end_at.size() && end_at[dispatch]; }
};

TimestampLayout make_per_dispatch_layout(size_t dispatches);  // a timestamp after each dispatch
TimestampLayout make_whole_run_layout(size_t dispatches);     // a timestamp after the last dispatch
TimestampLayout plan_timestamps(std::span<const Dispatch> dispatches, std::span<const Barrier> barriers, ProfileLevel level);

std::shared_ptr<const std::vector<ProfiledDispatch>> describe_dispatches(std::span<const Dispatch> dispatches,
                                                                         std::span<const Barrier> barriers);
void append_profiled_spans(const TimestampLayout& stamps, std::span<const uint64_t> ticks, uint64_t base, double tick_nanoseconds,
                           ProfiledRun& run);

}  // namespace pumice
