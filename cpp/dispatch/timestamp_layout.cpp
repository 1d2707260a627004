#include "dispatch/timestamp_layout.h"

namespace pumice {
namespace {

void add_span(TimestampLayout& stamps, size_t first, size_t last, bool has_barrier) {
  const uint32_t before = stamps.count - 1;
  if (has_barrier) ++stamps.count, stamps.ready_at[first] = 1;
  const uint32_t ready = stamps.count - 1;
  stamps.end_at[last] = 1;
  stamps.spans.push_back({static_cast<uint32_t>(first), static_cast<uint32_t>(last), before, ready, stamps.count++});
}

TimestampLayout make_layout_without_spans(size_t dispatches) {
  TimestampLayout stamps;
  stamps.count = 1;
  stamps.ready_at.resize(dispatches);
  stamps.end_at.resize(dispatches);
  return stamps;
}

}  // namespace

TimestampLayout make_per_dispatch_layout(size_t dispatches) {
  TimestampLayout stamps = make_layout_without_spans(dispatches);
  for (size_t i = 0; i < dispatches; ++i) add_span(stamps, i, i, false);
  return stamps;
}

TimestampLayout make_whole_run_layout(size_t dispatches) {
  TimestampLayout stamps = make_layout_without_spans(dispatches);
  if (dispatches > 0)
    add_span(stamps, 0, dispatches - 1, false);
  else
    ++stamps.count;
  return stamps;
}

TimestampLayout plan_timestamps(std::span<const Dispatch> dispatches, std::span<const Barrier> barriers, ProfileLevel level) {
  if (level == ProfileLevel::execution || dispatches.empty()) return make_whole_run_layout(dispatches.size());
  TimestampLayout stamps = make_layout_without_spans(dispatches.size());
  for (size_t first = 0, next = 1; first < dispatches.size(); first = next++) {
    while (level == ProfileLevel::node && next < dispatches.size() && dispatches[next].label == dispatches[first].label) ++next;
    add_span(stamps, first, next - 1, barriers[first] != Barrier::none);
  }
  return stamps;
}

std::shared_ptr<const std::vector<ProfiledDispatch>> describe_dispatches(std::span<const Dispatch> dispatches,
                                                                         std::span<const Barrier> barriers) {
  auto all = std::make_shared<std::vector<ProfiledDispatch>>();
  for (size_t i = 0; i < dispatches.size(); ++i) {
    const Dispatch& dispatch = dispatches[i];
    ProfiledDispatch& profiled = all->emplace_back();
    profiled.label = dispatch.label;
    profiled.kernel = dispatch.kernel->name();
    profiled.storage = name(dispatch.kernel->shader()->options.storage);
    profiled.groups = dispatch.groups;
    profiled.local_size = dispatch.kernel->local_size();
    profiled.flop = dispatch.flop;
    profiled.barrier = barriers[i] != Barrier::none;
    profiled.guarded = dispatch.guard.buffer != nullptr;
    for (size_t k = 0; k < dispatch.buffers.size(); ++k) {
      const ResourceAccess access = dispatch.kernel->interface().bindings[k].access;
      const uint64_t bytes = dispatch.buffers[k].buffer ? dispatch.buffers[k].bytes : 0;
      if (access != ResourceAccess::write) profiled.read_bytes += bytes;
      if (access != ResourceAccess::read) profiled.written_bytes += bytes;
    }
  }
  return all;
}

void append_profiled_spans(const TimestampLayout& stamps, std::span<const uint64_t> ticks, uint64_t base, double tick_nanoseconds,
                           ProfiledRun& run) {
  const auto at = [&](uint32_t stamp) { return static_cast<double>(static_cast<int64_t>(ticks[stamp] - base)) * tick_nanoseconds; };
  run.begin = at(0);
  run.end = at(static_cast<uint32_t>(ticks.size()) - 1);
  for (const TimestampLayout::TimestampSpan& span : stamps.spans)
    run.spans.push_back({span.first, span.last, at(span.before), at(span.ready), at(span.end)});
}

}  // namespace pumice
