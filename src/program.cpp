#include "graph/program/program.h"

#include <chrono>
#include <cstring>

#include "bindings.h"
#include "core/error.h"
#include "core/host_trace.h"
#include "core/number_text.h"
#include "core/strided_copy.h"
#include "graph/flow/flow_observation.h"
#include "graph/region/observed_region.h"

namespace pumice {
namespace {

constexpr size_t kLargeBytes = 256 << 10;  // copies of at least this size release the GIL

// Arguments of a program call in graph order. Checks everything but shapes, which are checked when the program is bound.
class Arguments {
 public:
  Arguments(const Program& program, const ArrayLikes& given) {
    const auto& inputs = program.inputs();
    if (given.size() != inputs.size()) throw BindingError("K4", "inputs", "", counted(inputs), std::to_string(given.size()));
    arrays_.reserve(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) add(inputs[i], given[i]);
    // Pointers into the arrays are valid now that no array moves any more.
    for (const auto& array : arrays_)
      shapes_.emplace_back(reinterpret_cast<const int64_t*>(array.shape()), static_cast<size_t>(array.ndim()));
    for (const auto& bytes : stored_) data_.push_back(static_cast<const std::byte*>(bytes.data()));
  }

  std::span<const ShapeView> shapes() const { return shapes_; }
  std::span<const std::byte* const> data() const { return data_; }

  // `stays`: the caller waits for the execution, so the arrays stay unchanged until then.
  void write_to(Lease& lease, bool stays) const {
    size_t bytes = 0;
    std::optional<ReleasedGil> release;
    for (const auto& one : stored_) bytes += static_cast<size_t>(one.nbytes());
    if (bytes >= kLargeBytes) release.emplace();
    for (size_t i = 0; i < data_.size(); ++i) lease.write_input(i, data_[i], stays);
  }

 private:
  static std::string counted(const std::vector<ProgramValue>& inputs) {
    std::string names;
    for (const auto& input : inputs) names += (names.empty() ? "" : ", ") + input.name;
    return std::to_string(inputs.size()) + (inputs.size() == 1 ? " array (" : " arrays (") + names + ")";
  }

  void add(const ProgramValue& input, const py::object& given) {
    const std::string slot = "input '" + input.name + "'";
    py::array array = array_like(given, slot);
    if (!array.dtype().is(numpy_dtype(input.dtype))) {
      const DType dtype = dtype_of(array.dtype(), slot);
      if (dtype != input.dtype)
        throw BindingError("K5", slot, input.name, "an array of " + std::string(name(input.dtype)), "one of " + std::string(name(dtype)));
    }
    stored_.push_back(stored(array, input.dtype));
    arrays_.push_back(std::move(array));
  }

  std::vector<py::array> arrays_, stored_;  // as given; as uploaded
  std::vector<ShapeView> shapes_;
  std::vector<const std::byte*> data_;
};

// Leases a recording and writes the arguments to its slots.
std::shared_ptr<Lease> written_lease(Program& self, const Arguments& arguments, bool wait, std::optional<double> timeout,
                                     bool filled = false) {
  std::shared_ptr<Lease> lease;
  {
    const ReleasedGil release;
    lease = self.lease(arguments.shapes(), arguments.data(), wait, timeout, check_signals);
    if (filled) lease->fill_memory(kFilled, check_signals);
  }
  arguments.write_to(*lease, wait);
  return lease;
}

using MaybeArrays = std::vector<std::optional<py::array>>;

// Arrays passed by the caller for results, by output; null: allocate.
class GivenOutputs {
 public:
  GivenOutputs() = default;
  GivenOutputs(const Program& program, const MaybeArrays& given) : arrays_(given) {
    const auto& outputs = program.outputs();
    if (given.size() != outputs.size())
      throw BindingError("K4", "out", "", std::to_string(outputs.size()) + " arrays or None", std::to_string(given.size()));
    for (size_t j = 0; j < given.size(); ++j)
      if (given[j]) check_target(*given[j], outputs[j].dtype, "output '" + outputs[j].name + "'", outputs[j].name);
    refuse_overlaps(outputs);
    for (const auto& array : arrays_) targets_.push_back(array ? static_cast<std::byte*>(const_cast<void*>(array->data())) : nullptr);
  }

  const std::optional<py::array>& operator[](size_t j) const {
    static const std::optional<py::array> none;
    return arrays_.empty() ? none : arrays_[j];
  }
  std::span<std::byte* const> targets() const { return targets_; }
  // Rejects an array whose shape differs from the result's.
  void check_shape(const Program& program, size_t j, const TensorDesc& desc) const {
    const auto& given = (*this)[j];
    if (given && shape_of(*given) != desc.shape)
      throw BindingError("K10", "output '" + program.outputs()[j].name + "'", program.outputs()[j].name, "an array of " + to_string(desc),
                         "one of shape " + py::repr(py::tuple(given->attr("shape"))).cast<std::string>());
  }

 private:
  void refuse_overlaps(const std::vector<ProgramValue>& outputs) const {
    const auto begin = [](const py::array& array) { return static_cast<const std::byte*>(array.data()); };
    const auto share = [&](const py::array& a, const py::array& b) {
      return a.nbytes() > 0 && b.nbytes() > 0 && begin(a) < begin(b) + b.nbytes() && begin(b) < begin(a) + a.nbytes();
    };
    for (size_t j = 0; j < arrays_.size(); ++j)
      for (size_t k = 0; k < j && arrays_[j]; ++k)
        if (arrays_[k] && share(*arrays_[j], *arrays_[k]))
          throw BindingError("K5", "output '" + outputs[j].name + "'", outputs[j].name,
                             "memory apart from that of '" + outputs[k].name + "'", "memory that both share");
  }

  MaybeArrays arrays_;
  std::vector<std::byte*> targets_;
};

// Polled during a wait: checks for signals and for the time elapsed since construction. One timeout covers all waits of an execution.
class Deadline {
 public:
  explicit Deadline(std::optional<double> timeout) : timeout_(timeout) {}
  void operator()() const {
    check_signals();
    const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    if (timeout_ && passed >= *timeout_)
      throw TimeoutError("the results have not come after " + general_text(*timeout_) + " s; their transfer is still running", true);
  }

 private:
  std::optional<double> timeout_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

Arrays results_of(const Program& program, const Lease& lease, const Deadline& deadline, const GivenOutputs& given = {}) {
  const size_t count = program.outputs().size();
  Arrays results(count);
  for (size_t j = 0; j < count; ++j) {
    const TensorDesc& desc = lease.output_desc(j);
    const size_t bytes = desc.element_bytes();
    const auto read_to = [&](std::byte* target) {
      std::optional<ReleasedGil> release;
      if (bytes >= kLargeBytes) release.emplace();
      lease.read_output(j, target, deadline);
    };
    if (bits(desc.dtype) < 8) {
      std::vector<std::byte> packed(bytes);
      read_to(packed.data());
      results[j] = unpacked(desc.dtype, desc.shape, packed);
      continue;
    }
    given.check_shape(program, j, desc);
    py::array array = given[j] ? *given[j] : empty_array(desc.dtype, desc.shape);
    read_to(static_cast<std::byte*>(array.mutable_data()));
    results[j] = std::move(array);
  }
  return results;
}

// Starts an execution. If the host runs control flow or checks indices, returns only after it has finished.
Submission start(const Program& self, Lease& lease, std::optional<double> timeout, std::optional<double> loop_timeout,
                 const GivenOutputs& given = {}) {
  if (!self.has_control_flow()) {  // with control flow, output shapes are known only at the end
    for (size_t j = 0; j < self.outputs().size(); ++j) given.check_shape(self, j, lease.output_desc(j));
    if (!self.checks_indices()) return lease.start({}, given.targets());
  }
  const RunLimits limits{timeout, checked_loop_timeout(loop_timeout), check_signals};
  forward_log();
  const ReleasedGil release;
  return lease.start(limits, given.targets());
}

Arrays call(Program& self, const ArrayLikes& inputs, std::optional<double> timeout, std::optional<double> loop_timeout,
            const std::optional<MaybeArrays>& out, bool filled) {
  const HostSpan span("model", self.name());
  const Deadline deadline(timeout);
  const GivenOutputs given = out ? GivenOutputs(self, *out) : GivenOutputs();
  const Arguments arguments(self, inputs);
  const auto lease = written_lease(self, arguments, true, timeout, filled);
  const Submission submission = start(self, *lease, timeout, loop_timeout, given);
  wait_for(*self.context(), submission.id(), timeout);
  return results_of(self, *lease, deadline, given);
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
    const auto given = py::str(key).cast<std::string>();
    if (std::none_of(declared.begin(), declared.end(), [&](const ProgramValue& one) { return one.name == given; }))
      throw BindingError("K4", "input '" + given + "'", given, "an input of program '" + self.name() + "'", "'" + given + "'");
  }
  const Arrays results = call(self, ordered, timeout, loop_timeout, {}, filled);
  py::typing::Dict<py::str, py::array> named;
  for (size_t j = 0; j < results.size(); ++j) named[py::str(self.outputs()[j].name)] = results[j];
  return named;
}

// An execution of a program, in flight or finished. Holds its recording until the results are fetched.
class PyProgramRun {
 public:
  PyProgramRun(std::shared_ptr<Program> program, const ArrayLikes& inputs, std::optional<double> loop_timeout)
      : program_(std::move(program)),
        lease_(written_lease(*program_, Arguments(*program_, inputs), false, {})),
        submission_(start(*program_, *lease_, {}, loop_timeout)) {}

  const Submission& submission() const { return submission_; }
  // Whether the execution and its output transfers have finished.
  bool done() const { return !lease_ || program_->context()->completed() >= last(); }
  void wait(std::optional<double> timeout) const { wait_for(*program_->context(), last(), timeout); }
  Arrays result(std::optional<double> timeout) {
    if (!lease_) return results_;
    const Deadline deadline(timeout);
    wait_for(*program_->context(), submission_.id(), timeout);
    results_ = results_of(*program_, *lease_, deadline);
    lease_.reset();
    return results_;
  }

 private:
  uint64_t last() const { return lease_ ? std::max(submission_.id(), lease_->last_submission()) : submission_.id(); }

  std::shared_ptr<Program> program_;
  std::shared_ptr<Lease> lease_;
  Submission submission_;
  Arrays results_;
};

// Shapes given as sequences of sizes, or as arrays, whose elements are then known as well.
class ShapeArguments {
 public:
  ShapeArguments(const Program& program, const std::vector<py::object>& given) {
    if (given.size() != program.inputs().size())
      throw BindingError("K4", "shapes", "", std::to_string(program.inputs().size()) + " shapes", std::to_string(given.size()));
    for (size_t i = 0; i < given.size(); ++i) {
      const py::object& one = given[i];
      const bool is_array = py::isinstance<py::array>(one);
      if (is_array) refuse_masked(one, "input '" + program.inputs()[i].name + "'");
      arrays_.push_back(is_array ? stored(one.cast<py::array>(), program.inputs()[i].dtype) : py::array());
      sizes_.push_back(is_array ? shape_of(one.cast<py::array>()) : one.cast<Shape>());
      values_.push_back(is_array ? static_cast<const std::byte*>(arrays_.back().data()) : nullptr);
    }
    for (size_t i = 0; i < sizes_.size(); ++i) {
      if (!values_[i] && program.reads_values(i))
        throw BindingError("K3", "input '" + program.inputs()[i].name + "'", program.inputs()[i].name,
                           "an array: shapes depend on its elements", "a shape alone");
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

py::typing::List<Record> report(const Program& self) {
  py::typing::List<Record> rows;
  for (const auto& row : self.report()) {
    py::dict one;
    one["node"] = row.node, one["op"] = row.op, one["kernel"] = row.kernel, one["precision"] = row.precision, one["note"] = row.note;
    one["added"] = std::string(row.added ? "yes" : "");
    one["fusion"] = row.fusion ? std::string(name(*row.fusion)) : std::string();
    rows.append(one);
  }
  return rows;
}

py::typing::Dict<py::str, size_t> arena(Program& self, const std::vector<py::object>& given) {
  const ShapeArguments arguments(self, given);
  ArenaReport arena;
  {
    const ReleasedGil release;
    arena = self.arena(arguments.shapes(), arguments.values());
  }
  py::typing::Dict<py::str, size_t> result;
  result["arena_bytes"] = arena.arena_bytes, result["lower_bound_bytes"] = arena.lower_bound_bytes,
  result["persistent_bytes"] = arena.persistent_bytes;
  result["dispatches"] = arena.dispatches, result["barriers"] = arena.barriers, result["waves"] = arena.waves;
  return result;
}

py::typing::List<Record> plan(Program& self, const std::vector<py::object>& given) {
  const ShapeArguments arguments(self, given);
  std::vector<StepReport> steps;
  {
    const ReleasedGil release;
    steps = self.plan(arguments.shapes(), arguments.values());
  }
  py::typing::List<Record> result;
  for (const auto& step : steps) result.append(step_record(step));
  return result;
}

std::vector<DispatchTime> profile(Program& self, const ArrayLikes& inputs) {
  const Arguments arguments(self, inputs);
  const ReleasedGil release;
  return self.profile(arguments.shapes(), arguments.data(), check_signals);
}

// Copies a tensor that the program stores with strides to a packed array.
py::array packed_array(const ObservedTensor& tensor) {
  const TensorDesc& desc = tensor.desc;
  if (bits(desc.dtype) < 8) return unpacked(desc.dtype, desc.shape, {tensor.bytes, desc.element_bytes()});
  py::array array = empty_array(desc.dtype, desc.shape);
  const size_t element_bytes = bits(desc.dtype) / 8;
  copy_strided(element_bytes, desc.shape, tensor.bytes, byte_strides(desc.strides, element_bytes),
               static_cast<std::byte*>(array.mutable_data()), byte_strides(packed_strides(desc.shape), element_bytes));
  return array;
}

py::typing::List<Record> tensors_of(const ObservedRegion& run) {
  py::typing::List<Record> tensors;
  for (const ObservedTensor& tensor : run.tensors()) {
    py::dict one;
    one["name"] = tensor.name, one["node"] = tensor.node, one["kernel"] = tensor.kernel, one["reads"] = tensor.reads;
    one["array"] = tensor.bytes ? py::object(packed_array(tensor)) : py::none();
    one["bytes"] = tensor.desc.packed().bytes(), one["additions"] = tensor.additions;
    tensors.append(one);
  }
  return tensors;
}

Record observe(Program& self, const ArrayLikes& inputs, const std::optional<std::set<std::string>>& names, std::optional<size_t> steps) {
  const Arguments arguments(self, inputs);
  std::shared_ptr<ObservedRegion> run;
  {
    const ReleasedGil release;
    run = self.observe(arguments.shapes(), arguments.data(), {names ? &*names : nullptr, steps}, check_signals);
  }
  py::dict outputs;
  for (size_t j = 0; !steps && j < self.outputs().size(); ++j)
    outputs[py::str(self.outputs()[j].name)] = packed_array({{}, {}, {}, {}, run->output_desc(j), 0, run->output(j)});
  Record result;
  result["tensors"] = tensors_of(*run), result["outputs"] = outputs;
  return result;
}

Record observe_runs(Program& self, const ArrayLikes& inputs, uint64_t most, std::optional<double> loop_timeout) {
  const Arguments arguments(self, inputs);
  FlowObservation found;
  {
    const RunLimits limits{{}, checked_loop_timeout(loop_timeout), check_signals};
    const ReleasedGil release;
    found = self.observe_runs(arguments.shapes(), arguments.data(), limits, most);
  }
  Record result;
  py::list runs, regions;
  for (const ObservedRun& run : found.runs) {
    py::dict one, given;
    for (const auto& [name, host] : run.inputs) given[py::str(name)] = packed_array({{}, {}, {}, {}, host.desc, 0, host.data});
    one["graph"] = run.graph, one["number"] = run.number, one["inputs"] = given, one["tensors"] = tensors_of(*run.observed);
    one["differing"] = run.differing;
    runs.append(one);
  }
  for (const auto& region : found.regions) {
    py::dict one;
    one["graph"] = region.graph, one["runs"] = region.runs, one["observed"] = region.observed;
    regions.append(one);
  }
  py::dict outputs;
  for (size_t j = 0; j < found.outputs.size(); ++j)
    outputs[py::str(self.outputs()[j].name)] = packed_array({{}, {}, {}, {}, found.outputs[j].desc, 0, found.outputs[j].data});
  result["runs"] = runs, result["regions"] = regions, result["single_loops"] = found.single_loops, result["outputs"] = outputs;
  return result;
}

std::shared_ptr<CompiledOperator> compiled(Program& self, const std::vector<py::object>& given) {
  const ShapeArguments arguments(self, given);
  const ReleasedGil release;
  return self.compiled(arguments.shapes(), arguments.values());
}

}  // namespace

void bind_program(py::module_& module) {
  py::class_<ProgramValue>(module, "ProgramValue", "An input or output of a program.")
      .def_readonly("name", &ProgramValue::name)
      .def_property_readonly("dtype", [](const ProgramValue& self) { return std::string(name(self.dtype)); })
      .def_property_readonly(
          "shape", [](const ProgramValue& self) { return shape_object(self.shape); },
          "The sizes, None for unknown ones; None alone for an unknown rank.")
      .def_readonly("dimension_names", &ProgramValue::dimension_names, "Symbolic names of the sizes, empty where there is none.")
      .def("__repr__", [](const ProgramValue& self) { return "<ProgramValue '" + self.name + "' " + std::string(name(self.dtype)) + ">"; });
  py::class_<PyProgramRun>(module, "ProgramRun", "One execution of a program in flight or finished, started by Program.run_async.")
      .def_property_readonly(
          "id", [](const PyProgramRun& self) { return self.submission().id(); }, "The execution's id on the context's timeline.")
      .def("__int__", [](const PyProgramRun& self) { return self.submission().id(); })
      .def_property_readonly("done", &PyProgramRun::done)
      .def_property_readonly(
          "device_seconds", [](const PyProgramRun& self) { return self.submission().device_seconds(); },
          "Time on the device; None where it was not measured or has not finished.")
      .def_property_readonly(
          "device_time", [](const PyProgramRun& self) { return self.submission().device_seconds(); },
          "Time on the device, as device_seconds.")
      .def_property_readonly(
          "cold", [](const PyProgramRun& self) { return self.submission().is_cold(); },
          "Whether a kernel ran for the first time in this execution, whose time may then include the driver's "
          "compilation.")
      .def("wait", &PyProgramRun::wait, py::arg("timeout") = py::none(),
           "Waits until the execution has finished; timeout in seconds. Raises TimeoutError, DeviceLostError.")
      .def("result", &PyProgramRun::result, py::arg("timeout") = py::none(), "Waits, and gives the outputs as new arrays in graph order.")
      .def("__repr__", [](const PyProgramRun& self) { return "<ProgramRun " + std::to_string(self.submission().id()) + ">"; });
  py::class_<Program, std::shared_ptr<Program>> program(
      module, "Program", "A compiled graph: compiled once, bound per input shape, executed many times. Thread-safe; a context manager.");
  bind_execution(module);
  bind_program_executions(program);
  program.def_property_readonly("name", &Program::name)
      .def_property_readonly("inputs", &Program::inputs)
      .def_property_readonly("outputs", &Program::outputs)
      .def_property_readonly("context", &Program::context)
      .def_property_readonly(
          "has_control_flow", &Program::has_control_flow,
          "Whether it is several lists of dispatches, between which the host decides or reads: also that of a program with cuts.")
      .def_property_readonly("checks_indices", &Program::checks_indices,
                             "Whether the program was compiled with check_indices and has indices that only the device knows.")
      .def(
          "__call__", &call_by_name, py::arg("inputs"), py::arg("timeout") = py::none(), py::arg("loop_timeout") = kLoopSeconds,
          py::arg("filled") = false,
          "Runs the program on arrays by name, and gives arrays by name. timeout: seconds for all of it. loop_timeout: "
          "seconds for each WHILE from each time that it is entered, at most 15; None: no limit. filled: temporary memory and results\n"
          "are overwritten before the run, with bits that are NaN in all types of floats, so that a result which is not computed shows.\n"
          "Raises TimeoutError, after which the program is as usable as before; BindingError naming the input, what it expects and what it "
          "was given.")
      .def("call", &call, py::arg("inputs"), py::arg("timeout") = py::none(), py::arg("loop_timeout") = kLoopSeconds,
           py::arg("out") = py::none(), py::arg("filled") = false,
           "Runs the program on arrays in graph order, and gives arrays in graph order. out: for each output an array that it is written\n"
           "to, or None: of the output's dtype and shape, writable, C-contiguous and apart from the others. filled: see __call__. Raises "
           "BindingError.")
      .def(
          "run_async",
          [](std::shared_ptr<Program> self, const ArrayLikes& inputs, std::optional<double> loop_timeout) {
            return std::make_unique<PyProgramRun>(std::move(self), inputs, loop_timeout);
          },
          py::arg("inputs"), py::arg("loop_timeout") = kLoopSeconds,
          "Starts an execution and returns at once, or where the program has control flow or is cut when it has ended: execution().start() "
          "does not wait for that. Arrays in graph order. loop_timeout: see __call__.")
      .def("compiled", &compiled, py::arg("shapes"),
           "The operator for these input shapes, for binding tables; its persistent resource is this program's and already initialised.")
      .def_property_readonly("persistent", &Program::persistent, "The range that holds the weights.")
      .def("report", &report,
           "A row for every node that says which kernel and precision run it, and why: node, op, kernel, precision, "
           "note.")
      .def("arena", &arena, py::arg("shapes"),
           "Bytes of temporary memory for these input shapes, the least possible, and what is recorded.")
      .def("plan", &plan, py::arg("shapes"),
           "Every dispatch for these input shapes: label, kernel, wave, whether a barrier precedes it, its operands' byte ranges, its "
           "workgroups on each axis ('groups'), and whether these count the workgroups of a grid that the device does not take as it is "
           "('folded').")
      .def("profile", &profile, py::arg("inputs"),
           "A DispatchTime, whose label is the node, of every dispatch of one execution. One before it is not measured: kernels that\n"
           "run for the first time are compiled there.")
      .def("observe", &observe, py::arg("inputs"), py::arg("names") = py::none(), py::arg("steps") = py::none(),
           "Runs the program once on arrays in graph order, as it ships: its plan, its arena and its kernels, with a copy after each\n"
           "step that completes a tensor. Gives the outputs by name, and as tensors every tensor that a kernel stores: name, node and\n"
           "kernel that stored it, reads, the tensors that the kernels of this node read, array, in the dtype that the program keeps it\n"
           "in, its bytes, and additions, as in plan(). names: of the tensors that are copied; those of the others have no array.\n"
           "steps: the run ends after so many steps of plan(), with no copy between them, and gives no outputs; the tensors that are\n"
           "complete and in memory then have an array. Raises UnsupportedError for control flow and cuts, BindingError.")
      .def(
          "observe_runs", &observe_runs, py::arg("inputs"), py::arg("most") = 2, py::arg("loop_timeout") = kLoopSeconds,
          "The same for a program with control flow or cuts, which is several lists of dispatches, one for each of its regions. Gives "
          "runs:\nthe first `most` of each region, with the name of its graph, number, inputs by name, tensors, as in observe(), and\n"
          "differing, the outputs of the region that have other bits in the run without copies; outputs of the program by name;\n"
          "regions: graph, runs and observed of each; single_loops: loops that one kernel runs whole. The host drives all other loops and\n"
          "branches; each observed run is one more on the same inputs. Raises UnsupportedError for a program that is one list, "
          "TimeoutError.")
      .def("close", &Program::close, py::call_guard<ReleasedGil>(), "Frees the device memory. Idempotent.")
      .def_property_readonly("closed", &Program::closed)
      .def("__enter__", [](std::shared_ptr<Program> self) { return self; })
      .def("__exit__",
           [](Program& self, const py::args&) {
             const ReleasedGil release;
             self.close();
           })
      .def("__repr__", [](const Program& self) {
        return "<Program '" + self.name() + "': " + std::to_string(self.inputs().size()) + " inputs, " +
               std::to_string(self.outputs().size()) + " outputs" + (self.closed() ? ", closed>" : ">");
      });
}

}  // namespace pumice
