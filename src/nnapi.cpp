#include "bindings.h"
#include "graph/nnapi/operations.h"

namespace pumice {

void bind_nnapi(py::module_& module) {
  using nnapi::Operand;
  using nnapi::Operation;
  py::class_<Operand, ValueRole>(module, "NnapiOperand", "An operand of an operation of NNAPI.")
      .def_property_readonly(
          "kind", [](const Operand& self) { return name(self.kind); },
          "'tensor', 'list' (a vector of int32), 'pairs' (a matrix of two columns), 'scalar' (one constant number of rank 0) or "
          "'graph' (what IF and WHILE run).");
  py::class_<Operation>(module, "NnapiOperation", "An operation of NNAPI, with its operands in that system's order.")
      .def_readonly("name", &Operation::name)
      .def_readonly("level", &Operation::level, "The feature level that brought it; 2**31 - 1 where it is experimental.")
      .def_readonly("summary", &Operation::summary)
      .def_property_readonly("inputs", [](const Operation& self) { return self.inputs; })
      .def_property_readonly(
          "implicit", [](const Operation& self) { return self.implicit; },
          "The inputs with a padding scheme in place of four paddings; empty where there is no such form.")
      .def_property_readonly("outputs", [](const Operation& self) { return self.outputs; })
      .def("__repr__", [](const Operation& self) { return "<NnapiOperation " + std::string(self.name) + ">"; });
  module.def(
      "nnapi_operations",
      [] {
        std::vector<const Operation*> all;
        for (const Operation& operation : nnapi::operations()) all.push_back(&operation);
        return all;
      },
      py::return_value_policy::reference, "All operations of NNAPI that there are, by name.");
}

}  // namespace pumice
