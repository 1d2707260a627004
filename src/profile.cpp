#include "bindings.h"
#include "core/error.h"
#include "core/host_trace.h"
#include "dispatch/profiler.h"

namespace pumice {
namespace {

ProfileLevel parse_profile_level(const std::string& level) {
  if (level == "execution") return ProfileLevel::execution;
  if (level == "node") return ProfileLevel::node;
  if (level == "dispatch") return ProfileLevel::dispatch;
  throw Error("level: expected 'execution', 'node' or 'dispatch', given '" + level + "'");
}

Record make_record(const ProfiledDispatch& profiled) {
  Record record;
  record["node"] = profiled.label;
  record["kernel"] = profiled.kernel;
  record["storage"] = profiled.storage;
  record["groups"] = profiled.groups;
  record["local_size"] = profiled.local_size;
  record["read_bytes"] = profiled.read_bytes;
  record["written_bytes"] = profiled.written_bytes;
  record["flop"] = profiled.flop;
  record["barrier"] = profiled.barrier;
  record["guarded"] = profiled.guarded;
  return record;
}

// Converts profiled runs to Python. Runs of the same recording share one list of dispatches.
class ProfiledRunConverter {
 public:
  Record make_record(const ProfiledRun& run) {
    py::list spans;
    for (const auto& span : run.spans) spans.append(py::make_tuple(span.first, span.last, span.before, span.ready, span.end));
    Record record;
    record["device"] = run.context->info().name;
    record["context"] = reinterpret_cast<uintptr_t>(run.context.get());
    record["id"] = run.id;
    record["submitted"] = run.submitted;
    record["cold"] = run.cold;
    record["fine"] = run.fine;
    record["recording"] = reinterpret_cast<uintptr_t>(run.dispatches.get());
    record["begin"] = run.begin;
    record["end"] = run.end;
    record["dispatches"] = get_dispatch_records(run);
    record["spans"] = spans;
    return record;
  }

 private:
  py::list get_dispatch_records(const ProfiledRun& run) {
    const auto [found, is_new] = dispatch_lists_.emplace(run.dispatches.get(), py::list());
    if (is_new)
      for (const auto& profiled : *run.dispatches) found->second.append(pumice::make_record(profiled));
    return found->second;
  }

  std::map<const void*, py::list> dispatch_lists_;
};

Record make_record(const HostTraceEvent& event) {
  Record record;
  record["kind"] = event.kind;
  record["name"] = event.name;
  record["begin"] = event.begin;
  record["end"] = event.end;
  record["bytes"] = event.bytes;
  record["thread"] = event.thread;
  return record;
}

Record stop_profile() {
  std::vector<HostTraceEvent> events;
  std::vector<ProfiledRun> runs;
  {
    const GilRelease release;
    const auto profiler = stop_profiler();
    events = stop_trace();
    if (profiler) runs = profiler->finish();
  }
  py::list host, run_records;
  for (const auto& event : events) host.append(make_record(event));
  ProfiledRunConverter records;
  for (const auto& run : runs) run_records.append(records.make_record(run));
  Record record;
  record["host"] = host;
  record["runs"] = run_records;
  return record;
}

}  // namespace

void bind_profile(py::module_& module) {
  module.def(
      "_start_profile",
      [](const std::string& level, uint64_t every) {
        if (!start_profiler(parse_profile_level(level), every))
          throw StateError("a profile is already active; only one can measure at a time");
        start_trace();
      },
      py::arg("level"), py::arg("every"),
      "Start a profile: timestamp the first and every `every`th execution of each recording at this level, and all others as a whole. "
      "Raise StateError if a profile is active.");
  module.def("_stop_profile", &stop_profile,
             "Stop the profile and return its `host` events and its `runs`, the executions with timestamps.");
  module.def(
      "_profile_event",
      [](const std::string& kind, const std::string& name, int64_t begin, int64_t end, uint64_t bytes) {
        add_event({kind, name, begin, end, bytes});
      },
      py::arg("kind"), py::arg("name"), py::arg("begin"), py::arg("end"), py::arg("bytes") = 0,
      "Add a host event; times are integers in the unit of Python's finest performance counter.");
  module.def("_is_profiling", &is_tracing, "Return whether a profile is active.");
}

}  // namespace pumice
