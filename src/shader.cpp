#include "shader/shader.h"

#include <pybind11/operators.h>

#include <algorithm>

#include "bindings.h"
#include "core/error.h"
#include "shader/debug/invocation_guard.h"
#include "shader/preamble/shader_options.h"
#include "shader/source/embedded_shaders.h"
#include "shader/source/glslang_loader.h"

namespace pumice {
namespace {

std::string_view get_access_name(ResourceAccess access) {
  return access == ResourceAccess::read ? "read" : access == ResourceAccess::write ? "write" : "read_write";
}

Record make_record(const BindingInterface& binding) {
  Record entry;
  entry["binding"] = binding.binding;
  entry["name"] = binding.name;
  entry["block"] = binding.block;
  entry["member"] = binding.member;
  entry["aliases"] = binding.aliases;
  entry["access"] = get_access_name(binding.access);
  entry["type"] = name(binding.scalar);
  entry["least_bytes"] = binding.min_bytes;
  entry["components"] = binding.components;
  entry["stride"] = binding.element_bytes;
  entry["uniform"] = binding.uniform;
  entry["used"] = binding.used;
  py::list members;
  if (binding.is_block && binding.layout)
    for (const auto& member : binding.layout->members) members.append(member.name);
  entry["members"] = members;
  entry["unsized"] = py::len(members) > 0 && !binding.layout->members.back().layout.axes.empty() &&
                     binding.layout->members.back().layout.axes.front() == 0;
  return entry;
}

Record make_record(const ImageInterface& image) {
  Record entry;
  entry["binding"] = image.binding;
  entry["name"] = image.name;
  entry["sampled"] = image.sampled;
  entry["dimensions"] = image.dimensions;
  entry["access"] = get_access_name(image.access);
  entry["type"] = name(image.scalar);
  entry["format"] = image.format;
  entry["normalized_for"] = image.normalized_for;
  return entry;
}

Record make_record(const PushConstant& member) {
  Record entry;
  entry["name"] = member.name;
  entry["offset"] = member.offset;
  entry["type"] = name(member.scalar);
  entry["components"] = member.components;
  entry["count"] = member.count;
  entry["bytes"] = member.bytes;
  entry["shape"] = make_size_tuple(Shape(member.shape.begin(), member.shape.end()));
  return entry;
}

Record make_record(const SpecConstant& constant) {
  Record entry;
  entry["id"] = constant.id;
  entry["name"] = constant.name;
  entry["type"] = constant.is_bool ? "bool" : name(constant.scalar);
  entry["default_bits"] = constant.default_bits;
  return entry;
}

template <typename Items>
py::list make_records(const Items& items) {
  py::list entries;
  for (const auto& item : items) entries.append(make_record(item));
  return entries;
}

Record make_interface_record(const ShaderInterface& interface) {
  Record result;
  result["bindings"] = make_records(interface.bindings);
  result["images"] = make_records(interface.images);
  result["push_constants"] = make_records(interface.push_constants);
  result["push_bytes"] = interface.push_bytes;
  std::vector<SpecConstant> constants = interface.spec_constants;
  if (interface.guarded) std::erase_if(constants, [](const SpecConstant& constant) { return constant.name == kFoldedGrid; });
  result["spec_constants"] = make_records(constants);
  result["local_size"] = py::make_tuple(interface.local_size[0], interface.local_size[1], interface.local_size[2]);
  result["local_size_ids"] = py::make_tuple(interface.local_size_id[0], interface.local_size_id[1], interface.local_size_id[2]);
  result["shared_bytes"] = interface.variables.shared;
  result["capabilities"] = interface.capabilities;
  py::list features;
  for (const auto& needed : interface.features) features.append(needed.feature);
  result["features"] = features;
  result["guarded"] = interface.guarded;
  result["is_chosen"] = interface.chooses_local_size;
  result["is_sized"] = interface.has_requested_local_size;
  return result;
}

py::bytes get_spirv_bytes(const Shader& self) {
  return {reinterpret_cast<const char*>(self.spirv.data()), self.spirv.size() * 4};
}

}  // namespace

std::vector<uint32_t> parse_spirv_words(const py::bytes& spirv) {
  const std::string_view bytes = spirv;
  if (bytes.size() % sizeof(uint32_t) != 0)
    throw ShaderCompileError("malformed SPIR-V: expected whole 32-bit words, given " + std::to_string(bytes.size()) + " bytes");
  std::vector<uint32_t> words(bytes.size() / sizeof(uint32_t));
  std::copy_n(bytes.data(), bytes.size(), reinterpret_cast<char*>(words.data()));
  return words;
}

namespace {

ShaderOptions make_shader_options(const std::string& storage, bool fp16_arithmetic, bool fp16_uniform, bool int8_storage, bool int8_packed,
                                  bool int8_arithmetic, bool int8_uniform, bool int16_storage, bool int16_packed, bool shader_local_memory,
                                  const std::string& generation, bool image_storage, std::set<std::string> subgroup, bool int64, bool int16,
                                  bool int8, bool storage_16bit, bool fp16_rounds_to_even, int vulkan_minor, DeviceMacroSet::Macros profile,
                                  bool debug, bool guard) {
  ShaderOptions options;
  options.generation = parse_extension_version(generation);
  options.storage = parse_storage_type(storage);
  options.fp16_arithmetic = fp16_arithmetic;
  options.fp16_uniform = fp16_uniform;
  options.int8_storage = int8_storage;
  options.int8_packed = int8_packed;
  options.int8_arithmetic = int8_arithmetic;
  options.int8_uniform = int8_uniform;
  options.int16_storage = int16_storage;
  options.int16_packed = int16_packed;
  options.shader_local_memory = shader_local_memory;
  options.image_storage = image_storage;
  options.subgroup = std::move(subgroup);
  options.int64 = int64;
  options.int16 = int16;
  options.int8 = int8;
  options.storage_16bit = storage_16bit;
  options.fp16_rounds_to_even = fp16_rounds_to_even;
  options.vulkan_minor = vulkan_minor;
  options.profile = DeviceMacroSet(std::move(profile));
  options.debug = debug;
  options.guard = guard;
  check_options(options);
  return options;
}

// Returns the defaults of ShaderOptions() in Python, for a device with all capabilities.
ShaderOptions make_default_options() {
  ShaderOptions options;
  options.int64 = options.int16 = options.int8 = options.storage_16bit = true;
  return options;
}

std::string format_shader_options(const ShaderOptions& self) {
  return "<ShaderOptions " + std::string(name(self.storage)) + (self.fp16_arithmetic ? ", fp16 arithmetic>" : ">");
}

void bind_shader_options(py::module_& module) {
  py::class_<ShaderOptions>(module, "ShaderOptions", "The compilation target of a shader. Explicit data, so that compiling needs no GPU.")
      .def(py::init(&make_shader_options), py::kw_only(), py::arg("storage") = "fp32", py::arg("fp16_arithmetic") = false,
           py::arg("fp16_uniform") = false, py::arg("int8_storage") = false, py::arg("int8_packed") = false,
           py::arg("int8_arithmetic") = false, py::arg("int8_uniform") = false, py::arg("int16_storage") = false,
           py::arg("int16_packed") = false, py::arg("shader_local_memory") = false, py::arg("generation") = "current",
           py::arg("image_storage") = false, py::arg("subgroup") = std::set<std::string>{}, py::arg("int64") = true,
           py::arg("int16") = true, py::arg("int8") = true, py::arg("storage_16bit") = true, py::arg("fp16_rounds_to_even") = false,
           py::arg("vulkan_minor") = 1, py::arg("profile") = DeviceMacroSet::Macros{}, py::arg("debug") = false, py::arg("guard") = true,
           "storage: 'fp32', 'fp16', 'fp16_packed', 'bf16' or 'bf16_packed'.\n"
           "fp16_arithmetic: afp is fp16.\n"
           "fp16_uniform: lfp is fp16 too.\n"
           "int8_*, int16_*: the integer families; _storage takes precedence over _packed.\n"
           "generation: 'current', or '2024' with images, pack8 and sfp2lfp, where the sfp of packed storage is a 4-byte float (currently "
           "two elements share a word).\n"
           "image_storage, subgroup: for generation '2024'; subgroup: 'basic', 'vote', 'ballot', 'shuffle'.\n"
           "int64 to fp16_rounds_to_even: device capabilities.\n"
           "vulkan_minor: the target, Vulkan 1.x.\n"
           "profile: device macros, name -> text.\n"
           "debug: check accesses, as with Kernel(debug=True).\n"
           "guard: False compiles a source without a local size as is, without the engine's push constants. It then checks its own bounds "
           "and is launched in whole workgroups, of one invocation unless local_size= is given.")
      .def_property_readonly("storage", [](const ShaderOptions& self) { return std::string(name(self.storage)); })
      .def_property_readonly("generation", [](const ShaderOptions& self) { return std::string(name(self.generation)); })
      .def_property_readonly("profile", [](const ShaderOptions& self) { return self.profile.macros(); })
      .def_property_readonly("preamble", py::overload_cast<const ShaderOptions&>(&make_preamble),
                             "The complete GLSL extension source for these options; a shader gets only the parts that it uses.")
      .def(py::self == py::self)
      .def("__repr__", &format_shader_options);
}

void bind_shader_class(py::module_& module) {
  py::class_<Shader, std::shared_ptr<Shader>>(module, "Shader", "A compiled shader and its interface, reflected from the SPIR-V.")
      .def_readonly("name", &Shader::name)
      .def_readonly("options", &Shader::options)
      .def_readonly("preamble", &Shader::preamble, "The source prepended to the shader's own.")
      .def_property_readonly(
          "report", [](const Shader& self) { return find_disabled_macros(self.options); },
          "Device macros of the profile withheld from the shader because the shader compiler lacks their GLSL extension: macro -> reason.")
      .def_property_readonly("spirv", &get_spirv_bytes)
      .def("disassemble", &Shader::disassemble, "Return the SPIR-V disassembly.")
      .def_property_readonly("interface", [](const Shader& self) { return make_interface_record(self.interface); })
      .def_readonly("warnings", &Shader::warnings)
      .def("__repr__", [](const Shader& self) {
        return "<Shader '" + self.name + "', " + std::to_string(self.spirv.size() * sizeof(uint32_t)) + " bytes of SPIR-V>";
      });
}

void bind_compile(py::module_& module) {
  module.def(
      "compile",
      [](const std::string& source, const ShaderOptions& options, const std::map<std::string, std::string>& macros, const std::string& name,
         std::optional<std::map<std::string, std::string>> includes, const std::optional<DeviceMacroSet::Macros>& profile,
         std::vector<std::string> include_dirs, const LocalSizeArgument& local_size) {
        ShaderOptions target_options = options;
        if (profile) target_options.profile = DeviceMacroSet(*profile);
        const IncludeSearchPath search_path{std::move(includes).value_or(std::map<std::string, std::string>{}), std::move(include_dirs)};
        const auto size = parse_local_size(local_size);
        const GilRelease release;
        return std::const_pointer_cast<Shader>(
            compile(source, name, target_options, Macros(macros.begin(), macros.end()), search_path, size));
      },
      py::arg("source"), py::arg_v("options", make_default_options(), "ShaderOptions()"),
      py::arg("macros") = std::map<std::string, std::string>{}, py::arg("name") = "shader", py::arg("includes") = py::none(),
      py::arg("profile") = py::none(), py::arg("include_dirs") = std::vector<std::string>{}, py::arg("local_size") = py::none(),
      "Compile GLSL source to a Shader.\n"
      "macros: names (with parameters) -> text.\n"
      "includes: paths -> source.\n"
      "include_dirs: folders searched after `includes`.\n"
      "profile: device macros that replace the options' macros.\n"
      "local_size: workgroup size, one to three numbers, for a source that declares none. Excess invocations are guarded, unless the "
      "source uses shared memory, barriers or subgroup operations. A source without any local size is compiled as is, with a local size of "
      "1.\n"
      "Raise ShaderCompileError, UnsupportedError, BindingError (K2: local_size).");
}

}  // namespace

std::optional<LocalSize> parse_local_size(const LocalSizeArgument& argument) {
  if (std::holds_alternative<std::monostate>(argument)) return {};
  const auto* single_size = std::get_if<int64_t>(&argument);
  const std::vector<int64_t> numbers = single_size ? std::vector{*single_size} : std::get<std::vector<int64_t>>(argument);
  const bool fits = !numbers.empty() && numbers.size() <= 3 &&
                    std::ranges::all_of(numbers, [](int64_t number) { return number >= 1 && number <= UINT32_MAX; });
  if (!fits) {
    std::string text;
    for (const int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
    throw BindingError("K2", "local_size", "", "one to three integers from 1 to 4294967295", text.empty() ? "none" : text);
  }
  LocalSize size{1, 1, 1};
  for (size_t i = 0; i < numbers.size(); ++i) size[i] = static_cast<uint32_t>(numbers[i]);
  return size;
}

void bind_shader(py::module_& module) {
  bind_shader_options(module);
  bind_shader_class(module);
  py::class_<CompileCounts>(module, "CompileCounts", "Numbers of shaders that this process compiled or found in the caches.")
      .def_readonly("compiled", &CompileCounts::compiled)
      .def_readonly("from_memory", &CompileCounts::from_memory)
      .def_readonly("from_disk", &CompileCounts::from_disk);
  bind_compile(module);
  module.def(
      "reflect", [](const py::bytes& spirv) { return make_interface_record(reflect(parse_spirv_words(spirv))); }, py::arg("spirv"),
      "Return the interface of a SPIR-V module. Raise ShaderCompileError if it is malformed or stripped.");
  module.def(
      "included_files",
      [](const std::string& source, const std::string& name, std::map<std::string, std::string> includes,
         std::vector<std::string> include_dirs) {
        return find_included_files(source, name, {std::move(includes), std::move(include_dirs), true});
      },
      py::arg("source"), py::arg("name"), py::arg("includes"), py::arg("include_dirs"),
      "Return the paths of all files that the shader file `name` includes, even conditionally, and the paths that were not found.");
  module.def("compile_counts", &get_compile_counts, "Return how many shaders this process compiled and how many it found in the caches.");
  module.def(
      "glslang_version", [] { return std::string(get_glslang_version()); },
      "Return the version of the shader compiler, without loading anything.");
  module.def("glslang_accepts", &glslang_supports_extension, py::arg("extension"), py::call_guard<GilRelease>(),
             "Return whether the shader compiler supports a GLSL extension.");
  module.def("embedded_shaders", [] { return list_embedded_shaders(); }, "Return the paths of the engine's embedded shaders.");
  module.def("embedded_shader", [](const std::string& path) { return std::string(get_embedded_shader(path)); }, py::arg("path"));
}

}  // namespace pumice
