#include "graph/program/execution.h"

#include "bindings.h"
#include "core/error.h"

namespace pumice {
namespace {

// An Execution in Python, with the arrays passed to set_output(); results are views of them.
struct PyExecution {
  PyExecution(std::shared_ptr<Program> program, bool measure, bool filled)
      : execution(std::make_shared<Execution>(program, measure, filled)), arrays(program->outputs().size()) {}
  ~PyExecution() {
    const GilRelease release;  // the destructor may wait for the execution's thread
    execution.reset();
  }

  std::shared_ptr<Execution> execution;
  std::vector<py::array> arrays;

  const Program& program() const { return *execution->program(); }
};

// Returns the WeakSet of live PyExecutions, which is never destroyed.
const py::object& get_live_executions() {
  static const auto* set = new py::object(py::module_::import("weakref").attr("WeakSet")());
  return *set;
}

using Events = std::vector<std::shared_ptr<Event>>;
using Results = py::typing::Dict<py::str, py::array>;

void set_input(PyExecution& self, const std::string& name, const py::object& value) {
  const py::array array = convert_to_numpy(value, "input '" + name + "'");
  const DType dtype = get_engine_dtype(array.dtype(), "input '" + name + "'");
  py::array packed = pack_elements(array, dtype);
  const auto* data = static_cast<const std::byte*>(packed.data());
  self.execution->set_input(name, {TensorDesc(dtype, get_shape(array)), keep_alive(std::move(packed)), data});
}

void set_output(PyExecution& self, const std::string& name, const std::optional<py::array>& array) {
  const auto& outputs = self.program().outputs();
  std::optional<OutputBuffer> buffer;
  if (array) {
    const std::string slot = "output '" + name + "'";
    const DType dtype = get_engine_dtype(array->dtype(), slot);  // the execution checks it against the output's dtype
    check_output_array(*array, dtype, slot, name);
    py::array output_array = *array;
    auto* data = static_cast<std::byte*>(output_array.mutable_data());
    buffer = OutputBuffer{dtype, data, static_cast<uint64_t>(array->nbytes()), keep_alive(std::move(output_array))};
  }
  self.execution->set_output(name, std::move(buffer));
  for (size_t j = 0; j < outputs.size(); ++j)
    if (outputs[j].name == name) self.arrays[j] = array.value_or(py::array());
}

ExecutionSettings make_execution_settings(std::optional<double> timeout, std::optional<double> duration,
                                          std::optional<double> loop_timeout) {
  const ExecutionSettings settings{timeout, duration, validate_loop_timeout(loop_timeout)};
  forward_log();
  return settings;
}

// Returns the outputs by name: new arrays, or the written part of the arrays passed to set_output().
Results make_result_arrays(const PyExecution& self) {
  Results results;
  const auto& outputs = self.program().outputs();
  for (size_t j = 0; j < outputs.size(); ++j) {
    const HostTensor& output = self.execution->output(j);
    const TensorDesc& desc = output.desc;
    py::array array;
    if (self.execution->has_buffer(j)) {
      const py::object flat = self.arrays[j].attr("reshape")(-1);
      array = flat[py::slice(0, desc.elements(), 1)].attr("reshape")(make_size_tuple(desc.shape)).cast<py::array>();
    } else {
      array = copy_to_array(output);
    }
    results[py::str(outputs[j].name)] = std::move(array);
  }
  return results;
}

Results compute_outputs(PyExecution& self, std::optional<double> timeout, std::optional<double> loop_timeout) {
  const ExecutionSettings settings = make_execution_settings(timeout, {}, loop_timeout);
  {
    const GilRelease release;
    self.execution->compute(settings, check_signals);
  }
  return make_result_arrays(self);
}

std::shared_ptr<Event> start_execution(const py::object& self, const Events& wait_for, std::optional<double> timeout,
                                       std::optional<double> duration, std::optional<double> loop_timeout) {
  const ExecutionSettings settings = make_execution_settings(timeout, duration, loop_timeout);
  auto& execution = *self.cast<PyExecution&>().execution;
  const GilRelease release;
  return std::const_pointer_cast<Event>(execution.start({wait_for.begin(), wait_for.end()}, settings));
}

Record make_report_dict(const PyExecution& self) {
  const RunReport report = self.execution->report();
  py::list loops;
  for (const LoopReport& loop : report.loops) {
    py::dict loop_record;
    loop_record["node"] = loop.node, loop_record["kind"] = loop.kind, loop_record["entries"] = loop.entries,
    loop_record["trips"] = loop.trips, loop_record["host_syncs"] = loop.host_syncs, loop_record["wasted_iterations"] = loop.wasted;
    loops.append(loop_record);
  }
  Record result;
  result["submissions"] = report.submissions, result["dispatches"] = report.dispatches, result["host_syncs"] = report.host_syncs,
  result["read_backs"] = report.read_backs, result["loops"] = loops;
  return result;
}

py::typing::Dict<py::str, double> make_timing_dict(const PyExecution& self) {
  const ExecutionTimes times = self.execution->times();
  py::typing::Dict<py::str, double> result;
  result["on_device"] = times.on_device, result["in_driver"] = times.in_driver,
  result["on_device_after_fence"] = times.on_device_after_fence, result["in_driver_after_fence"] = times.in_driver_after_fence;
  return result;
}

std::string get_state_name(const PyExecution& self) {
  constexpr const char* names[] = {"preparation", "computation", "completed"};
  return names[static_cast<size_t>(self.execution->state())];
}

Sizes get_output_shape(const PyExecution& self, const std::string& name) {
  const auto& outputs = self.program().outputs();
  for (size_t j = 0; j < outputs.size(); ++j)
    if (outputs[j].name == name) return make_size_tuple(self.execution->output_shape(j));
  throw BindingError("K4", "output '" + name + "'", name, "an output of program '" + self.program().name() + "'", "'" + name + "'");
}

void bind_event(py::module_& module) {
  py::class_<Event, std::shared_ptr<Event>>(module, "Event", "Completion of an execution started with Execution.start().")
      .def_property_readonly("done", &Event::done)
      .def(
          "wait",
          [](const Event& self, std::optional<double> timeout) {
            const GilRelease release;
            self.wait(timeout, check_signals);
          },
          py::arg("timeout") = py::none(), "Wait for at most `timeout` seconds. Raise TimeoutError, or the error of the execution.");
}

void bind_burst(py::module_& module) {
  py::class_<Burst, std::shared_ptr<Burst>>(module, "Burst", "A sequence of executions of one program, one at a time.")
      .def(
          "compute",
          [](Burst& self, PyExecution& execution, std::optional<double> timeout, std::optional<double> loop_timeout) {
            const ExecutionSettings settings = make_execution_settings(timeout, {}, loop_timeout);
            {
              const GilRelease release;
              self.compute(*execution.execution, settings, check_signals);
            }
            return make_result_arrays(execution);
          },
          py::arg("execution"), py::arg("timeout") = py::none(), py::arg("loop_timeout") = kDefaultLoopSeconds,
          "Run an execution like Execution.compute(). Raise StateError while another execution of this burst is running, BindingError if "
          "the execution belongs to another program.");
}

using ExecutionClass = py::class_<PyExecution, std::shared_ptr<PyExecution>>;

void bind_execution_class(ExecutionClass& execution) {
  execution.def_property_readonly("program", [](const PyExecution& self) { return self.execution->program(); })
      .def_property_readonly("state", &get_state_name, "'preparation', 'computation' or 'completed'.")
      .def("set", &set_input, py::arg("name"), py::arg("array"),
           "Set an input. A contiguous array is read when the execution runs; any other is copied now. Raise BindingError for an unknown "
           "input or a wrong dtype.")
      .def("set_output", &set_output, py::arg("name"), py::arg("array"),
           "Set the array that an output is written to, starting at its first element. It must be writable, contiguous and of the output's "
           "dtype; None allocates new arrays. Raise BindingError.")
      .def("compute", &compute_outputs, py::arg("timeout") = py::none(), py::arg("loop_timeout") = kDefaultLoopSeconds,
           "Run the program and return the outputs by name.\n"
           "timeout: for the whole run, in seconds.\n"
           "loop_timeout: see Program.__call__.\n"
           "Raise StateError, BindingError, TimeoutError, GraphError, or OutputSizeError if an array of set_output() is too small.")
      .def("start", &start_execution, py::arg("wait_for") = Events(), py::arg("timeout") = py::none(), py::arg("duration") = py::none(),
           py::arg("loop_timeout") = kDefaultLoopSeconds, py::keep_alive<0, 1>(),
           "Return an Event immediately, and run the program once all events in `wait_for` have ended. If one of them fails or has failed, "
           "this execution fails with its error.\n"
           "timeout: seconds from this call.\n"
           "duration: seconds from the end of the last event in `wait_for`.\n"
           "Raise BindingError if an output has an unknown shape and no array.")
      .def_property_readonly("outputs", &make_result_arrays,
                             "The outputs by name. Raises StateError if the execution has not finished or has failed.")
      .def("output_shape", &get_output_shape, py::arg("name"),
           "Return the actual shape of an output, even after OutputSizeError. Raise StateError if the execution has not finished or has "
           "failed otherwise.")
      .def_property_readonly(
          "report", &make_report_dict,
          "Counts of the last run: submissions, dispatches, host_syncs, and read_backs (the host_syncs that read elements which shapes "
          "depend on); per entered loop: node, kind, entries, trips, host_syncs, wasted_iterations.")
      .def_property_readonly(
          "timing", &make_timing_dict,
          "Times of the last run in seconds: on_device, in_driver (includes on_device), and both with _after_fence, measured from the end "
          "of the last event waited for. Raises StateError without program.execution(measure=True).")
      .def("__repr__",
           [](const PyExecution& self) { return "<Execution of '" + self.program().name() + "': " + get_state_name(self) + ">"; });
}

}  // namespace

void bind_execution(py::module_& module) {
  bind_event(module);
  ExecutionClass execution(module, "Execution",
                           "A reusable execution of a program. Calls during a run raise StateError; otherwise thread-safe.");
  bind_execution_class(execution);
  bind_burst(module);
  // Stop all threads before the interpreter shuts down.
  py::module_::import("atexit").attr("register")(py::cpp_function([] {
    for (const auto& item : py::list(get_live_executions())) {
      const auto live_execution = item.cast<PyExecution&>().execution;
      const GilRelease release;
      live_execution->stop();
    }
  }));
}

void bind_program_executions(py::class_<Program, std::shared_ptr<Program>>& program) {
  program
      .def(
          "execution",
          [](const std::shared_ptr<Program>& self, bool measure, bool filled) {
            auto execution_object = std::make_shared<PyExecution>(self, measure, filled);
            get_live_executions().attr("add")(py::cast(execution_object));
            return execution_object;
          },
          py::arg("measure") = false, py::arg("filled") = false,
          "Create an Execution of this program.\n"
          "measure: measure times, for Execution.timing.\n"
          "filled: see __call__.")
      .def("burst", [](const std::shared_ptr<Program>& self) { return std::make_shared<Burst>(self); }, "Create a Burst of this program.");
}

}  // namespace pumice
