#include "bindings.h"
#include "graph/nnapi/operations.h"

namespace pumice {

void bind_nnapi(py::module_& module) {
  using nnapi::Operand;
  using nnapi::Operation;
  py::class_<Operand, ValueRole>(module, "NnapiOperand", "An operand of an NNAPI operation.")
      .def_property_readonly(
          "kind", [](const Operand& self) { return name(self.kind); },
          "'tensor', 'list' (int32 vector), 'pairs' (two-column matrix), 'scalar' (constant number of rank 0) or 'graph' (run by IF and "
          "WHILE).");
  py::class_<Operation>(module, "NnapiOperation", "An NNAPI operation, with operands in NNAPI's order.")
      .def_readonly("name", &Operation::name)
      .def_readonly("level", &Operation::level, "The feature level that introduced it; 2**31 - 1 if experimental.")
      .def_readonly("summary", &Operation::summary)
      .def_property_readonly("inputs", [](const Operation& self) { return self.inputs; })
      .def_property_readonly(
          "implicit", [](const Operation& self) { return self.implicit; },
          "The inputs of the form with a padding scheme instead of four paddings; empty if there is no such form.")
      .def_property_readonly("outputs", [](const Operation& self) { return self.outputs; })
      .def("__repr__", [](const Operation& self) { return "<NnapiOperation " + std::string(self.name) + ">"; });
  module.def(
      "nnapi_operations",
      [] {
        std::vector<const Operation*> all;
        for (const Operation& operation : nnapi::get_operations()) all.push_back(&operation);
        return all;
      },
      py::return_value_policy::reference, "Return all supported NNAPI operations, sorted by name.");
}

}  // namespace pumice
