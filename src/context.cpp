#include "device/context.h"

#include <thread>

#include "bindings.h"
#include "core/error.h"
#include "core/interrupts.h"
#include "core/log.h"
#include "device/context_options.h"
#include "device/device_macros.h"
#include "device/driver/device_info.h"
#include "device/driver/validation_log.h"
#include "device/pipeline.h"
#include "device/pipeline_executables.h"
#include "device/pipeline_log.h"
#include "device/spare_context.h"
#include "dispatch/kernel/driver_bug_test.h"
#include "dispatch/kernel/feature_trial.h"
#include "graph/binding/plan_without_spills.h"

namespace pumice {
namespace {

// Returns all fields in order of declaration, for pickling and hashing.
auto get_fields(const MatrixShape& shape) {
  return py::make_tuple(shape.m, shape.n, shape.k, shape.a, shape.b, shape.c, shape.result);
}

MatrixShape matrix_shape_from_fields(const py::tuple& fields) {
  if (fields.size() != 7) throw py::value_error("this MatrixShape was pickled by another version of pumice");
  return {fields[0].cast<uint32_t>(),    fields[1].cast<uint32_t>(),    fields[2].cast<uint32_t>(),   fields[3].cast<std::string>(),
          fields[4].cast<std::string>(), fields[5].cast<std::string>(), fields[6].cast<std::string>()};
}

py::tuple get_fields(const DeviceInfo& self) {
  py::list matrices;
  for (const MatrixShape& shape : self.matrices) matrices.append(get_fields(shape));
  return py::make_tuple(self.index, self.name, static_cast<int>(self.kind), self.uuid, self.pci, self.driver, self.driver_info,
                        self.driver_uuid, self.driver_id, self.vendor_id, self.device_id, self.api_version, self.driver_version,
                        self.memory_bytes, self.features, self.limits, self.extensions, matrices, self.restrictions);
}

DeviceInfo device_info_from_fields(const py::tuple& fields) {
  if (fields.size() != 19) throw py::value_error("this DeviceInfo was pickled by another version of pumice");
  DeviceInfo device_info;
  size_t next = 0;
  const auto read_field = [&](auto& field) { field = fields[next++].template cast<std::decay_t<decltype(field)>>(); };
  int kind = 0;
  read_field(device_info.index), read_field(device_info.name), read_field(kind), read_field(device_info.uuid), read_field(device_info.pci),
      read_field(device_info.driver), read_field(device_info.driver_info);
  read_field(device_info.driver_uuid), read_field(device_info.driver_id), read_field(device_info.vendor_id),
      read_field(device_info.device_id), read_field(device_info.api_version), read_field(device_info.driver_version);
  read_field(device_info.memory_bytes), read_field(device_info.features), read_field(device_info.limits),
      read_field(device_info.extensions);
  if (kind < 0 || kind > static_cast<int>(DeviceKind::other)) throw py::value_error("the pickled DeviceInfo has an unknown kind");
  device_info.kind = static_cast<DeviceKind>(kind);
  for (const auto& shape : fields[next++].cast<py::sequence>())
    device_info.matrices.push_back(matrix_shape_from_fields(shape.cast<py::tuple>()));
  read_field(device_info.restrictions);
  return device_info;
}

// A driver quirk of a context, as exposed to Python.
struct DriverQuirk {
  std::string name, summary, workaround, test;
  bool detected;
};

std::vector<DriverQuirk> find_driver_quirks(const std::shared_ptr<Context>& context) {
  const QuirkSet all = get_driver_quirks(context), detected = get_detected_quirks(context);
  std::vector<DriverQuirk> quirks;
  for (size_t i = 0; i < list_quirk_kinds().size(); ++i) {
    const QuirkKind& kind = list_quirk_kinds()[i];
    if (all.has(static_cast<Quirk>(i)))
      quirks.push_back({std::string(kind.name), std::string(kind.summary), std::string(kind.answer), std::string(kind.test),
                        detected.has(static_cast<Quirk>(i))});
  }
  return quirks;
}

// Returns a getter for a deprecated attribute: it warns and returns the field.
template <typename T>
auto make_deprecated_getter(const char* old_name, T DriverQuirk::* field) {
  return [old_name, field](const DriverQuirk& self) {
    warn_renamed(old_name);
    return self.*field;
  };
}

void bind_driver_quirk(py::module_& module) {
  py::class_<DriverQuirk>(module, "DriverQuirk",
                          "A driver behaviour that deviates from the Vulkan specification or that the engine has to work around.")
      .def_readonly("name", &DriverQuirk::name)
      .def_readonly("summary", &DriverQuirk::summary, "One sentence: what the driver does.")
      .def_readonly("workaround", &DriverQuirk::workaround, "One sentence: how the engine works around it.")
      .def_readonly("test", &DriverQuirk::test, "The test that demonstrates the quirk.")
      .def_readonly(
          "detected", &DriverQuirk::detected,
          "Whether a trial on this driver detected the quirk. If not, the driver is known to have it, or the `quirks` argument of "
          "Context names it.")
      .def_property_readonly("answer", make_deprecated_getter("DriverQuirk.answer", &DriverQuirk::workaround))
      .def_property_readonly("shown", make_deprecated_getter("DriverQuirk.shown", &DriverQuirk::detected))
      .def("__repr__", [](const DriverQuirk& self) { return "<DriverQuirk " + self.name + ": " + self.summary + ">"; });
}

void bind_matrix_shape(py::module_& module) {
  py::class_<MatrixShape>(module, "MatrixShape", "A cooperative matrix shape at subgroup scope: [m, k] x [k, n] -> [m, n].")
      .def_readonly("m", &MatrixShape::m)
      .def_readonly("n", &MatrixShape::n)
      .def_readonly("k", &MatrixShape::k)
      .def_readonly("a", &MatrixShape::a)
      .def_readonly("b", &MatrixShape::b)
      .def_readonly("c", &MatrixShape::c)
      .def_readonly("result", &MatrixShape::result)
      .def(
          "__eq__", [](const MatrixShape& self, const MatrixShape& other) { return self == other; }, py::is_operator())
      .def("__hash__", [](const MatrixShape& self) { return py::hash(get_fields(self)); })
      .def(py::pickle([](const MatrixShape& self) { return py::tuple(get_fields(self)); }, &matrix_shape_from_fields))
      .def("__repr__", [](const MatrixShape& self) {
        return "MatrixShape(" + std::to_string(self.m) + "x" + std::to_string(self.n) + "x" + std::to_string(self.k) + ", " + self.a +
               " x " + self.b + " + " + self.c + " -> " + self.result + ")";
      });
}

void bind_device_info(py::module_& module) {
  bind_matrix_shape(module);
  py::class_<DeviceInfo>(module, "DeviceInfo",
                         "Identity, kind, features and limits of a Vulkan device. A value: comparable, hashable and picklable.")
      .def_readonly("index", &DeviceInfo::index, "Index of the device in devices(); -1 if the environment hides the device.")
      .def_readonly("name", &DeviceInfo::name)
      .def_property_readonly(
          "kind", [](const DeviceInfo& self) { return std::string(name(self.kind)); },
          "'discrete', 'integrated', 'virtual', 'software' or 'other'.")
      .def_readonly("uuid", &DeviceInfo::uuid, "UUID of the device, 32 hexadecimal digits, stable across processes.")
      .def_readonly("pci", &DeviceInfo::pci, "PCI address ('0000:3b:00.0'); empty if unknown.")
      .def_readonly("driver", &DeviceInfo::driver)
      .def_readonly("driver_info", &DeviceInfo::driver_info)
      .def_readonly("driver_id", &DeviceInfo::driver_id, "VkDriverId of the driver.")
      .def_readonly("driver_version", &DeviceInfo::driver_version)
      .def_readonly("vendor_id", &DeviceInfo::vendor_id)
      .def_readonly("device_id", &DeviceInfo::device_id)
      .def_property_readonly(
          "api_version",
          [](const DeviceInfo& self) {
            const uint32_t version = self.api_version;
            return std::to_string(version >> 22 & 127) + "." + std::to_string(version >> 12 & 1023) + "." + std::to_string(version & 4095);
          },
          "Vulkan version, 'major.minor.patch'.")
      .def_readonly("memory_bytes", &DeviceInfo::memory_bytes, "Size of the largest device-local heap in bytes.")
      .def_readonly("features", &DeviceInfo::features, "Vulkan feature names -> whether available.")
      .def_readonly("limits", &DeviceInfo::limits, "Vulkan limit names -> values; arrays are named name_0, name_1, ...")
      .def_readonly("extensions", &DeviceInfo::extensions, "Vulkan extension names -> spec versions.")
      .def_readonly("matrices", &DeviceInfo::matrices, "Supported cooperative matrix shapes; empty if there are none.")
      .def_readonly("restrictions", &DeviceInfo::restrictions,
                    "What PUMICE_LIMITS and PUMICE_WITHOUT take from the device, as text; empty if neither is set.")
      .def(
          "__eq__", [](const DeviceInfo& self, const DeviceInfo& other) { return self == other; }, py::is_operator())
      .def("__hash__",
           [](const DeviceInfo& self) { return py::hash(py::make_tuple(self.index, self.name, self.uuid, self.driver_version)); })
      .def(py::pickle(py::overload_cast<const DeviceInfo&>(&get_fields), &device_info_from_fields))
      .def("__repr__", [](const DeviceInfo& self) {
        return "<DeviceInfo " + std::to_string(self.index) + ": '" + self.name + "', " + std::string(name(self.kind)) +
               ", uuid:" + self.uuid + ">";
      });
}

void close_context(Context& self, std::optional<double> timeout) {
  if (timeout && !(*timeout >= 0)) throw BindingError("K6", "timeout", "", "a non-negative number of seconds", std::to_string(*timeout));
  {
    const GilRelease release;
    self.close(check_signals, timeout);
  }
  forward_log();
}

bool is_shutting_down = false;  // set at interpreter shutdown, after which signals are not checked

// Returns whether an interrupt is pending. Destructors that wait call it on any thread. Leaves the interrupt pending, so that it is raised
// afterwards.
bool is_interrupt_pending() {
  if (is_shutting_down || !Py_IsInitialized()) return false;
  const py::gil_scoped_acquire gil;
  const py::error_scope saved_error;
  if (PyErr_CheckSignals() == 0) return false;
  PyErr_Clear();
  PyErr_SetInterrupt();
  return true;
}

std::thread::id importing_thread;

// Checks signals and forwards the log, on the importing thread only: other threads do not handle signals, and acquiring the GIL there could
// deadlock.
void check_signals_and_forward() {
  if (std::this_thread::get_id() != importing_thread) return;
  check_signals();
  const py::gil_scoped_acquire gil;
  forward_log();
}

// Waits for all executions at interpreter shutdown, while logging still works.
void finish_at_exit() {
  try {
    const GilRelease release;
    finish_live_contexts(check_signals);
  } catch (...) {
    is_shutting_down = true;
    forward_log();
    throw;
  }
  is_shutting_down = true;
  forward_log();
}

void bind_memory_counts(py::module_& module) {
  py::class_<MemoryUsage>(module, "MemoryCounts", "Device memory in use by a Context.")
      .def_readonly("buffers", &MemoryUsage::buffers)
      .def_readonly("buffer_bytes", &MemoryUsage::buffer_bytes)
      .def_readonly("images", &MemoryUsage::images)
      .def_readonly("image_bytes", &MemoryUsage::image_bytes)
      .def_readonly("blocks", &MemoryUsage::blocks)
      .def_readonly("block_bytes", &MemoryUsage::block_bytes);
}

using ContextClass = py::class_<Context, std::shared_ptr<Context>>;

// Binds the constructor, which chooses the device.
void bind_context_creation(ContextClass& context) {
  context
      .def(py::init([](const std::string& device, const std::vector<std::string>& without, const LimitMask& limits,
                       const std::vector<std::string>& quirks, bool compile_only) {
             const GilRelease release;
             return open_context({device, without, limits, quirks, compile_only});
           }),
           py::arg("device") = "", py::arg("without") = std::vector<std::string>{}, py::arg("limits") = LimitMask{},
           py::arg("quirks") = std::vector<std::string>{}, py::arg("compile_only") = false,
           "Open a device.\n"
           "device: '' (PUMICE_DEVICE, or else the best device), 'uuid:...', 'pci:...', an index, a kind ('discrete', 'software') or part "
           "of a name.\n"
           "without: features and extensions to disable, to test fallbacks.\n"
           "limits: Vulkan limit names -> values to use instead of the device's, to test less capable devices; "
           "'maxComputeWorkGroupCount' sets all three axes, 'maxComputeWorkGroupCount_1' one of them.\n"
           "quirks: names of DriverQuirks to assume, to test their workarounds.\n"
           "compile_only: compile and record everything, but execute nothing; reading a result raises UnsupportedError. The driver trial "
           "does not run, and the driver may be one without its hardware. PUMICE_COMPILE_ONLY=1 sets it for all contexts.\n"
           "Raise DeviceError with the list of devices if none matches. Raise UnsupportedError for names that the engine does not use, and "
           "for limits that the device does not have.")
      .def(py::init([](const Integer& index) {
             const GilRelease release;
             return open_context({index.text(), {}, {}});
           }),
           py::arg("index"), "Open the device at this index of devices().");
}

// Binds properties and counters.
void bind_context_properties(ContextClass& context) {
  context
      .def_property_readonly("info", &Context::info, py::return_value_policy::reference_internal,
                             "The device, with the features enabled in this context.")
      .def_property_readonly("choice", &Context::choice_reason, "Why this device was chosen.")
      .def_property_readonly("compile_only", &Context::compile_only, "Whether this context only compiles and records.")
      .def_property_readonly(
          "pipelines",
          [](Context& self) {
            py::typing::List<Record> pipelines;
            for (const auto& record : self.list_pipeline_records())
              pipelines.append(make_pipeline_record(*record, is_pipeline_used(self, *record)));
            return pipelines;
          },
          "The pipelines of a compile-only context in order of creation: kernel, key, storage, local_size, constants, used (whether "
          "a recording dispatches it; others are rejected variants), compile_seconds, failure, the driver's `executables`, and their "
          "`summary`. "
          "Empty in other contexts.")
      .def("require_execution", &Context::require_execution, py::arg("result"),
           "Raise UnsupportedError in a compile-only context, naming the result that it does not have.")
      .def_property_readonly("without", &get_masked_features, "The features and extensions disabled in this context.")
      .def_property_readonly("driver_quirks", py::cpp_function(&find_driver_quirks, py::call_guard<GilRelease>()),
                             "The DriverQuirks of this driver. Runs the driver trial if it has not run yet; never in a compile-only "
                             "context.")
      .def("feature", &Context::feature, py::arg("name"), "Return whether a Vulkan feature is enabled.")
      .def("limit", &Context::limit, py::arg("name"), "Return a Vulkan limit by name.")
      .def_property_readonly("memory", &Context::get_memory_usage, "Counts of live buffers, images and device allocations.")
      .def_property_readonly("pipelines_created", &Context::pipelines_created)
      .def_property_readonly("completed", &Context::get_last_completed, "Id of the last execution that finished.")
      .def_property_readonly("submitted", &Context::get_last_submitted, "Id of the last execution that was submitted.");
}

// Binds waits and close().
void bind_context_waits(ContextClass& context) {
  context
      .def(
          "wait",
          [](Context& self, const Integer& id, std::optional<double> timeout) {
            wait_for_execution(self, parse_execution_id(id), timeout);
            collect_finished_messages(self);
          },
          py::arg("id"), py::arg("timeout") = py::none(),
          "Wait for the execution with this id.\n"
          "timeout: in seconds.\n"
          "Raise StateError (L7) if no execution has this id, TimeoutError, DeviceLostError, OutOfBoundsError.")
      .def(
          "wait_idle",
          [](Context& self) {
            wait_for_execution(self, self.get_last_submitted(), {});
            collect_finished_messages(self);
          },
          "Wait for all work submitted so far. Raise DeviceLostError, or OutOfBoundsError if a debugged kernel failed in an execution and "
          "no wait has raised that yet.")
      .def_property_readonly("closed", &Context::closed)
      .def_property_readonly("abandoned", &Context::abandoned,
                             "Whether close() gave up on an execution that did not finish. Memory that the device may still use is then "
                             "never freed, and device calls raise DeviceLostError.")
      .def_property_readonly("patience", &Context::patience_seconds,
                             "Seconds without a finished execution after which close() and process exit abandon the context: "
                             "PUMICE_ABANDON_SECONDS (default 30) plus the longest execution waited for so far.")
      .def("close", &close_context, py::arg("timeout") = py::none(),
           "Wait for the work in flight and free the device. Idempotent.\n"
           "timeout: abandon the context if no execution finishes for this many seconds (None: `patience`); this is logged as an error to "
           "the logger \"pumice\". Ctrl-C interrupts the wait and leaves the context open.")
      .def("__enter__", [](std::shared_ptr<Context> self) { return self; })
      .def("__exit__", [](Context& self, const py::args&) { close_context(self, {}); })
      .def("__repr__", [](const Context& self) {
        return "<Context '" + self.info().name + "' (" + std::string(name(self.info().kind)) + ")" +
               (self.compile_only() ? ", compile-only" : "") + (self.closed() ? ", closed>" : ">");
      });
}

// Binds derived and spare contexts.
void bind_derived_contexts(py::module_& module) {
  module.def("another_context", &derive_context, py::arg("context").none(false), py::arg("without") = std::vector<std::string>{},
             py::call_guard<GilRelease>(),
             "Create another context of the same device with the same options (without, limits, quirks), and disable these features and "
             "extensions too.");
  module.def("take_spare", &take_spare_context, py::arg("context").none(false), py::call_guard<GilRelease>(),
             "Return the spare context kept for this device and hand over its ownership; None if there is no usable spare. Raise "
             "StateError if the context is closed, DeviceLostError if its device is lost.");
  module.def("keep_spare", &store_spare_context, py::arg("context").none(false), py::arg("spare").none(false), py::call_guard<GilRelease>(),
             "Keep an idle context as a spare until take_spare() returns it or `context` is closed, which closes the spare too. Only the "
             "latest spare is kept; a replaced or unusable one is closed, and so is the spare of an unusable context. Raise StateError if "
             "both contexts are the same.");
}

// Binds functions that list the devices, and functions on the whole process.
void bind_devices(py::module_& module) {
  module.def(
      "device_macros", [](Context& context) { return *get_device_macros(context); }, py::arg("context").none(false),
      "Return the device macros of the GLSL extension, ncnn_<name> -> text, for extensions, features, properties and limits. Use them as "
      "the profile of compile() and ShaderOptions.");
  module.def("lose_device_after", &simulate_device_loss_after, py::arg("context").none(false), py::arg("submissions"),
             "Simulate a lost device: the queue reports it lost after this many further submissions. For tests.");
  module.def("take_validation_messages", &take_validation_messages,
             "Return the messages of the Khronos validation layer since the last call (needs PUMICE_VALIDATION=1).");
  module.def(
      "log_pipelines", [](const std::string& path, const std::set<std::string>& skipped) { open_pipeline_log(path, skipped); },
      py::arg("path"), py::arg("skipped") = std::set<std::string>{},
      "Append a line to a file before and after each pipeline is created in a compile-only context. Pipelines that fail, or whose key is "
      "in "
      "`skipped`, are left out of recordings instead of raising. For compile-check.");
  module.def(
      "simulate_spills", &simulate_spills, py::arg("patterns"),
      "Treat kernel variants whose names match one of these wildcard patterns as spilling registers, in later plans of this process. "
      "For tests.");
  module.def("distinct_pipelines", &list_distinct_pipelines,
             "Return a key for each distinct pipeline (shader, constants, subgroup size) that this process has created, i.e. that a driver "
             "had to compile.");
  module.def(
      "summarize_statistics",
      [](const std::vector<std::pair<std::string, uint64_t>>& statistics) {
        PipelineExecutable executable;
        for (const auto& [name, value] : statistics) executable.statistics.push_back({name, {}, value});
        return Record(make_summary_record({executable}));
      },
      py::arg("statistics"), "Return the summary that the engine makes of these driver statistics. For tests.");
  module.def(
      "take_log",
      [] {
        std::vector<std::pair<int, std::string>> entries;
        for (auto& [level, text] : take_log_messages()) entries.emplace_back(static_cast<int>(level), std::move(text));
        return entries;
      },
      "Return the engine's log messages since the last call: (level of the logging module, text).");
}

}  // namespace

void bind_context(py::module_& module) {
  bind_device_info(module);
  bind_driver_quirk(module);
  bind_memory_counts(module);
  ContextClass context(module, "Context",
                       "A logical device with its queue, timeline, allocator and features. Thread-safe. Also a context manager.");
  bind_context_creation(context);
  bind_context_properties(context);
  bind_context_waits(context);
  importing_thread = std::this_thread::get_id();
  set_interrupt_hooks({.probe = &is_interrupt_pending, .check = &check_signals_and_forward});
  py::module_::import("atexit").attr("register")(py::cpp_function(&finish_at_exit));
  bind_derived_contexts(module);
  bind_devices(module);
}

}  // namespace pumice
