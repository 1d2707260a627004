#include <chrono>

#include "bindings.h"
#include "core/error.h"
#include "core/number_format.h"
#include "device/image.h"
#include "device/tensor.h"
#include "dispatch/binding_rule_list.h"
#include "dispatch/command_list.h"

namespace pumice {
namespace {

// The slot that a value is bound to. Its name is built only for error messages.
struct SlotUnderBinding {
  const Dispatchable& dispatchable;
  SlotName slot;

  [[noreturn]] void throw_binding_error(const char* rule, const char* expected, const py::handle& value) const {
    const auto& slots = slot.kind == SlotName::SlotKind::inputs ? dispatchable.inputs() : dispatchable.outputs();
    const auto index = static_cast<size_t>(slot.index);
    const bool named = slot.index >= 0 && index < slots.size();
    throw BindingError(rule, slot.to_string(), named ? slots[index].name : dispatchable.name(), expected, get_type_name(value));
  }
};

std::optional<DescribedRange> parse_described_range(const py::handle& value) {
  if (py::isinstance<BufferRange>(value)) return value.cast<const BufferRange&>();
  if (py::isinstance<Tensor>(value)) {
    const auto tensor = value.cast<std::shared_ptr<Tensor>>();
    return DescribedRange(tensor->range(), {tensor, &tensor->desc()});
  }
  if (!py::isinstance<Buffer>(value)) return {};
  const auto buffer = value.cast<std::shared_ptr<Buffer>>();
  return BufferRange{buffer, 0, buffer->bytes()};
}

bool is_list_or_tuple(const py::handle& value) {
  return PyList_Check(value.ptr()) || PyTuple_Check(value.ptr());
}

// Converts None, a Tensor, a Buffer, a BufferRange or a list of these to a Binding.
Binding parse_binding(const py::handle& value, const SlotUnderBinding& bound_slot) {
  if (value.is_none()) return std::monostate{};
  if (auto range = parse_described_range(value)) return std::move(*range);
  if (py::isinstance<Image>(value)) bound_slot.throw_binding_error("M3", "a buffer", value);
  if (!is_list_or_tuple(value)) bound_slot.throw_binding_error("C6", "None, a Tensor, a Buffer, a BufferRange or a list of those", value);
  BufferArray array;
  for (const auto& entry : value.cast<py::sequence>()) {
    const SlotUnderBinding entry_target{bound_slot.dispatchable,
                                        {bound_slot.slot.kind, bound_slot.slot.index, static_cast<int32_t>(array.size())}};
    auto range = parse_described_range(entry);
    if (!range && !entry.is_none()) entry_target.throw_binding_error("C6", "None, a Tensor, a Buffer or a BufferRange", entry);
    array.push_back(range ? std::move(*range) : DescribedRange());
  }
  return array;
}

Bindings parse_bindings(const BindingTable& table, SlotName::SlotKind kind, const py::object& list) {
  Bindings bindings;
  if (list.is_none()) return bindings;
  const Dispatchable& dispatchable = *table.dispatchable();
  if (!is_list_or_tuple(list)) SlotUnderBinding{dispatchable, {kind}}.throw_binding_error("C6", "a list of bindings, or None", list);
  const auto entries = list.cast<py::sequence>();
  bindings.reserve(entries.size());
  for (const auto& entry : entries) bindings.push_back(parse_binding(entry, {dispatchable, {kind, static_cast<int32_t>(bindings.size())}}));
  return bindings;
}

Binding parse_resource_binding(const BindingTable& table, SlotName::SlotKind kind, const py::object& value) {
  return parse_binding(value, {*table.dispatchable(), {kind}});
}

std::optional<uint32_t> parse_descriptor_count(const std::optional<Integer>& descriptors) {
  if (!descriptors) return {};
  if (const auto count = descriptors->as<uint32_t>()) return count;
  throw BindingError("C10", "descriptors", "", "a number from 0 to 2^32 - 1", descriptors->text());
}

BufferRange parse_copy_range(const py::handle& value, const char* argument) {
  if (auto range = parse_described_range(value)) return *range;
  throw BindingError("C6", argument, "", "a Tensor, a Buffer or a BufferRange", get_type_name(value));
}

// Binds inputs and outputs by slot name; unnamed slots are left empty.
void bind_by_name(BindingTable& self, const py::kwargs& kwargs) {
  const Dispatchable& dispatchable = *self.dispatchable();
  Bindings inputs(dispatchable.inputs().size()), outputs(dispatchable.outputs().size());
  for (const auto& [key, value] : kwargs) {
    const auto slot_name = key.cast<std::string>();
    bool found = false;
    const auto bind_slots = [&](SlotName::SlotKind kind, const std::vector<TensorSlot>& slots, Bindings& slot_bindings) {
      for (size_t i = 0; i < slots.size(); ++i)
        if (slots[i].name == slot_name)
          slot_bindings[i] = parse_binding(value, {dispatchable, {kind, static_cast<int32_t>(i)}}), found = true;
    };
    bind_slots(SlotName::SlotKind::inputs, dispatchable.inputs(), inputs);
    bind_slots(SlotName::SlotKind::outputs, dispatchable.outputs(), outputs);
    if (found) continue;
    std::string names;
    for (const auto* slots : {&dispatchable.inputs(), &dispatchable.outputs()})
      for (const TensorSlot& slot : *slots) names += (names.empty() ? "" : ", ") + slot.name;
    throw BindingError("C6", slot_name, slot_name, "a slot of '" + dispatchable.name() + "': " + names, "'" + slot_name + "'");
  }
  self.bind(std::move(inputs), std::move(outputs));
}

// Returns, for each run, the seconds from exec() to the result.
std::vector<double> measure_runs(CommandList& list, size_t runs) {
  std::vector<double> seconds(runs);
  std::exception_ptr error;
  {
    const GilRelease release;
    for (auto& elapsed : seconds) {
      const auto begin = std::chrono::steady_clock::now();
      const uint64_t id = list.exec().id();
      list.context()->wait(id, {}, check_signals);
      elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      try {
        list.recording()->collect_messages(id);
      } catch (const OutOfBoundsError&) {
        if (!error) error = std::current_exception();
      }
    }
  }
  if (runs > 0)
    for (const auto& log : list.recording()->message_logs()) log_messages(*log);
  if (error) std::rethrow_exception(error);
  return seconds;
}

std::string format_count(size_t count, const std::string& noun, const std::string& plural) {
  return std::to_string(count) + " " + (count == 1 ? noun : plural);
}

std::string format_command_list(const CommandList& self) {
  const auto& recording = self.recording();
  std::string text =
      "<CommandList of " + format_count(recording ? recording->dispatch_count() : self.recorded_count(), "dispatch", "dispatches");
  if (recording) text += " and " + format_count(recording->barrier_count(), "barrier", "barriers");
  if (const size_t tables = self.count_volatile_tables()) text += ", " + format_count(tables, "table", "tables") + " read by exec()";
  return text + (self.committed() ? ", committed, on '" : ", not committed, on '") + self.context()->info().name + "'>";
}

std::string format_binding(const Binding& binding) {
  const auto text = [](const DescribedRange& range) { return range.buffer ? to_string(static_cast<const BufferRange&>(range)) : "None"; };
  if (const auto* range = std::get_if<DescribedRange>(&binding)) return text(*range);
  const auto* array = std::get_if<BufferArray>(&binding);
  if (!array) return "None";
  std::string entries;
  for (const DescribedRange& range : *array) entries += (entries.empty() ? "" : ", ") + text(range);
  return "[" + entries + "]";
}

std::string format_bindings(const char* label, const std::vector<TensorSlot>& slots, const Bindings* bindings) {
  if (!bindings) return std::string(label) + " unbound";
  std::string entries;
  for (size_t i = 0; i < bindings->size(); ++i)
    entries += (i ? ", " : "") + (i < slots.size() ? slots[i].name : std::to_string(i)) + ": " + format_binding((*bindings)[i]);
  return std::string(label) + " (" + entries + ")";
}

std::string format_binding_table(const BindingTable& self) {
  const Dispatchable& dispatchable = *self.dispatchable();
  const BindingsView bound = self.bindings();
  const auto resource = [](const char* label, const Binding& binding) {
    return get_range(binding).buffer ? std::string("; ") + label + ": " + format_binding(binding) : std::string();
  };
  return "<BindingTable of '" + dispatchable.name() + "': " + format_bindings("inputs", dispatchable.inputs(), bound.inputs) + "; " +
         format_bindings("outputs", dispatchable.outputs(), bound.outputs) + resource("temporary", *bound.temporary) +
         resource("persistent", *bound.persistent) + ">";
}

void bind_submissions(py::module_& module) {
  py::class_<Submission>(module, "Submission", "An execution in flight or finished. int() returns its id on the context's timeline.")
      .def_property_readonly("id", &Submission::id)
      .def("__int__", &Submission::id)
      .def("__index__", &Submission::id)
      .def_property_readonly("done", &Submission::done)
      .def(
          "wait",
          [](const Submission& self, std::optional<double> timeout) {
            wait_for_execution(*self.recording()->context(), self.id(), timeout);
            collect_messages(*self.recording(), self.id());
          },
          py::arg("timeout") = py::none(),
          "Wait until the execution has finished.\n"
          "timeout: in seconds.\n"
          "Raise TimeoutError, DeviceLostError, OutOfBoundsError.")
      .def_property_readonly("device_seconds", &Submission::device_seconds,
                             "Device time in seconds; None if not committed with timing or not finished.")
      .def_property_readonly("device_time", &Submission::device_seconds, "Same as device_seconds.")
      .def_property_readonly(
          "cold", &Submission::is_cold,
          "Whether a kernel ran for the first time in this execution; its time may then include compilation by the driver.")
      .def("__repr__",
           [](const Submission& self) { return "<Submission " + std::to_string(self.id()) + (self.is_cold() ? ", cold>" : ">"); });
  py::class_<DispatchTime>(module, "DispatchTime", "Device time of one dispatch.")
      .def_readonly("label", &DispatchTime::label, "Name of the node, or of the kernel.")
      .def_readonly("seconds", &DispatchTime::seconds)
      .def_readonly("cold", &DispatchTime::cold,
                    "Whether the kernel ran for the first time; the time may then include compilation by the driver.")
      .def("__repr__", [](const DispatchTime& self) {
        return "<DispatchTime '" + self.label + "': " + format_general(self.seconds) + " s" + (self.cold ? ", cold>" : ">");
      });
}

// Binds recording methods.
void bind_list_recording(py::class_<CommandList>& list) {
  list.def(py::init<std::shared_ptr<Context>>(), py::arg("context").none(false))
      .def("dispatch", py::overload_cast<std::shared_ptr<const Dispatchable>, std::shared_ptr<const BindingTable>>(&CommandList::dispatch),
           py::arg("dispatchable").none(false), py::arg("table").none(false),
           "Record a dispatch. The table is read now, or at every exec() if the dispatchable was compiled with DESCRIPTORS_VOLATILE. Raise "
           "BindingError.")
      .def(
          "dispatch", [](CommandList& self, const BoundKernel& kernel) { self.dispatch(kernel.dispatch); }, py::arg("kernel"))
      .def(
          "copy",
          [](CommandList& self, const py::object& source, const py::object& target) {
            self.copy(parse_copy_range(source, "source"), parse_copy_range(target, "target"));
          },
          py::arg("source"), py::arg("target"))
      .def(
          "commit",
          [](CommandList& self, bool timing, bool profile) {
            const GilRelease release;
            self.commit({profile, timing});
          },
          py::arg("timing") = false, py::arg("profile") = false,
          "End the recording.\n"
          "timing: measure the device time of each execution.\n"
          "profile: measure the device time of each dispatch.")
      .def_property_readonly("committed", &CommandList::committed);
}

// Binds execution methods.
void bind_list_execution(py::class_<CommandList>& list) {
  list.def("exec", &CommandList::exec,
           "Submit the list once without waiting. The first dispatch of a kernel may include compilation by the driver: Submission.cold "
           "reports this, and warm_up() avoids it.")
      .def(
          "wait",
          [](const CommandList& self, const Integer& id_argument, std::optional<double> timeout) {
            const uint64_t id = parse_execution_id(id_argument);
            wait_for_execution(*self.context(), id, timeout);
            if (self.recording()) collect_messages(*self.recording(), id);
          },
          py::arg("id"), py::arg("timeout") = py::none(),
          "Wait for the execution with this id.\n"
          "timeout: in seconds.\n"
          "Raise StateError (L7) if no execution has this id, TimeoutError, DeviceLostError, OutOfBoundsError.")
      .def(
          "time",
          [](CommandList& self, const Integer& runs, const std::optional<Integer>& warm_up) {
            const size_t count = parse_count(runs, "runs");
            const bool has_run = self.committed() && self.recording() && self.recording()->has_run();
            (void)measure_runs(self, warm_up ? parse_count(*warm_up, "warm_up") : has_run || count == 0 ? 0 : 1);
            return measure_runs(self, count);
          },
          py::arg("runs"), py::arg("warm_up") = py::none(),
          "Return the seconds from exec to result of each of `runs` executions, measured in C++ without Python in between.\n"
          "warm_up: number of unmeasured executions before; None: one if a kernel of the list has not run yet, since some drivers compile "
          "it at its first dispatch.")
      .def(
          "warm_up", [](CommandList& self, const Integer& runs) { (void)measure_runs(self, parse_count(runs, "runs")); },
          py::arg("runs") = 1,
          "Execute the list and wait, so that later times exclude compilation by the driver at the first dispatch. Raise the errors of "
          "exec and wait.");
}

// Binds counters and times of a list.
void bind_list_properties(py::class_<CommandList>& list) {
  list.def_property_readonly("barriers", [](const CommandList& self) { return self.recording() ? self.recording()->barrier_count() : 0; })
      .def_property_readonly("dispatches",
                             [](const CommandList& self) { return self.recording() ? self.recording()->dispatch_count() : 0; })
      .def_property_readonly(
          "dispatch_times",
          [](const CommandList& self) {
            return self.recording() ? self.recording()->dispatch_times() : decltype(self.recording()->dispatch_times()){};
          },
          "A DispatchTime for each dispatch of the last execution. Requires commit(profile=True).")
      .def("__repr__", &format_command_list);
}

void bind_command_lists(py::module_& module) {
  bind_submissions(module);
  py::class_<CommandList> list(
      module, "CommandList",
      "A list of dispatches and copies: recorded, committed once, executed many times. Barriers are inserted automatically.");
  bind_list_recording(list);
  bind_list_execution(list);
  bind_list_properties(list);
}

// Binds dispatchables and their binding properties.
void bind_dispatchables(py::module_& module) {
  py::class_<BindingProperties>(module, "BindingProperties", "The numbers of descriptors and bytes that must be bound to a dispatchable.")
      .def_readonly("descriptors", &BindingProperties::descriptors)
      .def_readonly("temporary_bytes", &BindingProperties::temporary_bytes)
      .def_readonly("persistent_bytes", &BindingProperties::persistent_bytes)
      .def(
          "__eq__", [](const BindingProperties& self, const BindingProperties& other) { return self == other; }, py::is_operator())
      .def("__repr__", [](const BindingProperties& self) {
        return "BindingProperties(descriptors=" + std::to_string(self.descriptors) +
               ", temporary_bytes=" + std::to_string(self.temporary_bytes) + ", persistent_bytes=" + std::to_string(self.persistent_bytes) +
               ")";
      });
  py::class_<TensorSlot>(module, "Slot", "An input or output of a dispatchable.")
      .def_readonly("name", &TensorSlot::name)
      .def_readonly("desc", &TensorSlot::desc, "The TensorDesc; None for an omitted optional tensor.")
      .def("__repr__", [](const TensorSlot& self) {
        return "<Slot '" + self.name + "' " + (self.desc ? to_string(*self.desc) : std::string("absent")) + ">";
      });
  py::class_<Dispatchable, std::shared_ptr<Dispatchable>>(module, "Dispatchable",
                                                          "Base class of compiled operators, compiled graphs and initializers.")
      .def_property_readonly("name", &Dispatchable::name)
      .def_property_readonly("context", &Dispatchable::context)
      .def_property_readonly("inputs", &Dispatchable::inputs, "The input Slots in order; an initializer has one per operator.")
      .def_property_readonly("outputs", &Dispatchable::outputs)
      .def_property_readonly("binding_properties", &Dispatchable::binding_properties,
                             "The BindingProperties. Resetting an initializer changes them.")
      .def(
          "supports_in_place",
          [](const Dispatchable& self, const Integer& input, const Integer& output) {
            const auto i = input.as<uint32_t>(), j = output.as<uint32_t>();
            return i && j && self.supports_in_place(*i, *j);
          },
          py::arg("input") = 0, py::arg("output") = 0,
          "Return whether this output may be bound to the range of this input, provided that both have the same description.");
}

using TableClass = py::class_<BindingTable, std::shared_ptr<BindingTable>>;

// Binds construction and slot binding of tables.
void bind_table_slots(TableClass& table) {
  table
      .def(py::init([](std::shared_ptr<const Dispatchable> dispatchable, const std::optional<Integer>& descriptors) {
             return std::make_shared<BindingTable>(std::move(dispatchable), parse_descriptor_count(descriptors));
           }),
           py::arg("dispatchable"), py::arg("descriptors") = py::none(),
           "Create a table for a dispatchable.\n"
           "descriptors: maximum number of descriptors; None: as many as required.\n"
           "Raise BindingError (C10).")
      .def(
          "bind_inputs",
          [](BindingTable& self, const py::object& list) { self.bind_inputs(parse_bindings(self, SlotName::SlotKind::inputs, list)); },
          py::arg("bindings"),
          "Bind each input to None, a Tensor, a Buffer or a BufferRange, or for an initializer to a list of these per operator. None or an "
          "empty list unbinds all. Raise BindingError.")
      .def(
          "bind_outputs",
          [](BindingTable& self, const py::object& list) { self.bind_outputs(parse_bindings(self, SlotName::SlotKind::outputs, list)); },
          py::arg("bindings"),
          "Bind each output like bind_inputs(). The outputs of an initializer are the operators' persistent resources. Raise BindingError.")
      .def(
          "bind_temporary",
          [](BindingTable& self, const py::object& binding) {
            self.bind_temporary(parse_resource_binding(self, SlotName::SlotKind::temporary, binding));
          },
          py::arg("binding"), "Bind the temporary resource to a Buffer, a BufferRange or a Tensor; None unbinds it. Raise BindingError.")
      .def(
          "bind_persistent",
          [](BindingTable& self, const py::object& binding) {
            self.bind_persistent(parse_resource_binding(self, SlotName::SlotKind::persistent, binding));
          },
          py::arg("binding"), "Bind the persistent resource to a Buffer, a BufferRange or a Tensor; None unbinds it. Raise BindingError.")
      .def("bind", &bind_by_name, "Bind all inputs and outputs by slot name; unnamed slots are unbound. Raise BindingError.");
}

// Binds the bind time, reset and properties of binding tables.
void bind_table_operations(TableClass& table) {
  table
      .def(
          "time_bindings",
          [](BindingTable& self, const py::object& inputs, const py::object& outputs, const Integer& runs) {
            const Bindings in = parse_bindings(self, SlotName::SlotKind::inputs, inputs),
                           out = parse_bindings(self, SlotName::SlotKind::outputs, outputs);
            std::vector<double> seconds(parse_count(runs, "runs"));
            for (auto& elapsed : seconds) {
              const auto begin = std::chrono::steady_clock::now();
              self.bind_inputs(in);
              self.bind_outputs(out);
              elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
            }
            return seconds;
          },
          py::arg("inputs"), py::arg("outputs"), py::arg("runs"),
          "Return the seconds of each of `runs` bindings of both lists, measured in C++ without Python in between. The lists are copied "
          "each time.")
      .def("unbind", &BindingTable::unbind)
      .def(
          "reset",
          [](BindingTable& self, std::shared_ptr<const Dispatchable> dispatchable, const std::optional<Integer>& descriptors) {
            self.reset(std::move(dispatchable), parse_descriptor_count(descriptors));
          },
          py::arg("dispatchable"), py::arg("descriptors") = py::none(),
          "Unbind everything and switch to another dispatchable. Raise BindingError.")
      .def_property_readonly("dispatchable", &BindingTable::dispatchable)
      .def("__repr__", &format_binding_table);
}

void bind_binding_tables(py::module_& module) {
  TableClass table(module, "BindingTable",
                   "The bindings of a dispatchable. Checks every binding rule at the call; a failed call (BindingError) changes nothing. "
                   "Not thread-safe.");
  bind_table_slots(table);
  bind_table_operations(table);
}

}  // namespace

void bind_dispatch(py::module_& module) {
  bind_dispatchables(module);
  bind_binding_tables(module);
  module.def(
      "binding_rules",
      [] {
        py::typing::Dict<py::str, py::str> rules;
        for (const auto& [id, text] : list_binding_rules()) rules[py::str(id.data(), id.size())] = py::str(text.data(), text.size());
        return rules;
      },
      "Return the rules of operators, initializers, binding tables, kernels and the dv interface by id; BindingError.rule contains the "
      "id.");
  bind_command_lists(module);
}

}  // namespace pumice
