#include <cmath>
#include <set>

#include "bindings.h"
#include "core/error.h"
#include "device/image.h"
#include "device/tensor.h"
#include "dispatch/command_list.h"
#include "dispatch/kernel/debug_messages.h"
#include "dispatch/kernel_caller.h"
#include "kernel_options.h"
#include "numeric_arguments.h"
#include "numpy_layout.h"
#include "shader/spirv/declared_sizes.h"

namespace pumice {
namespace {

// A kernel in Python. Keeps its context alive.
struct PyKernel {
  std::shared_ptr<Context> context;
  std::shared_ptr<Kernel> kernel;
  std::shared_ptr<KernelCaller> calls;
  std::shared_ptr<const KernelVariant> fp32_variant;  // the fp32 build

  const ShaderInterface& interface() const { return fp32_variant->interface(); }
};

// A NumPy argument and its elements in row-major order. They share the array's memory if it is row-major already.
struct NumpyArgument {
  std::string name;
  py::array original, native;  // native: row-major struct array
  HostTensor host;
  std::shared_ptr<const MemoryLayout> layout;  // struct layout; `host` then contains raw bytes

  uint64_t last_axis_size() const {
    const Shape& shape = host.desc.shape;
    return shape.empty() ? 1 : static_cast<uint64_t>(shape.back());
  }
};

// Converted and checked arguments of a call.
struct ConvertedArguments {
  KernelArguments arguments;
  std::vector<NumpyArgument> arrays;
};

TensorArgument make_tensor_argument(const std::string& name, const Tensor& tensor) {
  if (!tensor.desc().is_packed())
    throw BindingError("K7", "argument '" + name + "'", name, "a row-major tensor; .contiguous() makes one", to_string(tensor.desc()));
  BufferRange range = tensor.range();
  const uint64_t bytes = tensor.desc().element_bytes();
  range.bytes = std::min(range.bytes, (range.buffer->bytes() + 3) / 4 * 4 - range.offset);
  const Shape& shape = tensor.desc().shape;
  return {tensor.desc().dtype, range, bytes, shape.empty() ? 1 : static_cast<uint64_t>(shape.back())};
}

// Adds push constants under their reflected names: a dict is a struct, a sequence of dicts an array of structs.
void add_push_constant(ConvertedArguments& converted, const std::string& name, const py::handle& value, size_t depth = 0) {
  check_nesting_depth(name, depth);
  if (py::isinstance<py::dict>(value)) {
    for (const auto& [member, inner] : py::reinterpret_borrow<py::dict>(value))
      add_push_constant(converted, name + "." + py::str(member).cast<std::string>(), inner, depth + 1);
    return;
  }
  if (is_sequence(value) && py::len(value) > 0 && py::isinstance<py::dict>(value[py::int_(0)])) {
    size_t i = 0;
    for (const auto& item : py::reinterpret_borrow<py::sequence>(value))
      add_push_constant(converted, name + "[" + std::to_string(i++) + "]", item, depth + 1);
    return;
  }
  PushConstantValues numbers;
  append_numbers(numbers, name, value);
  converted.arguments.emplace_back(name, std::move(numbers));
}

// Converts an array of structs to raw bytes, one row per struct.
NumpyArgument make_struct_argument(const std::string& name, const py::array& array) {
  NumpyArgument argument{name, array, array, {}, parse_memory_layout(array.dtype(), "argument '" + name + "'")};
  if (!(array.flags() & py::array::c_style))
    argument.native = py::module_::import("numpy").attr("ascontiguousarray")(array).cast<py::array>();
  Shape shape = get_shape(argument.native);
  shape.push_back(argument.native.itemsize());
  argument.host.desc = TensorDesc(DType::uint8, shape);
  argument.host.data = static_cast<const std::byte*>(argument.native.data());
  return argument;
}

NumpyArgument make_numpy_argument(const std::string& name, const py::array& array) {
  if (array.dtype().has_fields()) return make_struct_argument(name, array);
  return {name, array, {}, make_host_tensor(array, "argument '" + name + "'"), nullptr};
}

bool is_written(const PyKernel& self, const std::string& name) {
  const auto* binding = self.interface().find_binding(name);
  return binding && binding->access != ResourceAccess::read;
}

// Returns a view of another library's array, not a copy, because results are written back to its memory.
py::array view_foreign_array(const PyKernel& kernel, const std::string& name, const py::handle& value) {
  py::array array = convert_to_numpy(value, "argument '" + name + "'");
  if (is_written(kernel, name) && array.size() > 0 && (!array.writeable() || array.data() != convert_to_numpy(value, name).data()))
    throw BindingError("K9", "argument '" + name + "'", name, "an array whose memory NumPy can share, since the kernel writes to it",
                       get_type_name(value) + ", which NumPy converts to " + (array.writeable() ? "a copy" : "a read-only array"));
  return array;
}

void add_argument(ConvertedArguments& converted, const PyKernel& kernel, const std::string& name, const py::handle& value) {
  if (value.is_none() && kernel.interface().find_binding(name))
    converted.arguments.emplace_back(name, NoBinding{});
  else if (py::isinstance<Tensor>(value))
    converted.arguments.emplace_back(name, make_tensor_argument(name, value.cast<const Tensor&>()));
  else if (py::isinstance<Image>(value))
    converted.arguments.emplace_back(name, value.cast<std::shared_ptr<Image>>());
  else if (is_foreign_array(value)) {
    const auto shared = find_cuda_tensor(value, kernel.context);
    add_argument(converted, kernel, name, shared ? py::cast(*shared) : view_foreign_array(kernel, name, value));
  } else if (!py::isinstance<py::array>(value) || kernel.interface().find_push_constant(name))
    add_push_constant(converted, name, value);
  else
    converted.arrays.push_back(make_numpy_argument(name, value.cast<py::array>()));
}

std::array<uint64_t, 3> parse_launch_counts(const char* key, const py::object& value) {
  PushConstantValues numbers;
  const auto throw_error = [&] {
    throw BindingError("K8", key, "", "one to three integers from 0 to 4294967295", py::repr(value).cast<std::string>());
  };
  if (!is_sequence(value) && !PyNumber_Check(value.ptr())) throw_error();
  append_numbers(numbers, key, value);
  const auto is_count = [](const Number& number) {
    return std::holds_alternative<int64_t>(number) && std::get<int64_t>(number) >= 0 && std::get<int64_t>(number) <= UINT32_MAX;
  };
  const auto& values = numbers.values;
  if (values.empty() || values.size() > 3 || numbers.shape.size() > 1 || !std::all_of(values.begin(), values.end(), is_count))
    throw_error();
  std::array<uint64_t, 3> result{1, 1, 1};
  for (size_t i = 0; i < values.size(); ++i) result[i] = static_cast<uint64_t>(std::get<int64_t>(values[i]));
  return result;
}

// Arguments of a kernel call, and its launch size.
struct CallArguments {
  py::dict positional_dict;
  py::kwargs by_name;
  LaunchSize size;
};

bool has_argument(const PyKernel& kernel, const char* name) {
  const ShaderInterface& interface = kernel.interface();
  return interface.find_push_constant(name) || interface.find_binding(name) || interface.find_image(name);
}

// Rejects a kernel argument whose name is reserved for call options.
[[noreturn]] void reject_reserved(const std::string& key, const std::string& meaning) {
  throw BindingError("K3", "argument '" + key + "'", key,
                     "its value in a dict, since " + key + "= is " + meaning + ": kernel({\"" + key + "\": value}, threads=...)",
                     "nothing");
}

// Returns a launch size whose group counts the device reads from a tensor.
LaunchSize make_indirect_launch_size(const Tensor& tensor, const std::string& name) {
  const TensorDesc& desc = tensor.desc();
  const BufferRange range = tensor.range();
  if (desc.dtype != DType::uint32 || desc.shape != Shape{3} || !desc.is_packed() || range.offset % 4 != 0)
    throw BindingError("K8", "groups", name, "a row-major tensor of three uint32, the numbers of workgroups per axis", to_string(desc));
  return {true, {1, 1, 1}, {range.buffer, range.offset, kGuardCounts}};
}

LaunchSize parse_launch_size(const PyKernel& kernel, const CallArguments& args) {
  const bool threads = args.by_name.contains("threads"), groups = args.by_name.contains("groups");
  for (const char* key : {"threads", "groups"})
    if (has_argument(kernel, key) && !args.positional_dict.contains(key)) reject_reserved(key, "the size of the launch");
  if (threads == groups)
    throw BindingError("K8", "threads", kernel.kernel->name(), "either threads= (invocations) or groups= (workgroups)",
                       threads ? "both" : "neither");
  const char* key = threads ? "threads" : "groups";
  if (py::isinstance<Tensor>(args.by_name[key])) {
    if (groups) return make_indirect_launch_size(args.by_name[key].cast<const Tensor&>(), kernel.kernel->name());
    throw BindingError("K8", key, kernel.kernel->name(),
                       "numbers; to read the numbers of workgroups from a tensor, use groups=", "a Tensor");
  }
  return {groups, parse_launch_counts(key, args.by_name[key])};
}

CallArguments parse_call_arguments(const PyKernel& kernel, const py::args& positional, py::kwargs by_name) {
  CallArguments args{{}, std::move(by_name), {}};
  if (positional.size() > 1 || (positional.size() == 1 && !py::isinstance<py::dict>(positional[0])))
    throw BindingError("K5", "arguments", kernel.kernel->name(), "arguments by name, or one dict of them",
                       positional.size() == 1 ? get_type_name(positional[0]) : std::to_string(positional.size()) + " without a name");
  if (positional.size() == 1) args.positional_dict = positional[0].cast<py::dict>();
  args.size = parse_launch_size(kernel, args);
  args.by_name.attr("pop")(args.size.in_groups ? "groups" : "threads");
  return args;
}

ConvertedArguments convert_arguments(const PyKernel& kernel, const CallArguments& args) {
  ConvertedArguments converted;
  std::set<std::string> names;
  for (const py::dict& arguments : {args.positional_dict, py::dict(args.by_name)})
    for (const auto& [key, value] : arguments) {
      if (!py::isinstance<py::str>(key))
        throw BindingError("K4", "arguments", kernel.kernel->name(), "names of arguments", py::repr(key).cast<std::string>());
      const auto text = key.cast<std::string>(), name = kernel.interface().resolve_argument_name(text);
      if (!names.insert(name).second)
        throw BindingError("K4", "argument '" + text + "'", text, "one value for '" + name + "'", "two of them");
      add_argument(converted, kernel, name, value);
    }
  return converted;
}

BoundKernel bind_arguments(const PyKernel& self, const py::args& positional, py::kwargs by_name) {
  const CallArguments call_arguments = parse_call_arguments(self, positional, std::move(by_name));
  ConvertedArguments converted = convert_arguments(self, call_arguments);
  for (const auto& array : converted.arrays) {
    const auto& [name, original, native, host, layout] = array;
    if (is_written(self, name))
      throw BindingError("K9", "argument '" + name + "'", name, "a Tensor, because the outputs of a bound kernel stay on the device",
                         "a NumPy array");
    TensorArgument argument = make_tensor_argument(name, upload_tensor(host, self.context));
    argument.layout = layout.get();
    converted.arguments.emplace_back(name, argument);
  }
  BoundKernel bound;
  {
    const GilRelease release;
    bound = {self.calls->bind(converted.arguments, call_arguments.size)};
  }
  forward_log();
  return bound;
}

// Rejects overlapping outputs: arrays are uploaded separately, so one result would overwrite the other.
void reject_overlapping_outputs(const PyKernel& self, const ConvertedArguments& converted) {
  for (size_t i = 0; i < converted.arrays.size(); ++i) {
    if (!is_written(self, converted.arrays[i].name)) continue;
    for (size_t j = 0; j < i; ++j) {
      const auto &first = converted.arrays[j], &second = converted.arrays[i];
      if (is_written(self, first.name) &&
          py::module_::import("numpy").attr("may_share_memory")(first.original, second.original).cast<bool>())
        throw BindingError("K9", "argument '" + second.name + "'", second.name,
                           "an array that does not overlap '" + first.name + "', because the kernel writes both",
                           "one that may share its memory");
    }
  }
}

// Returns a temporary array for each result that cannot be written to the caller's array directly.
std::vector<py::array> make_result_temporaries(const ConvertedArguments& converted, std::vector<ArrayArgument>& arguments) {
  std::vector<py::array> temporaries(converted.arrays.size());
  for (size_t i = 0; i < temporaries.size(); ++i) {
    const auto& [name, original, native, host, layout] = converted.arrays[i];
    ArrayArgument& argument = arguments.emplace_back(name, host.desc.dtype, std::span(host.data, host.desc.element_bytes()), nullptr,
                                                     converted.arrays[i].last_axis_size(), layout.get());
    if (!original.writeable()) continue;
    if (host.data == static_cast<const std::byte*>(original.data())) {
      argument.target = const_cast<std::byte*>(host.data);
      continue;
    }
    temporaries[i] = layout ? py::array(original.dtype(), std::vector<py::ssize_t>(original.shape(), original.shape() + original.ndim()))
                            : make_empty_array(host.desc.dtype, host.desc.shape);
    argument.target = static_cast<std::byte*>(temporaries[i].mutable_data());
  }
  return temporaries;
}

// Returns the out-of-bounds error, if any, so that it is thrown after results are copied back.
std::exception_ptr run_and_log(const PyKernel& self, const ConvertedArguments& converted, std::span<const ArrayArgument> arrays,
                               const LaunchSize& size, std::optional<double> timeout) {
  std::exception_ptr error;
  {
    const GilRelease release;
    try {
      self.calls->run(converted.arguments, arrays, size, timeout, check_signals);
    } catch (const OutOfBoundsError&) {
      error = std::current_exception();
    }
  }
  MessageLog& log = *self.kernel->debug()->log;
  if (log.has_unlogged_messages()) log_messages(log);
  forward_log();
  return error;
}

// Returns the maximum wait of a call in seconds; nullopt: unlimited.
std::optional<double> pop_timeout(const PyKernel& kernel, const py::args& positional, const py::kwargs& by_name) {
  const bool in_dict = positional.size() == 1 && py::isinstance<py::dict>(positional[0]) && positional[0].contains("timeout");
  if (has_argument(kernel, "timeout") && !in_dict) reject_reserved("timeout", "how long the call waits");
  if (!by_name.contains("timeout")) return {};
  const py::object timeout = by_name.attr("pop")("timeout");
  if (timeout.is_none()) return {};
  const auto throw_error = [&] {
    throw BindingError("K8", "timeout", kernel.kernel->name(), "a non-negative number of seconds, or None",
                       py::repr(timeout).cast<std::string>());
  };
  if (!PyNumber_Check(timeout.ptr()) || is_unsupported_number(timeout)) throw_error();
  const double seconds = PyFloat_AsDouble(timeout.ptr());
  if (seconds == -1.0 && PyErr_Occurred()) PyErr_Clear(), throw_error();
  if (!(seconds >= 0)) throw_error();
  return seconds;
}

void call_kernel(const PyKernel& kernel, const py::args& positional, py::kwargs by_name) {
  const PyKernel self = kernel;  // copy, since another thread may replace it
  const std::optional<double> timeout = pop_timeout(self, positional, by_name);
  const CallArguments args = parse_call_arguments(self, positional, std::move(by_name));
  const ConvertedArguments converted = convert_arguments(self, args);
  reject_overlapping_outputs(self, converted);
  std::vector<ArrayArgument> arrays;
  arrays.reserve(converted.arrays.size());
  const std::vector<py::array> temporaries = make_result_temporaries(converted, arrays);
  const std::exception_ptr error = run_and_log(self, converted, arrays, args.size, timeout);
  for (size_t i = 0; i < temporaries.size(); ++i)
    if (temporaries[i].size() > 0 && is_written(self, converted.arrays[i].name))
      py::module_::import("numpy").attr("copyto")(converted.arrays[i].original, temporaries[i]);
  if (error) std::rethrow_exception(error);
}

SpecValues parse_spec_values(const py::dict& spec) {
  SpecValues values;
  for (const auto& [name, value] : spec) {
    if (!py::isinstance<py::str>(name))
      throw BindingError("K1", "specialization constant", "", "names of constants", py::repr(name).cast<std::string>());
    const auto text = name.cast<std::string>();
    PushConstantValues numbers;
    append_numbers(numbers, text, value);
    if (!numbers.shape.empty()) throw_argument_error(text, value);
    values.emplace_back(text, numbers.values.front());
  }
  std::sort(values.begin(), values.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return values;
}

py::dtype make_element_dtype(const PyKernel& self, const std::string& argument_name, std::optional<uint32_t> length) {
  const std::string name = self.interface().resolve_argument_name(argument_name);
  const auto* binding = self.interface().find_binding(name);
  const auto throw_error = [&](const std::string& expected, const std::string& actual) {
    throw BindingError("K4", "argument '" + name + "'", name, expected, actual);
  };
  if (!binding || binding->name != name || is_debug_binding(name)) throw_error("the array of a buffer", "'" + name + "'");
  if (!binding->layout) throw UnsupportedError("'" + name + "' has too many members for a dtype");
  const auto& members = binding->layout->members;
  const bool has_length =
      binding->is_block && !members.empty() && !members.back().layout.axes.empty() && members.back().layout.axes.front() == 0;
  if (has_length && !length) throw_error("length=, since '" + name + "' follows other members of its block", "no length");
  if (!has_length && length) throw_error("no length: this is the dtype of one element", "length=" + std::to_string(*length));
  return make_layout_dtype(*binding->layout, length.value_or(0));
}

// Returns (sizes, axes, members): array sizes without and with padding, and the same for struct members by name.
py::tuple make_layout_record(const MemoryLayout& layout, const DeclaredSizes& declared) {
  const bool is_vector =
      layout.members.empty() && !declared.members.empty();  // a struct that represents a vector type of the GLSL extension
  py::dict members;
  for (const auto& member : layout.members)
    members[py::str(member.name)] = make_layout_record(member.layout, declared.members.at(member.name));
  return py::make_tuple(py::tuple(py::cast(is_vector ? layout.axes : declared.sizes)), py::tuple(py::cast(layout.axes)), members);
}

py::object find_layout_record(const PyKernel& self, const std::string& name) {
  const auto* binding = self.interface().find_binding(self.interface().resolve_argument_name(name));
  if (!binding || !binding->layout) return py::none();
  const DeclaredSizes block = get_declared_sizes(self.fp32_variant->shader()->spirv, binding->binding);
  if (binding->is_block) return make_layout_record(*binding->layout, block);
  DeclaredSizes element = block.members.begin()->second;
  element.sizes.erase(element.sizes.begin());
  return make_layout_record(*binding->layout, element);
}

}  // namespace

void bind_kernel(py::module_& module) {
  py::class_<BoundKernel>(module, "BoundKernel", "A kernel with bound arguments, for CommandList.dispatch().")
      .def_property_readonly(
          "groups",
          [](const BoundKernel& self) {
            return self.dispatch.guard.buffer ? std::optional<std::array<uint32_t, 3>>() : self.dispatch.groups;
          },
          "Number of workgroups per axis; None if the device reads them from a tensor.")
      .def("__repr__", [](const BoundKernel& self) { return "<BoundKernel '" + self.dispatch.label + "'>"; });
  py::class_<PyKernel>(module, "Kernel", "A GLSL compute shader with the extension's types, called with arguments by name.")
      .def(py::init([](const std::string& source, std::shared_ptr<Context> context, const std::string& name,
                       const std::map<std::string, std::string>& macros, const Record& spec,
                       std::optional<std::map<std::string, std::string>> includes, const OptionsArgument& options,
                       std::vector<std::string> include_dirs, const std::string& path, bool debug, uint64_t message_bytes,
                       const LocalSizeArgument& local_size, const py::bytes& spirv) {
             IncludeSearchPath include_paths{std::move(includes).value_or(std::map<std::string, std::string>{}), std::move(include_dirs)};
             KernelSource text{source, name, path, std::move(include_paths), parse_local_size(local_size), parse_spirv_words(spirv)};
             auto kernel =
                 std::make_shared<Kernel>(context, std::move(text), make_options_callback(options), DebugOptions{debug, message_bytes});
             const Macros macro_list(macros.begin(), macros.end());
             const SpecValues constants = parse_spec_values(spec);
             if (!std::holds_alternative<std::monostate>(local_size))
               for (const auto& [constant, value] : constants)
                 if (constant.starts_with("local_size_"))
                   throw BindingError("K1", "specialization constant", constant, "either local_size= or constants with this name", "both");
             PyKernel kernel_object{context, kernel, std::make_shared<KernelCaller>(context, kernel, macro_list, constants), nullptr};
             const GilRelease release;
             kernel_object.fp32_variant = kernel->get_variant(StorageType::fp32, macro_list, constants);  // source errors are thrown here
             return kernel_object;
           }),
           py::arg("source"), py::arg("context").none(false), py::arg("name") = "kernel",
           py::arg("macros") = std::map<std::string, std::string>{}, py::arg("spec") = Record(), py::arg("includes") = py::none(),
           py::arg("options") = py::none(), py::arg("include_dirs") = std::vector<std::string>{}, py::arg("path") = "",
           py::arg("debug") = false, py::arg("message_bytes") = DebugOptions{}.ring_bytes, py::arg("local_size") = py::none(),
           py::arg("spirv") = py::bytes(),
           "Compile a kernel.\n"
           "source: GLSL source.\n"
           "macros: names -> text.\n"
           "spec: specialization constants -> values.\n"
           "includes: paths -> source.\n"
           "options: ShaderOptions that replace those derived from the device and the arrays, which then need the types declared in the "
           "shader; or a dict of keywords to change only these.\n"
           "include_dirs: folders searched by #include.\n"
           "path: file of the source.\n"
           "debug: check bounds.\n"
           "message_bytes: size of the printf ring buffer.\n"
           "local_size: workgroup size, for sources that declare none.\n"
           "spirv: a SPIR-V module to use instead of the source.\n"
           "Raise ShaderCompileError, UnsupportedError, BindingError.")
      .def_property_readonly("name", [](const PyKernel& self) { return self.kernel->name(); })
      .def_property_readonly("source", [](const PyKernel& self) { return self.kernel->source(); })
      .def_property_readonly(
          "shader", [](const PyKernel& self) { return std::const_pointer_cast<Shader>(self.fp32_variant->shader()); },
          "The fp32 build, or the one for the given options.")
      .def_property_readonly(
          "variants",
          [](const PyKernel& self) {
            std::map<std::string, std::shared_ptr<Shader>> shaders_by_storage;
            for (const auto& variant : self.kernel->list_variants())
              shaders_by_storage.emplace(name(variant->shader()->options.storage), std::const_pointer_cast<Shader>(variant->shader()));
            return shaders_by_storage;
          },
          "The builds so far: storage name -> Shader. A call adds the one that its arrays need.")
      .def_property_readonly(
          "messages", [](const PyKernel& self) { return self.kernel->debug()->log->messages(); },
          "The printf messages of executions waited for since take_messages(), at most the latest 100,000.")
      .def_property_readonly(
          "messages_lost", [](const PyKernel& self) { return self.kernel->debug()->log->lost(); },
          "Number of messages lost since take_messages() because the ring buffer was full.")
      .def(
          "take_messages", [](const PyKernel& self) { return self.kernel->debug()->log->take(); }, "Return and clear the messages.")
      .def(
          "disassemble", [](const PyKernel& self) { return self.fp32_variant->shader()->disassemble(); },
          "Return the SPIR-V disassembly of the fp32 build, or of the one for the given options.")
      .def(
          "_driver_record",
          [](const PyKernel& self, const std::optional<std::string>& storage) {
            return make_driver_record(*find_variant(*self.kernel, self.fp32_variant, storage));
          },
          py::arg("storage") = py::none(), "Return the driver's statistics for a build, by default the plain one.")
      .def(
          "_replace", [](PyKernel& self, const PyKernel& other) { self = other; }, py::arg("other"),
          "Replace this kernel with another one.")
      .def("dtype", &make_element_dtype, py::arg("name"), py::arg("length") = py::none(),
           "Return the NumPy dtype of one element of a buffer's array in the fp32 build. Structs have the shader's offsets, and a vec3 "
           "includes its padding (4 numbers), so numpy.zeros(n, dtype) has the right layout. A block with other members besides an array "
           "returns the dtype of the whole block.\n"
           "length: length of the runtime-sized array at the end of the block.\n"
           "Raise BindingError.")
      .def("_layout", &find_layout_record, py::arg("name"),
           "Return the sizes of a buffer's element, or of its block, in the fp32 build: (without padding, with padding, the same for "
           "members by name). None if there are too many members.")
      .def("bind", &bind_arguments,
           "Return a BoundKernel for command lists, from Tensors, Images and push constants by name, and threads= or groups=.")
      .def("run", &call_kernel,
           "Run the kernel once and wait. Takes arguments by name, and threads= or groups=. Arguments are Tensors, NumPy arrays (copied to "
           "the device, and back if the kernel writes them), Images, and push constants: numbers, sequences for vectors, matrices (by "
           "column) and arrays, dicts for structs.\n"
           "timeout: in seconds; None: unlimited.\n"
           "The first call with given array types is slower: it builds a kernel, which some drivers compile at its first dispatch.")
      .def("__repr__", [](const PyKernel& self) { return "<Kernel '" + self.kernel->name() + "'>"; });
}

}  // namespace pumice
