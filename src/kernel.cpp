#include "bindings.h"
#include "core/error.h"
#include "device/tensor.h"
#include "dispatch/command_list.h"
#include "dispatch/kernel_arguments.h"

namespace pumice {
namespace {

// What a Python user holds: the kernel and the context that it must not outlive.
struct PyKernel {
  std::shared_ptr<Context> context;
  std::shared_ptr<Kernel> kernel;
  Macros macros;
  SpecValues spec;
};

// Arguments made ready, and the arrays that the kernel's results go back to.
struct Prepared {
  KernelArguments arguments;
  std::vector<std::pair<std::string, std::pair<Tensor, py::array>>> arrays;
};

TensorArgument tensor_argument(const Tensor& tensor) {
  BufferRange range = tensor.range();
  range.bytes = std::min(range.bytes, (range.buffer->bytes() + 3) / 4 * 4 - range.offset);
  return {tensor.desc().dtype, range};
}

void add_argument(Prepared& prepared, const PyKernel& kernel, const std::string& name, const py::handle& value) {
  if (py::isinstance<Tensor>(value)) {
    prepared.arguments.emplace_back(name, tensor_argument(value.cast<const Tensor&>()));
  } else if (py::isinstance<py::bool_>(value)) {
    prepared.arguments.emplace_back(name, int64_t{value.cast<bool>()});
  } else if (py::isinstance<py::array>(value)) {
    const auto array = value.cast<py::array>();
    const HostTensor host = host_tensor(array, "argument '" + name + "'");
    Tensor tensor = Tensor::empty(kernel.context, host.desc.dtype, host.desc.shape);
    tensor.upload({host.data, static_cast<size_t>(host.desc.elements() * bits(host.desc.dtype) / 8)});
    prepared.arguments.emplace_back(name, tensor_argument(tensor));
    prepared.arrays.emplace_back(name, std::make_pair(tensor, array));
  } else if (PyIndex_Check(value.ptr())) {
    const auto integer = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
    int overflow = 0;
    const long long converted = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
    if (overflow) throw BindingError("K6", "argument '" + name + "'", name, "an integer of 64 bits", py::str(value).cast<std::string>());
    prepared.arguments.emplace_back(name, int64_t{converted});
  } else if (PyNumber_Check(value.ptr()) && !PyComplex_Check(value.ptr())) {
    prepared.arguments.emplace_back(name, py::float_(py::reinterpret_borrow<py::object>(value)).cast<double>());
  } else {
    throw BindingError("K5", "argument '" + name + "'", name, "a Tensor, a NumPy array or a number", type_name(value));
  }
}

std::array<uint64_t, 3> counts(const py::object& value) {
  if (py::isinstance<py::int_>(value)) return {value.cast<uint64_t>(), 1, 1};
  const auto list = value.cast<std::vector<uint64_t>>();
  if (list.empty() || list.size() > 3) throw BindingError("K8", "threads", "", "one to three numbers", std::to_string(list.size()));
  std::array<uint64_t, 3> result{1, 1, 1};
  std::copy(list.begin(), list.end(), result.begin());
  return result;
}

LaunchSize launch_size(const std::string& name, py::kwargs& arguments) {
  const bool threads = arguments.contains("threads"), groups = arguments.contains("groups");
  if (threads == groups)
    throw BindingError("K8", "threads", name, "either threads= (invocations) or groups= (workgroups)", threads ? "both" : "neither");
  const char* key = threads ? "threads" : "groups";
  LaunchSize size{groups, counts(arguments[key])};
  arguments.attr("pop")(key);
  return size;
}

Prepared prepare(const PyKernel& kernel, const py::kwargs& arguments) {
  Prepared prepared;
  for (const auto& [name, value] : arguments) add_argument(prepared, kernel, name.cast<std::string>(), value);
  return prepared;
}

Dispatch make_dispatch(const PyKernel& self, const KernelArguments& arguments, const LaunchSize& size) {
  const py::gil_scoped_release release;
  return bind_kernel(*self.kernel, arguments, size, self.macros, self.spec);
}

BoundKernel bind(const PyKernel& self, py::kwargs arguments) {
  const LaunchSize size = launch_size(self.kernel->name(), arguments);
  const Prepared prepared = prepare(self, arguments);
  return {make_dispatch(self, prepared.arguments, size)};
}

// Refused before anything runs: an array that the kernel writes has to be writable and laid out as uploaded.
void check_written(const Prepared& prepared, const Dispatch& dispatch) {
  for (const auto& [name, entry] : prepared.arrays) {
    const auto* binding = dispatch.kernel->interface().find_binding(name);
    if (binding && binding->access != Access::read && !entry.second.writeable())
      throw BindingError("K9", "argument '" + name + "'", name, "a writable array: the kernel writes it", "a read-only one");
  }
}

void call(const PyKernel& self, py::kwargs arguments) {
  const LaunchSize size = launch_size(self.kernel->name(), arguments);
  const Prepared prepared = prepare(self, arguments);
  Dispatch dispatch = make_dispatch(self, prepared.arguments, size);
  check_written(prepared, dispatch);
  const auto variant = dispatch.kernel;
  std::vector<Dispatch> dispatches;
  dispatches.push_back(std::move(dispatch));
  const auto recording = Recording::create(self.context, std::move(dispatches));
  wait_for(*self.context, recording->exec().id(), {});
  for (const auto& [name, entry] : prepared.arrays) {
    const auto* binding = variant->interface().find_binding(name);
    if (!binding || binding->access == Access::read) continue;
    py::array result = empty_array(entry.first.desc().dtype, entry.first.desc().shape);
    entry.first.download({static_cast<std::byte*>(result.mutable_data()), static_cast<size_t>(result.nbytes())});
    py::module_::import("numpy").attr("copyto")(entry.second, result);
  }
}

}  // namespace

void bind_kernel(py::module_& module) {
  py::class_<BoundKernel>(module, "BoundKernel", "A kernel with its arguments; CommandList.dispatch records it.")
      .def_property_readonly("groups", [](const BoundKernel& self) { return self.dispatch.groups; })
      .def("__repr__", [](const BoundKernel& self) { return "<BoundKernel '" + self.dispatch.label + "'>"; });
  py::class_<PyKernel>(module, "Kernel", "A compute shader in GLSL with the extension's types; called with its arguments by name.")
      .def(py::init([](const std::string& source, std::shared_ptr<Context> context, const std::string& name,
                       const std::map<std::string, std::string>& macros, const std::map<std::string, double>& spec,
                       std::optional<std::map<std::string, std::string>> includes, std::optional<ShaderOptions> options) {
             PyKernel made{context, std::make_shared<Kernel>(context, source, name, loader_of(std::move(includes)), std::move(options)),
                           Macros(macros.begin(), macros.end()), SpecValues(spec.begin(), spec.end())};
             const py::gil_scoped_release release;
             made.kernel->variant(Storage::fp32, made.macros, made.spec);  // errors in the text are raised here
             return made;
           }),
           py::arg("source"), py::arg("context").none(false), py::arg("name") = "kernel",
           py::arg("macros") = std::map<std::string, std::string>{}, py::arg("spec") = std::map<std::string, double>{},
           py::arg("includes") = py::none(), py::arg("options") = py::none(),
           "source: GLSL text. macros: names -> text. spec: specialization constants -> values. includes: paths -> text. options: in "
           "place of those that follow from the device and the arrays, which are then of the types that the shader declares.\nRaises "
           "ShaderCompileError, UnsupportedError.")
      .def_property_readonly("name", [](const PyKernel& self) { return self.kernel->name(); })
      .def_property_readonly("source", [](const PyKernel& self) { return self.kernel->source(); })
      .def("bind", &bind, "A BoundKernel for command lists: Tensors and numbers by name, and threads= or groups=.")
      .def("__call__", &call,
           "Runs once and waits. Arguments by name: Tensors, NumPy arrays (copied in, and back where the kernel writes them), numbers; "
           "threads= or groups=.")
      .def("__repr__", [](const PyKernel& self) { return "<Kernel '" + self.kernel->name() + "'>"; });
}

}  // namespace pumice
