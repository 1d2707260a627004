#include "shader/shader.h"

#include "bindings.h"
#include "shader/shader_options.h"

namespace pumice {
namespace {

std::string_view text_of(ScalarType scalar) {
  constexpr std::string_view names[] = {"float16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "other"};
  return names[static_cast<size_t>(scalar)];
}

std::string_view text_of(Access access) { return access == Access::read ? "read" : access == Access::write ? "write" : "read_write"; }

py::dict interface_of(const Shader& self) {
  py::list bindings, push_constants, spec_constants;
  for (const auto& binding : self.interface.bindings) {
    py::dict entry;
    entry["binding"] = binding.binding;
    entry["name"] = binding.name;
    entry["access"] = text_of(binding.access);
    entry["type"] = text_of(binding.scalar);
    entry["components"] = binding.components;
    entry["stride"] = binding.element_bytes;
    bindings.append(entry);
  }
  for (const auto& member : self.interface.push_constants) {
    py::dict entry;
    entry["name"] = member.name;
    entry["offset"] = member.offset;
    entry["type"] = text_of(member.scalar);
    entry["components"] = member.components;
    entry["count"] = member.count;
    push_constants.append(entry);
  }
  for (const auto& constant : self.interface.spec_constants) {
    py::dict entry;
    entry["id"] = constant.id;
    entry["name"] = constant.name;
    entry["type"] = text_of(constant.scalar);
    spec_constants.append(entry);
  }
  py::dict result;
  result["bindings"] = bindings;
  result["push_constants"] = push_constants;
  result["spec_constants"] = spec_constants;
  result["local_size"] = py::make_tuple(self.interface.local_size[0], self.interface.local_size[1], self.interface.local_size[2]);
  result["capabilities"] = self.interface.capabilities;
  result["guarded"] = self.interface.guarded;
  return result;
}

py::bytes spirv_of(const Shader& self) { return {reinterpret_cast<const char*>(self.spirv.data()), self.spirv.size() * 4}; }

IncludeLoader loader_of(std::optional<std::map<std::string, std::string>> includes) {
  if (!includes) return {};
  return [files = std::move(*includes)](const std::string& path) -> std::optional<std::string> {
    const auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  };
}

ShaderOptions make_options(const std::string& storage, bool int64, bool int16, bool int8, bool storage_16bit) {
  ShaderOptions options;
  options.storage = storage_from_name(storage);
  options.int64 = int64;
  options.int16 = int16;
  options.int8 = int8;
  options.storage_16bit = storage_16bit;
  return options;
}

}  // namespace

void bind_shader(py::module_& module) {
  py::class_<ShaderOptions>(module, "ShaderOptions", "What a shader is compiled for, as explicit data: compiling needs no GPU.")
      .def(py::init(&make_options), py::kw_only(), py::arg("storage") = "fp32", py::arg("int64") = true, py::arg("int16") = true, py::arg("int8") = true, py::arg("storage_16bit") = true,
           "storage: 'fp32', 'fp16', 'fp16_packed', 'bf16' or 'bf16_packed'; the rest: what the device can do.")
      .def_property_readonly("storage", [](const ShaderOptions& self) { return std::string(name(self.storage)); })
      .def_property_readonly("preamble", &preamble, "The text of the GLSL extension for these options.");
  py::class_<Shader, std::shared_ptr<Shader>>(module, "Shader", "A compiled shader and its interface, read from the SPIR-V.")
      .def_readonly("name", &Shader::name)
      .def_property_readonly("spirv", &spirv_of)
      .def_property_readonly("interface", &interface_of)
      .def_readonly("warnings", &Shader::warnings);
  py::class_<CompileCounts>(module, "CompileCounts", "Shaders of this process: compiled, and found in the caches.")
      .def_readonly("compiled", &CompileCounts::compiled)
      .def_readonly("from_memory", &CompileCounts::from_memory)
      .def_readonly("from_disk", &CompileCounts::from_disk);
  module.def(
      "compile",
      [](const std::string& source, const ShaderOptions& options, const std::map<std::string, std::string>& macros, const std::string& name, std::optional<std::map<std::string, std::string>> includes) {
        const IncludeLoader loader = loader_of(std::move(includes));
        const py::gil_scoped_release release;
        return std::const_pointer_cast<Shader>(compile(source, name, options, Macros(macros.begin(), macros.end()), loader));
      },
      py::arg("source"), py::arg("options") = ShaderOptions{}, py::arg("macros") = std::map<std::string, std::string>{}, py::arg("name") = "shader", py::arg("includes") = py::none(),
      "GLSL text to a Shader. macros: names (with parameters) -> text; includes: paths -> text. Raises ShaderCompileError, UnsupportedError.");
  module.def(
      "reflect",
      [](const py::bytes& spirv) {
        const std::string_view bytes = spirv;
        Shader shader;
        shader.spirv.resize(bytes.size() / 4);
        std::copy_n(bytes.data(), shader.spirv.size() * 4, reinterpret_cast<char*>(shader.spirv.data()));
        shader.interface = reflect(shader.spirv);
        return interface_of(shader);
      },
      py::arg("spirv"), "The interface of a SPIR-V module. Raises ShaderCompileError where it is malformed or stripped.");
  module.def("compile_counts", &compile_counts);
  module.def("embedded_shaders", [] { return embedded_shaders(); }, "Paths of the shaders that the engine contains.");
  module.def("embedded_shader", [](const std::string& path) { return std::string(embedded_shader(path)); }, py::arg("path"));
}

}  // namespace pumice
