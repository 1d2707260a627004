#include "bindings.h"
#include "core/error.h"
#include "device/image.h"
#include "device/tensor.h"
#include "dispatch/command_list.h"
#include "dispatch/kernel_calls.h"
#include "dispatch/messages.h"

namespace pumice {
namespace {

// What a Python user holds: the kernel and the context that it must not outlive.
struct PyKernel {
  std::shared_ptr<Context> context;
  std::shared_ptr<Kernel> kernel;
  std::shared_ptr<KernelCalls> calls;
  std::shared_ptr<const KernelVariant> plain;  // the fp32 build

  const Interface& interface() const { return plain->interface(); }
};

// An array as it was given, and its elements row-major: the same memory where it is so already.
struct GivenArray {
  std::string name;
  py::array given;
  HostTensor host;
};

// Arguments made ready.
struct Prepared {
  KernelArguments arguments;
  std::vector<GivenArray> arrays;
};

TensorArgument tensor_argument(const std::string& name, const Tensor& tensor) {
  if (!tensor.desc().is_packed())
    throw BindingError("K7", "argument '" + name + "'", name, "a row-major tensor; .contiguous() makes one", to_string(tensor.desc()));
  BufferRange range = tensor.range();
  const uint64_t bytes = tensor.desc().element_bytes();
  range.bytes = std::min(range.bytes, (range.buffer->bytes() + 3) / 4 * 4 - range.offset);
  return {tensor.desc().dtype, range, bytes};
}

[[noreturn]] void refuse_argument(const std::string& name, const py::handle& value) {
  throw BindingError("K5", "argument '" + name + "'", name, "a Tensor, a NumPy array, an Image, a number, or numbers in a sequence or dict",
                     type_name(value));
}

bool is_numpy_complex(const py::handle& value) {
  return py::hasattr(value, "dtype") && py::str(value.attr("dtype").attr("kind")).cast<std::string>() == "c";
}

Number number_of(const std::string& name, const py::handle& value) {
  if (py::isinstance<py::bool_>(value)) return int64_t{value.cast<bool>()};
  if (PyIndex_Check(value.ptr())) {
    const auto integer = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
    if (!integer) throw py::error_already_set();
    int overflow = 0;
    const long long converted = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
    if (overflow) throw BindingError("K6", "argument '" + name + "'", name, "an integer of 64 bits", py::str(value).cast<std::string>());
    return int64_t{converted};
  }
  if (!PyNumber_Check(value.ptr()) || PyComplex_Check(value.ptr()) || is_numpy_complex(value)) refuse_argument(name, value);
  return py::float_(py::reinterpret_borrow<py::object>(value)).cast<double>();
}

bool is_sequence(const py::handle& value) {
  return py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value);
}

// A list may hold itself.
void check_depth(const std::string& name, int depth) {
  constexpr int kMostDepth = 32;
  if (depth > kMostDepth)
    throw BindingError("K5", "argument '" + name.substr(0, 60) + "'", name.substr(0, 60),
                       "sequences and dicts nested at most " + std::to_string(kMostDepth) + " deep", "deeper ones");
}

// The numbers of a vector, matrix or array, in the order of memory.
void add_numbers(std::vector<Number>& numbers, const std::string& name, const py::handle& value, int depth = 0) {
  check_depth(name, depth);
  if (py::isinstance<py::array>(value)) return add_numbers(numbers, name, value.attr("ravel")().attr("tolist")(), depth + 1);
  if (!is_sequence(value)) return numbers.push_back(number_of(name, value));
  for (const auto& one : py::reinterpret_borrow<py::sequence>(value)) add_numbers(numbers, name, one, depth + 1);
}

// Push constants by the names of the reflection: a dict is a structure, a sequence of dicts an array of them.
void add_push_constant(Prepared& prepared, const std::string& name, const py::handle& value, int depth = 0) {
  check_depth(name, depth);
  if (py::isinstance<py::dict>(value)) {
    for (const auto& [member, inner] : py::reinterpret_borrow<py::dict>(value))
      add_push_constant(prepared, name + "." + py::str(member).cast<std::string>(), inner, depth + 1);
    return;
  }
  if (is_sequence(value) && py::len(value) > 0 && py::isinstance<py::dict>(value[py::int_(0)])) {
    size_t i = 0;
    for (const auto& one : py::reinterpret_borrow<py::sequence>(value))
      add_push_constant(prepared, name + "[" + std::to_string(i++) + "]", one, depth + 1);
    return;
  }
  std::vector<Number> numbers;
  add_numbers(numbers, name, value);
  prepared.arguments.emplace_back(name, std::move(numbers));
}

void add_argument(Prepared& prepared, const PyKernel& kernel, const std::string& name, const py::handle& value) {
  if (py::isinstance<Tensor>(value))
    prepared.arguments.emplace_back(name, tensor_argument(name, value.cast<const Tensor&>()));
  else if (py::isinstance<Image>(value))
    prepared.arguments.emplace_back(name, value.cast<std::shared_ptr<Image>>());
  else if (!py::isinstance<py::array>(value) || kernel.interface().find_push_constant(name))
    add_push_constant(prepared, name, value);
  else
    prepared.arrays.push_back({name, value.cast<py::array>(), host_tensor(value.cast<py::array>(), "argument '" + name + "'")});
}

std::array<uint64_t, 3> counts(const char* key, const py::object& value) {
  std::vector<Number> numbers;
  add_numbers(numbers, key, value);
  const auto is_count = [](const Number& number) {
    return std::holds_alternative<int64_t>(number) && std::get<int64_t>(number) >= 0 && std::get<int64_t>(number) <= UINT32_MAX;
  };
  if (numbers.empty() || numbers.size() > 3 || !std::all_of(numbers.begin(), numbers.end(), is_count))
    throw BindingError("K8", key, "", "one to three whole numbers from 0 to 4294967295", py::str(value).cast<std::string>());
  std::array<uint64_t, 3> result{1, 1, 1};
  for (size_t i = 0; i < numbers.size(); ++i) result[i] = static_cast<uint64_t>(std::get<int64_t>(numbers[i]));
  return result;
}

LaunchSize launch_size(const std::string& name, py::kwargs& arguments) {
  const bool threads = arguments.contains("threads"), groups = arguments.contains("groups");
  if (threads == groups)
    throw BindingError("K8", "threads", name, "either threads= (invocations) or groups= (workgroups)", threads ? "both" : "neither");
  const char* key = threads ? "threads" : "groups";
  LaunchSize size{groups, counts(key, arguments[key])};
  arguments.attr("pop")(key);
  return size;
}

Prepared prepare(const PyKernel& kernel, const py::kwargs& arguments) {
  Prepared prepared;
  for (const auto& [name, value] : arguments) add_argument(prepared, kernel, name.cast<std::string>(), value);
  return prepared;
}

uint64_t element_bytes(const HostTensor& host) {
  return host.desc.element_bytes();
}

bool is_written(const PyKernel& self, const std::string& name) {
  const auto* binding = self.interface().find_binding(name);
  return binding && binding->access != Access::read;
}

BoundKernel bind(const PyKernel& self, py::kwargs arguments) {
  const LaunchSize size = launch_size(self.kernel->name(), arguments);
  Prepared prepared = prepare(self, arguments);
  for (const auto& [name, given, host] : prepared.arrays) {
    if (is_written(self, name))
      throw BindingError("K9", "argument '" + name + "'", name, "a Tensor: what a bound kernel writes stays on the device",
                         "a NumPy array");
    prepared.arguments.emplace_back(name, tensor_argument(name, tensor_of(host, self.context)));
  }
  const ReleasedGil release;
  return {self.calls->bind(prepared.arguments, size)};
}

// Each array is uploaded by itself: what two of them write to one place would be lost.
void check_overlaps(const PyKernel& self, const Prepared& prepared) {
  for (size_t i = 0; i < prepared.arrays.size(); ++i) {
    if (!is_written(self, prepared.arrays[i].name)) continue;
    for (size_t j = 0; j < i; ++j) {
      const auto &one = prepared.arrays[j], &other = prepared.arrays[i];
      if (is_written(self, one.name) && py::module_::import("numpy").attr("may_share_memory")(one.given, other.given).cast<bool>())
        throw BindingError("K9", "argument '" + other.name + "'", other.name,
                           "an array apart from '" + one.name + "': the kernel writes both", "one that may share its memory");
    }
  }
}

// Where the results of a kernel go at first: the array itself, an array that is copied to it afterwards, or nowhere.
std::vector<py::array> result_arrays(const Prepared& prepared, std::vector<ArrayArgument>& arguments) {
  std::vector<py::array> staged(prepared.arrays.size());
  for (size_t i = 0; i < staged.size(); ++i) {
    const auto& [name, given, host] = prepared.arrays[i];
    ArrayArgument& argument = arguments.emplace_back(name, host.desc.dtype, std::span(host.data, element_bytes(host)), nullptr);
    if (!given.writeable()) continue;
    if (host.data == static_cast<const std::byte*>(given.data())) {
      argument.target = const_cast<std::byte*>(host.data);
      continue;
    }
    staged[i] = empty_array(host.desc.dtype, host.desc.shape);
    argument.target = static_cast<std::byte*>(staged[i].mutable_data());
  }
  return staged;
}

// Returns an error about bounds, which is raised when the results are back.
std::exception_ptr run_and_log(const PyKernel& self, const Prepared& prepared, std::span<const ArrayArgument> arrays,
                               const LaunchSize& size) {
  std::exception_ptr error;
  {
    const ReleasedGil release;
    try {
      self.calls->run(prepared.arguments, arrays, size, check_signals);
    } catch (const OutOfBoundsError&) {
      error = std::current_exception();
    }
  }
  MessageLog& log = *self.kernel->debug()->log;
  if (log.has_unlogged()) log_messages(log);
  return error;
}

void call(const PyKernel& given, py::kwargs arguments) {
  const PyKernel self = given;  // another thread may replace it
  const LaunchSize size = launch_size(self.kernel->name(), arguments);
  const Prepared prepared = prepare(self, arguments);
  check_overlaps(self, prepared);
  std::vector<ArrayArgument> arrays;
  arrays.reserve(prepared.arrays.size());
  const std::vector<py::array> staged = result_arrays(prepared, arrays);
  const std::exception_ptr error = run_and_log(self, prepared, arrays, size);
  for (size_t i = 0; i < staged.size(); ++i)
    if (staged[i].size() > 0 && is_written(self, prepared.arrays[i].name))
      py::module_::import("numpy").attr("copyto")(prepared.arrays[i].given, staged[i]);
  if (error) std::rethrow_exception(error);
}

}  // namespace

void bind_kernel(py::module_& module) {
  py::class_<BoundKernel>(module, "BoundKernel", "A kernel with its arguments; CommandList.dispatch records it.")
      .def_property_readonly("groups", [](const BoundKernel& self) { return self.dispatch.groups; })
      .def("__repr__", [](const BoundKernel& self) { return "<BoundKernel '" + self.dispatch.label + "'>"; });
  py::class_<PyKernel>(module, "Kernel", "A compute shader in GLSL with the extension's types; called with its arguments by name.")
      .def(py::init([](const std::string& source, std::shared_ptr<Context> context, const std::string& name,
                       const std::map<std::string, std::string>& macros, const std::map<std::string, double>& spec,
                       std::optional<std::map<std::string, std::string>> includes, std::optional<ShaderOptions> options,
                       std::vector<std::string> include_dirs, bool from_file, bool debug, uint64_t message_bytes) {
             Includes where{std::move(includes).value_or(std::map<std::string, std::string>{}), std::move(include_dirs), from_file};
             auto kernel =
                 std::make_shared<Kernel>(context, source, name, std::move(where), std::move(options), DebugOptions{debug, message_bytes});
             const Macros defined(macros.begin(), macros.end());
             const SpecValues constants(spec.begin(), spec.end());
             PyKernel made{context, kernel, std::make_shared<KernelCalls>(context, kernel, defined, constants), nullptr};
             const ReleasedGil release;
             made.plain = kernel->variant(Storage::fp32, defined, constants);  // errors in the text are raised here
             return made;
           }),
           py::arg("source"), py::arg("context").none(false), py::arg("name") = "kernel",
           py::arg("macros") = std::map<std::string, std::string>{}, py::arg("spec") = std::map<std::string, double>{},
           py::arg("includes") = py::none(), py::arg("options") = py::none(), py::arg("include_dirs") = std::vector<std::string>{},
           py::arg("from_file") = false, py::arg("debug") = false, py::arg("message_bytes") = DebugOptions{}.ring_bytes,
           "source: GLSL text. macros: names -> text. spec: specialization constants -> values. includes: paths -> text. options: in "
           "place of those that follow from the device and the arrays, which are then of the types that the shader declares. include_dirs: "
           "folders. from_file: name is the path of the source. debug: check bounds. message_bytes: of the ring for printf.\nRaises "
           "ShaderCompileError, UnsupportedError, BindingError.")
      .def_property_readonly("name", [](const PyKernel& self) { return self.kernel->name(); })
      .def_property_readonly("source", [](const PyKernel& self) { return self.kernel->source(); })
      .def_property_readonly(
          "shader", [](const PyKernel& self) { return std::const_pointer_cast<Shader>(self.plain->shader()); },
          "The fp32 build (or that of the given options).")
      .def_property_readonly(
          "variants",
          [](const PyKernel& self) {
            std::map<std::string, std::shared_ptr<Shader>> found;
            for (const auto& variant : self.kernel->variants())
              found.emplace(name(variant->shader()->options.storage), std::const_pointer_cast<Shader>(variant->shader()));
            return found;
          },
          "What was built so far: storage name -> Shader. A call makes the one that its arrays need.")
      .def_property_readonly(
          "messages", [](const PyKernel& self) { return self.kernel->debug()->log->messages(); },
          "What printf said in the executions that were waited for, until take_messages(); the latest 100,000.")
      .def_property_readonly(
          "messages_lost", [](const PyKernel& self) { return self.kernel->debug()->log->lost(); },
          "Messages that found no room, since take_messages().")
      .def(
          "take_messages", [](const PyKernel& self) { return self.kernel->debug()->log->take(); },
          "The messages, which are then forgotten.")
      .def(
          "disassemble", [](const PyKernel& self) { return self.plain->shader()->disassemble(); },
          "The SPIR-V of the fp32 build (or that of the given options) as text.")
      .def(
          "_replace", [](PyKernel& self, const PyKernel& other) { self = other; }, py::arg("other"), "Becomes another kernel.")
      .def("bind", &bind, "A BoundKernel for command lists: Tensors, Images and push constants by name, and threads= or groups=.")
      .def("run", &call,
           "Runs once and waits. Arguments by name: Tensors, NumPy arrays (copied in, and back where the kernel writes them), Images, and "
           "push "
           "constants: numbers, sequences of them for vectors, matrices (by columns) and arrays, dicts for structures; threads= or "
           "groups=.")
      .def("__repr__", [](const PyKernel& self) { return "<Kernel '" + self.kernel->name() + "'>"; });
}

}  // namespace pumice
