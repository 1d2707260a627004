#include <chrono>

#include "bindings.h"
#include "core/error.h"
#include "device/tensor.h"
#include "dispatch/command_list.h"

namespace pumice {
namespace {

// None | Tensor | BufferRange | list of those.
Binding binding_of(const py::handle& value) {
  if (value.is_none()) return std::monostate{};
  if (py::isinstance<Tensor>(value)) return value.cast<const Tensor&>().range();
  if (py::isinstance<BufferRange>(value)) return value.cast<BufferRange>();
  if (py::isinstance<Buffer>(value)) {
    const auto buffer = value.cast<std::shared_ptr<Buffer>>();
    return BufferRange{buffer, 0, buffer->bytes()};
  }
  if (!py::isinstance<py::sequence>(value) || py::isinstance<py::str>(value))
    throw BindingError("C6", "binding", "", "None, a Tensor, a BufferRange or a list of those", type_name(value));
  BufferArray array;
  for (const auto& entry : value.cast<py::sequence>()) {
    const Binding one = binding_of(entry);
    if (std::holds_alternative<BufferArray>(one)) throw BindingError("C6", "binding", "", "a flat list of ranges", "a list in a list");
    array.push_back(range_of(one));
  }
  return array;
}

std::optional<std::vector<Binding>> bindings_of(const py::object& list) {
  if (list.is_none()) return {};
  std::vector<Binding> bindings;
  for (const auto& entry : list.cast<py::sequence>()) bindings.push_back(binding_of(entry));
  return bindings;
}

BufferRange copy_range(const py::handle& value, const char* which) {
  const Binding binding = binding_of(value);
  const BufferRange range = range_of(binding);
  if (!range.buffer) throw BindingError("C6", which, "", "a Tensor, a Buffer or a BufferRange", "none");
  return range;
}

// Inputs and outputs by the names of the slots; those not named stay unbound.
void bind_by_name(BindingTable& self, const py::kwargs& bindings) {
  std::vector<Binding> inputs(self.dispatchable()->inputs().size()), outputs(self.dispatchable()->outputs().size());
  for (const auto& [key, value] : bindings) {
    const auto wanted = key.cast<std::string>();
    bool found = false;
    const auto place = [&](const std::vector<Slot>& slots, std::vector<Binding>& into) {
      for (size_t i = 0; i < slots.size(); ++i)
        if (slots[i].name == wanted) into[i] = binding_of(value), found = true;
    };
    place(self.dispatchable()->inputs(), inputs);
    place(self.dispatchable()->outputs(), outputs);
    if (!found) throw BindingError("C6", wanted, wanted, "a slot of '" + self.dispatchable()->name() + "'", "'" + wanted + "'");
  }
  self.bind_inputs(inputs);
  self.bind_outputs(outputs);
}

void bind_lists(py::module_& module) {
  py::class_<Submission>(module, "Submission", "One execution in flight or finished; int() gives its id on the context's timeline.")
      .def_property_readonly("id", &Submission::id)
      .def("__int__", &Submission::id)
      .def("__index__", &Submission::id)
      .def_property_readonly("done", &Submission::done)
      .def(
          "wait",
          [](const Submission& self, std::optional<double> timeout) {
            wait_for(*self.recording()->context(), self.id(), timeout);
            collect(*self.recording(), self.id());
          },
          py::arg("timeout") = py::none(),
          "Waits until it has finished; timeout in seconds. Raises TimeoutError, DeviceLostError, OutOfBoundsError.")
      .def_property_readonly("device_time", &Submission::device_time,
                             "Seconds on the device; None unless committed with timing and finished.")
      .def("__repr__", [](const Submission& self) { return "<Submission " + std::to_string(self.id()) + ">"; });
  py::class_<CommandList>(module, "CommandList",
                          "A list of dispatches and copies: recorded, committed once, executed many times. Barriers are derived.")
      .def(py::init<std::shared_ptr<Context>>(), py::arg("context").none(false))
      .def("dispatch", py::overload_cast<std::shared_ptr<const Dispatchable>, const BindingTable&>(&CommandList::dispatch),
           py::arg("dispatchable"), py::arg("table"))
      .def(
          "dispatch", [](CommandList& self, const BoundKernel& kernel) { self.dispatch(kernel.dispatch); }, py::arg("kernel"))
      .def(
          "copy",
          [](CommandList& self, const py::object& source, const py::object& target) {
            self.copy(copy_range(source, "source"), copy_range(target, "target"));
          },
          py::arg("source"), py::arg("target"))
      .def(
          "commit",
          [](CommandList& self, bool timing, bool profile) {
            const ReleasedGil release;
            self.commit({profile, timing});
          },
          py::arg("timing") = false, py::arg("profile") = false,
          "timing: measure the device time of an execution. profile: of every dispatch.")
      .def_property_readonly("committed", &CommandList::committed)
      .def("exec", &CommandList::exec, "Submits once; returns at once.")
      .def(
          "wait",
          [](const CommandList& self, uint64_t id, std::optional<double> timeout) {
            wait_for(*self.context(), id, timeout);
            if (self.recording()) collect(*self.recording(), id);
          },
          py::arg("id"), py::arg("timeout") = py::none())
      .def(
          "time",
          [](CommandList& self, size_t runs) {
            const ReleasedGil release;
            std::vector<double> seconds(runs);
            for (auto& one : seconds) {
              const auto begin = std::chrono::steady_clock::now();
              self.context()->wait(self.exec().id());
              one = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
            }
            return seconds;
          },
          py::arg("runs"),
          "Seconds from exec to result of each of `runs` executions, measured without Python in between: the device's own submit and wait.")
      .def_property_readonly("barriers", [](const CommandList& self) { return self.recording() ? self.recording()->barrier_count() : 0; })
      .def_property_readonly("dispatches",
                             [](const CommandList& self) { return self.recording() ? self.recording()->dispatch_count() : 0; })
      .def_property_readonly(
          "dispatch_times",
          [](const CommandList& self) {
            return self.recording() ? self.recording()->dispatch_times() : decltype(self.recording()->dispatch_times()){};
          },
          "(label, nanoseconds) of every dispatch of the last execution; needs commit(profile=True).");
}

}  // namespace

void bind_dispatch(py::module_& module) {
  py::class_<BindingProperties>(module, "BindingProperties", "What a dispatchable needs to be bound.")
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
  py::class_<Dispatchable, std::shared_ptr<Dispatchable>>(module, "Dispatchable", "Compiled operators, compiled graphs and initializers.")
      .def_property_readonly("name", &Dispatchable::name)
      .def_property_readonly("binding_properties", &Dispatchable::binding_properties);
  py::class_<BindingTable>(module, "BindingTable", "Checks every binding rule at the call; a refused call (BindingError) changes nothing.")
      .def(py::init<std::shared_ptr<const Dispatchable>, std::optional<uint32_t>>(), py::arg("dispatchable"),
           py::arg("descriptors") = py::none())
      .def(
          "bind_inputs", [](BindingTable& self, const py::object& list) { self.bind_inputs(bindings_of(list)); }, py::arg("bindings"))
      .def(
          "bind_outputs", [](BindingTable& self, const py::object& list) { self.bind_outputs(bindings_of(list)); }, py::arg("bindings"))
      .def(
          "bind_temporary", [](BindingTable& self, const py::object& one) { self.bind_temporary(binding_of(one)); }, py::arg("binding"))
      .def(
          "bind_persistent", [](BindingTable& self, const py::object& one) { self.bind_persistent(binding_of(one)); }, py::arg("binding"))
      .def("bind", &bind_by_name, "Inputs and outputs by the names of their slots.")
      .def("unbind", &BindingTable::unbind)
      .def("reset", &BindingTable::reset, py::arg("dispatchable"), py::arg("descriptors") = py::none());
  bind_lists(module);
}

}  // namespace pumice
