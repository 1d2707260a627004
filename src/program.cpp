#include "graph/program/program.h"

#include <chrono>
#include <cstring>

#include "bindings.h"
#include "core/error.h"
#include "core/host_trace.h"
#include "core/number_format.h"
#include "graph/control_flow/control_flow_observation.h"
#include "graph/region/intermediate_tensor_capture.h"

namespace pumice {
namespace {

constexpr size_t kLargeBytes = 256 << 10;  // copies of at least this size release the GIL
constexpr uint64_t kDefaultObservedRuns = 2;

// Arguments of a program call in graph order. Checks everything but shapes, which are checked when the program is bound.
class ProgramArguments {
 public:
  ProgramArguments(const Program& program, const ArrayLikes& args) {
    const auto& inputs = program.inputs();
    if (args.size() != inputs.size()) throw BindingError("K4", "inputs", "", describe_inputs(inputs), std::to_string(args.size()));
    arrays_.reserve(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) add(inputs[i], args[i]);
    // Take pointers only now, because arrays_ no longer reallocates.
    for (const auto& array : arrays_)
      shapes_.emplace_back(reinterpret_cast<const int64_t*>(array.shape()), static_cast<size_t>(array.ndim()));
    for (const auto& bytes : packed_arrays_) data_.push_back(static_cast<const std::byte*>(bytes.data()));
  }

  std::span<const ShapeView> shapes() const { return shapes_; }
  std::span<const std::byte* const> data() const { return data_; }

  // `is_waiting`: the caller waits for the execution, so the arrays stay unchanged until then.
  void write_to(ExecutionLease& lease, bool is_waiting) const {
    size_t bytes = 0;
    std::optional<GilRelease> release;
    for (const auto& stored_array : packed_arrays_) bytes += static_cast<size_t>(stored_array.nbytes());
    if (bytes >= kLargeBytes) release.emplace();
    for (size_t i = 0; i < data_.size(); ++i) lease.write_input(i, data_[i], is_waiting);
  }

 private:
  static std::string describe_inputs(const std::vector<ProgramValue>& inputs) {
    std::string names;
    for (const auto& input : inputs) names += (names.empty() ? "" : ", ") + input.name;
    return std::to_string(inputs.size()) + (inputs.size() == 1 ? " array (" : " arrays (") + names + ")";
  }

  void add(const ProgramValue& input, const py::object& value) {
    const std::string slot = "input '" + input.name + "'";
    py::array array = convert_to_numpy(value, slot);
    if (!array.dtype().is(get_numpy_dtype(input.dtype))) {
      const DType dtype = get_engine_dtype(array.dtype(), slot);
      if (dtype != input.dtype)
        throw BindingError("K5", slot, input.name, "an array of " + std::string(name(input.dtype)), "one of " + std::string(name(dtype)));
    }
    packed_arrays_.push_back(pack_elements(array, input.dtype));
    arrays_.push_back(std::move(array));
  }

  std::vector<py::array> arrays_, packed_arrays_;  // arrays of the caller; packed arrays to upload
  std::vector<ShapeView> shapes_;
  std::vector<const std::byte*> data_;
};

// Leases a recording and writes the arguments to its slots.
std::shared_ptr<ExecutionLease> lease_and_write_inputs(Program& self, const ProgramArguments& arguments, bool wait,
                                                       std::optional<double> timeout, bool filled = false) {
  std::shared_ptr<ExecutionLease> lease;
  {
    const GilRelease release;
    lease = self.acquire_lease(arguments.shapes(), arguments.data(), wait, timeout, check_signals);
    if (filled) lease->fill_memory(kFillPattern, check_signals);
  }
  arguments.write_to(*lease, wait);
  return lease;
}

using MaybeArrays = std::vector<std::optional<py::array>>;

// Arrays of the caller for the results, one per output; nullopt: allocate a new array.
class OutputArrays {
 public:
  OutputArrays() = default;
  OutputArrays(const Program& program, const MaybeArrays& arrays) : arrays_(arrays) {
    const auto& outputs = program.outputs();
    if (arrays.size() != outputs.size())
      throw BindingError("K4", "out", "", std::to_string(outputs.size()) + " arrays or None", std::to_string(arrays.size()));
    for (size_t j = 0; j < arrays.size(); ++j)
      if (arrays[j]) check_output_array(*arrays[j], outputs[j].dtype, "output '" + outputs[j].name + "'", outputs[j].name);
    reject_overlaps(outputs);
    for (const auto& array : arrays_) targets_.push_back(array ? static_cast<std::byte*>(const_cast<void*>(array->data())) : nullptr);
  }

  const std::optional<py::array>& operator[](size_t j) const {
    static const std::optional<py::array> none;
    return arrays_.empty() ? none : arrays_[j];
  }
  std::span<std::byte* const> get_output_addresses() const { return targets_; }
  // Rejects an array whose shape differs from the result's.
  void check_shape(const Program& program, size_t j, const TensorDesc& desc) const {
    const auto& array = (*this)[j];
    if (array && get_shape(*array) != desc.shape)
      throw BindingError("K10", "output '" + program.outputs()[j].name + "'", program.outputs()[j].name, "an array of " + to_string(desc),
                         "one of shape " + py::repr(py::tuple(array->attr("shape"))).cast<std::string>());
  }

 private:
  void reject_overlaps(const std::vector<ProgramValue>& outputs) const {
    const auto begin = [](const py::array& array) { return static_cast<const std::byte*>(array.data()); };
    const auto memory_overlaps = [&](const py::array& a, const py::array& b) {
      return a.nbytes() > 0 && b.nbytes() > 0 && begin(a) < begin(b) + b.nbytes() && begin(b) < begin(a) + a.nbytes();
    };
    for (size_t j = 0; j < arrays_.size(); ++j)
      for (size_t k = 0; k < j && arrays_[j]; ++k)
        if (arrays_[k] && memory_overlaps(*arrays_[j], *arrays_[k]))
          throw BindingError("K5", "output '" + outputs[j].name + "'", outputs[j].name,
                             "memory that does not overlap that of '" + outputs[k].name + "'", "overlapping memory");
  }

  MaybeArrays arrays_;
  std::vector<std::byte*> targets_;
};

// Callback for waits: checks signals and the time since construction. One timeout covers all waits of an execution.
class Deadline {
 public:
  explicit Deadline(std::optional<double> timeout) : timeout_(timeout) {}
  void operator()() const {
    check_signals();
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    if (timeout_ && elapsed >= *timeout_)
      throw TimeoutError("the results have not arrived after " + format_general(*timeout_) + " s; their transfer is still running", true);
  }

 private:
  std::optional<double> timeout_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

Arrays read_results(const Program& program, const ExecutionLease& lease, const Deadline& deadline, const OutputArrays& output_arrays = {}) {
  const size_t count = program.outputs().size();
  Arrays results(count);
  for (size_t j = 0; j < count; ++j) {
    program.context()->require_execution("output '" + program.outputs()[j].name + "' of '" + program.name() + "'");
    const TensorDesc& desc = lease.output_desc(j);
    const size_t bytes = desc.element_bytes();
    const auto read_to = [&](std::byte* target) {
      std::optional<GilRelease> release;
      if (bytes >= kLargeBytes) release.emplace();
      lease.read_output(j, target, deadline);
    };
    if (bits(desc.dtype) < 8) {
      std::vector<std::byte> packed(bytes);
      read_to(packed.data());
      results[j] = unpack_elements(desc.dtype, desc.shape, packed);
      continue;
    }
    output_arrays.check_shape(program, j, desc);
    py::array array = output_arrays[j] ? *output_arrays[j] : make_empty_array(desc.dtype, desc.shape);
    read_to(static_cast<std::byte*>(array.mutable_data()));
    results[j] = std::move(array);
  }
  return results;
}

// Starts an execution. If the host runs control flow or checks indices, returns only after it has finished.
Submission start_run(const Program& self, ExecutionLease& lease, std::optional<double> timeout, std::optional<double> loop_timeout,
                     const OutputArrays& output_arrays = {}) {
  if (!self.has_control_flow()) {  // with control flow, output shapes are known only at the end
    for (size_t j = 0; j < self.outputs().size(); ++j) output_arrays.check_shape(self, j, lease.output_desc(j));
    if (!self.checks_indices()) return lease.start({}, output_arrays.get_output_addresses());
  }
  const RunLimits limits{timeout, validate_loop_timeout(loop_timeout), check_signals};
  forward_log();
  const GilRelease release;
  return lease.start(limits, output_arrays.get_output_addresses());
}

Arrays call_program(Program& self, const ArrayLikes& inputs, std::optional<double> timeout, std::optional<double> loop_timeout,
                    const std::optional<MaybeArrays>& out, bool filled) {
  const HostTraceSpan span("model", self.name());
  const Deadline deadline(timeout);
  const OutputArrays output_arrays = out ? OutputArrays(self, *out) : OutputArrays();
  const ProgramArguments arguments(self, inputs);
  const auto lease = lease_and_write_inputs(self, arguments, true, timeout, filled);
  const Submission submission = start_run(self, *lease, timeout, loop_timeout, output_arrays);
  wait_for_execution(*self.context(), submission.id(), timeout);
  return read_results(self, *lease, deadline, output_arrays);
}

py::typing::Dict<py::str, py::array> call_by_name(Program& self, const Record& inputs, std::optional<double> timeout,
                                                  std::optional<double> loop_timeout, bool filled) {
  const auto& declared = self.inputs();
  ArrayLikes ordered(declared.size());
  for (size_t i = 0; i < declared.size(); ++i) {
    const py::str key(declared[i].name);
    if (!inputs.contains(key)) throw BindingError("K3", "input '" + declared[i].name + "'", declared[i].name, "an array", "nothing");
    ordered[i] = inputs[key];
  }
  for (const auto& [key, value] : inputs) {
    const auto name = py::str(key).cast<std::string>();
    if (std::none_of(declared.begin(), declared.end(), [&](const ProgramValue& input) { return input.name == name; }))
      throw BindingError("K4", "input '" + name + "'", name, "an input of program '" + self.name() + "'", "'" + name + "'");
  }
  const Arrays results = call_program(self, ordered, timeout, loop_timeout, {}, filled);
  py::typing::Dict<py::str, py::array> results_by_name;
  for (size_t j = 0; j < results.size(); ++j) results_by_name[py::str(self.outputs()[j].name)] = results[j];
  return results_by_name;
}

// An execution of a program, in flight or finished. Holds its recording until the results are fetched.
class PyProgramRun {
 public:
  PyProgramRun(std::shared_ptr<Program> program, const ArrayLikes& inputs, std::optional<double> loop_timeout)
      : program_(std::move(program)),
        lease_(lease_and_write_inputs(*program_, ProgramArguments(*program_, inputs), false, {})),
        submission_(start_run(*program_, *lease_, {}, loop_timeout)) {}

  const Submission& submission() const { return submission_; }
  // Returns whether the execution and its output transfers have finished.
  bool done() const { return !lease_ || program_->context()->get_last_completed() >= last_id(); }
  void wait(std::optional<double> timeout) const { wait_for_execution(*program_->context(), last_id(), timeout); }
  Arrays result(std::optional<double> timeout) {
    if (!lease_) return results_;
    const Deadline deadline(timeout);
    wait_for_execution(*program_->context(), submission_.id(), timeout);
    results_ = read_results(*program_, *lease_, deadline);
    lease_.reset();
    return results_;
  }

 private:
  uint64_t last_id() const { return lease_ ? std::max(submission_.id(), lease_->last_submission()) : submission_.id(); }

  std::shared_ptr<Program> program_;
  std::shared_ptr<ExecutionLease> lease_;
  Submission submission_;
  Arrays results_;
};

// Input shapes, each passed as a sequence of sizes or as an array, whose elements are then known too.
class ShapeArguments {
 public:
  ShapeArguments(const Program& program, const std::vector<py::object>& args) {
    if (args.size() != program.inputs().size())
      throw BindingError("K4", "shapes", "", std::to_string(program.inputs().size()) + " shapes", std::to_string(args.size()));
    for (size_t i = 0; i < args.size(); ++i) {
      const py::object& arg = args[i];
      const bool is_array = py::isinstance<py::array>(arg);
      if (is_array) reject_masked_array(arg, "input '" + program.inputs()[i].name + "'");
      arrays_.push_back(is_array ? pack_elements(arg.cast<py::array>(), program.inputs()[i].dtype) : py::array());
      sizes_.push_back(is_array ? get_shape(arg.cast<py::array>()) : arg.cast<Shape>());
      values_.push_back(is_array ? static_cast<const std::byte*>(arrays_.back().data()) : nullptr);
    }
    for (size_t i = 0; i < sizes_.size(); ++i) {
      if (!values_[i] && program.reads_values(i))
        throw BindingError("K3", "input '" + program.inputs()[i].name + "'", program.inputs()[i].name,
                           "an array: shapes depend on its elements", "only a shape");
      shapes_.emplace_back(sizes_[i]);
    }
  }
  std::span<const ShapeView> shapes() const { return shapes_; }
  std::span<const std::byte* const> values() const { return values_; }

 private:
  std::vector<py::array> arrays_;
  std::vector<Shape> sizes_;
  std::vector<const std::byte*> values_;
  std::vector<ShapeView> shapes_;
};

py::typing::List<Record> make_report(const Program& self) {
  py::typing::List<Record> rows;
  for (const auto& row : self.report()) {
    py::dict record;
    record["node"] = row.node, record["op"] = row.op, record["kernel"] = row.kernel, record["precision"] = row.precision,
    record["note"] = row.note;
    record["added"] = std::string(row.added ? "yes" : "");
    record["fusion"] = row.fusion ? std::string(name(*row.fusion)) : std::string();
    rows.append(record);
  }
  return rows;
}

py::typing::Dict<py::str, size_t> make_arena_report(Program& self, const std::vector<py::object>& shapes) {
  const ShapeArguments arguments(self, shapes);
  ArenaReport arena;
  {
    const GilRelease release;
    arena = self.report_arena(arguments.shapes(), arguments.values());
  }
  py::typing::Dict<py::str, size_t> result;
  result["arena_bytes"] = arena.arena_bytes, result["lower_bound_bytes"] = arena.lower_bound_bytes,
  result["persistent_bytes"] = arena.persistent_bytes;
  result["dispatches"] = arena.dispatches, result["barriers"] = arena.barriers, result["waves"] = arena.waves;
  return result;
}

py::typing::List<Record> make_plan_report(Program& self, const std::vector<py::object>& shapes) {
  const ShapeArguments arguments(self, shapes);
  std::vector<StepReport> steps;
  {
    const GilRelease release;
    steps = self.report_steps(arguments.shapes(), arguments.values());
  }
  py::typing::List<Record> result;
  for (const auto& step : steps) result.append(make_step_record(step));
  return result;
}

std::vector<DispatchTime> profile_dispatches(Program& self, const ArrayLikes& inputs) {
  const ProgramArguments arguments(self, inputs);
  const GilRelease release;
  return self.profile(arguments.shapes(), arguments.data(), check_signals);
}

Record observe_tensors(Program& self, const ArrayLikes& inputs, const std::optional<std::set<std::string>>& names,
                       std::optional<size_t> steps) {
  const ProgramArguments arguments(self, inputs);
  std::shared_ptr<IntermediateTensorCapture> run;
  {
    const GilRelease release;
    run = self.observe(arguments.shapes(), arguments.data(), {names ? &*names : nullptr, steps}, check_signals);
  }
  py::dict outputs;
  for (size_t j = 0; !steps && j < self.outputs().size(); ++j)
    outputs[py::str(self.outputs()[j].name)] = copy_to_packed_array({{}, {}, {}, {}, run->output_desc(j), 0, run->output(j)});
  Record result;
  result["tensors"] = make_tensor_records(*run), result["outputs"] = outputs;
  return result;
}

Record observe_region_runs(Program& self, const ArrayLikes& inputs, uint64_t max_runs, std::optional<double> loop_timeout,
                           const std::optional<uint64_t>& most) {
  if (most) {
    const py::object choose = py::module_::import("pumice.base.deprecation").attr("choose_renamed_argument");
    max_runs = choose("Program.observe_runs(most)", *most, max_runs, kDefaultObservedRuns).cast<uint64_t>();
  }
  const ProgramArguments arguments(self, inputs);
  ControlFlowObservation observation;
  {
    const RunLimits limits{{}, validate_loop_timeout(loop_timeout), check_signals};
    const GilRelease release;
    observation = self.observe_runs(arguments.shapes(), arguments.data(), limits, max_runs);
  }
  Record result;
  py::list runs, regions;
  for (const ObservedRun& run : observation.runs) {
    py::dict record, input_arrays;
    for (const auto& [name, host] : run.inputs)
      input_arrays[py::str(name)] = copy_to_packed_array({{}, {}, {}, {}, host.desc, 0, host.data});
    record["graph"] = run.graph, record["number"] = run.number, record["inputs"] = input_arrays,
    record["tensors"] = make_tensor_records(*run.observed);
    record["differing"] = run.differing;
    runs.append(record);
  }
  for (const auto& region : observation.regions) {
    py::dict record;
    record["graph"] = region.graph, record["runs"] = region.runs, record["observed"] = region.observed;
    regions.append(record);
  }
  py::dict outputs;
  for (size_t j = 0; j < observation.outputs.size(); ++j)
    outputs[py::str(self.outputs()[j].name)] =
        copy_to_packed_array({{}, {}, {}, {}, observation.outputs[j].desc, 0, observation.outputs[j].data});
  result["runs"] = runs, result["regions"] = regions, result["single_loops"] = observation.single_loops, result["outputs"] = outputs;
  return result;
}

std::shared_ptr<CompiledOperator> compile_for_shapes(Program& self, const std::vector<py::object>& shapes) {
  const ShapeArguments arguments(self, shapes);
  const GilRelease release;
  return self.get_compiled_operator(arguments.shapes(), arguments.values());
}

}  // namespace

void bind_program(py::module_& module) {
  py::class_<ProgramValue>(module, "ProgramValue", "An input or output of a program.")
      .def_readonly("name", &ProgramValue::name)
      .def_property_readonly("dtype", [](const ProgramValue& self) { return std::string(name(self.dtype)); })
      .def_property_readonly(
          "shape", [](const ProgramValue& self) { return make_shape_tuple(self.shape); },
          "The sizes, None for unknown ones; None if the rank is unknown.")
      .def_readonly("dimension_names", &ProgramValue::dimension_names, "Symbolic names of the sizes; empty for unnamed ones.")
      .def("__repr__", [](const ProgramValue& self) { return "<ProgramValue '" + self.name + "' " + std::string(name(self.dtype)) + ">"; });
  py::class_<PyProgramRun>(module, "ProgramRun", "An execution of a program started by Program.run_async(), in flight or finished.")
      .def_property_readonly(
          "id", [](const PyProgramRun& self) { return self.submission().id(); }, "Id of the execution on the context's timeline.")
      .def("__int__", [](const PyProgramRun& self) { return self.submission().id(); })
      .def_property_readonly("done", &PyProgramRun::done)
      .def_property_readonly(
          "device_seconds", [](const PyProgramRun& self) { return self.submission().device_seconds(); },
          "Device time in seconds; None if not measured or not finished.")
      .def_property_readonly(
          "device_time", [](const PyProgramRun& self) { return self.submission().device_seconds(); }, "Same as device_seconds.")
      .def_property_readonly(
          "cold", [](const PyProgramRun& self) { return self.submission().is_cold(); },
          "Whether a kernel ran for the first time in this execution; its time may then include compilation by the driver.")
      .def("wait", &PyProgramRun::wait, py::arg("timeout") = py::none(),
           "Wait until the execution has finished.\n"
           "timeout: in seconds.\n"
           "Raise TimeoutError, DeviceLostError.")
      .def("result", &PyProgramRun::result, py::arg("timeout") = py::none(), "Wait, and return the outputs as new arrays in graph order.")
      .def("__repr__", [](const PyProgramRun& self) { return "<ProgramRun " + std::to_string(self.submission().id()) + ">"; });
  py::class_<Program, std::shared_ptr<Program>> program(
      module, "Program", "A graph compiled once, bound per input shape, and executed many times. Thread-safe. Also a context manager.");
  bind_execution(module);
  bind_program_executions(program);
  program.def_property_readonly("name", &Program::name)
      .def_property_readonly("inputs", &Program::inputs)
      .def_property_readonly("outputs", &Program::outputs)
      .def_property_readonly("context", &Program::context)
      .def_property_readonly("has_control_flow", &Program::has_control_flow,
                             "Whether the program has several lists of dispatches, between which the host branches or reads values.")
      .def_property_readonly("checks_indices", &Program::checks_indices,
                             "Whether the program was compiled with check_indices and has indices that only the device knows.")
      .def("__call__", &call_by_name, py::arg("inputs"), py::arg("timeout") = py::none(), py::arg("loop_timeout") = kDefaultLoopSeconds,
           py::arg("filled") = false,
           "Run the program on arrays by name and return arrays by name.\n"
           "timeout: for the whole run, in seconds.\n"
           "loop_timeout: seconds per WHILE each time it is entered, at most 15; None: unlimited.\n"
           "filled: fill temporary memory and results with NaN bits (in every float type) before the run, to expose results that are not "
           "computed.\n"
           "Raise TimeoutError, after which the program remains usable, or BindingError with the input, the expected and the given value.")
      .def("call", &call_program, py::arg("inputs"), py::arg("timeout") = py::none(), py::arg("loop_timeout") = kDefaultLoopSeconds,
           py::arg("out") = py::none(), py::arg("filled") = false,
           "Run the program on arrays in graph order and return arrays in graph order.\n"
           "out: for each output a writable, C-contiguous array of its dtype and shape, not overlapping the others, or None.\n"
           "filled: see __call__.\n"
           "Raise BindingError.")
      .def(
          "run_async",
          [](std::shared_ptr<Program> self, const ArrayLikes& inputs, std::optional<double> loop_timeout) {
            return std::make_unique<PyProgramRun>(std::move(self), inputs, loop_timeout);
          },
          py::arg("inputs"), py::arg("loop_timeout") = kDefaultLoopSeconds,
          "Start an execution on arrays in graph order and return immediately. A program with control flow or host sync points returns "
          "only when it has finished; execution().start() does not wait.\n"
          "loop_timeout: see __call__.")
      .def("compiled", &compile_for_shapes, py::arg("shapes"),
           "Return the operator for these input shapes, for binding tables. It shares the program's initialised persistent resource.")
      .def_property_readonly("persistent", &Program::persistent, "The buffer range of the weights.")
      .def("report", &make_report,
           "Return a row per node with the kernel and precision that run it, and why: node, op, kernel, precision, note.")
      .def("arena", &make_arena_report, py::arg("shapes"),
           "Return statistics for these input shapes: bytes of temporary memory, their lower bound, and what is recorded.")
      .def("plan", &make_plan_report, py::arg("shapes"),
           "Return each dispatch for these input shapes: label, kernel, wave, whether a barrier precedes it, byte ranges of its operands, "
           "workgroups per axis ('groups'), and whether the grid was folded to fit the device's limits ('folded').")
      .def("profile", &profile_dispatches, py::arg("inputs"),
           "Run once and return a DispatchTime for each dispatch, labelled with its node. An unmeasured run first compiles kernels that "
           "have not run yet.")
      .def("observe", &observe_tensors, py::arg("inputs"), py::arg("names") = py::none(), py::arg("steps") = py::none(),
           "Run the program once on arrays in graph order, with its usual plan, arena and kernels, and copy each tensor after the step "
           "that completes it.\n"
           "Return `outputs` by name and `tensors`, all tensors stored by kernels: name, node and kernel that stored it, reads (tensors "
           "read by this node's kernels), array (in the stored dtype), bytes, and additions, as in plan().\n"
           "names: tensors to copy; others have no array.\n"
           "steps: stop after this many steps of plan(), without copies in between and without outputs; tensors that are then complete and "
           "in memory have an array.\n"
           "Raise UnsupportedError for control flow and host sync points, BindingError.")
      .def(
          "observe_runs", &observe_region_runs, py::arg("inputs"), py::arg("max_runs") = kDefaultObservedRuns,
          py::arg("loop_timeout") = kDefaultLoopSeconds, py::kw_only(), py::arg("most") = py::none(),
          "Do the same as observe() for a program with control flow or host sync points, which has one list of dispatches per region.\n"
          "Return runs: the first `max_runs` runs of each region, with graph (its name), number, inputs by name, tensors, as in observe(), "
          "and differing, the outputs whose bits differ from the run without copies; outputs by name; regions: graph, runs and observed "
          "of each; single_loops: loops that run in one kernel.\n"
          "The host drives all other loops and branches. Each observed run is an extra run on the same inputs. `most` is the old name of\n"
          "`max_runs`.\n"
          "Raise UnsupportedError for a program with a single list, TimeoutError.")
      .def("close", &Program::close, py::call_guard<GilRelease>(), "Free the device memory. Idempotent.")
      .def_property_readonly("closed", &Program::closed)
      .def("__enter__", [](std::shared_ptr<Program> self) { return self; })
      .def("__exit__",
           [](Program& self, const py::args&) {
             const GilRelease release;
             self.close();
           })
      .def("__repr__", [](const Program& self) {
        return "<Program '" + self.name() + "': " + std::to_string(self.inputs().size()) + " inputs, " +
               std::to_string(self.outputs().size()) + " outputs" + (self.closed() ? ", closed>" : ">");
      });
}

}  // namespace pumice
