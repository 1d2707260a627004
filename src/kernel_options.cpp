#include "kernel_options.h"

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace pumice {
namespace {

// Boolean options that a dict may override; parse_option() handles all other options.
constexpr std::pair<std::string_view, bool ShaderOptions::*> kBoolOptions[] = {
    {"fp16_arithmetic", &ShaderOptions::fp16_arithmetic},
    {"fp16_uniform", &ShaderOptions::fp16_uniform},
    {"int8_storage", &ShaderOptions::int8_storage},
    {"int8_packed", &ShaderOptions::int8_packed},
    {"int8_arithmetic", &ShaderOptions::int8_arithmetic},
    {"int8_uniform", &ShaderOptions::int8_uniform},
    {"int16_storage", &ShaderOptions::int16_storage},
    {"int16_packed", &ShaderOptions::int16_packed},
    {"shader_local_memory", &ShaderOptions::shader_local_memory},
    {"image_storage", &ShaderOptions::image_storage},
    {"int64", &ShaderOptions::int64},
    {"int16", &ShaderOptions::int16},
    {"int8", &ShaderOptions::int8},
    {"storage_16bit", &ShaderOptions::storage_16bit},
    {"fp16_rounds_to_even", &ShaderOptions::fp16_rounds_to_even},
    {"debug", &ShaderOptions::debug},
    {"guard", &ShaderOptions::guard},
};

using OptionChange = std::function<void(ShaderOptions&)>;

// Returns the change that one entry requests. It has no Python objects, because kernels compile without the GIL.
OptionChange parse_option(const std::string& key, const py::handle& value) {
  for (const auto& [option, member] : kBoolOptions)
    if (key == option) return [member, on = value.cast<bool>()](ShaderOptions& options) { options.*member = on; };
  if (key == "generation")
    return [new_value = parse_extension_version(value.cast<std::string>())](ShaderOptions& options) { options.generation = new_value; };
  if (key == "subgroup") return [new_value = value.cast<std::set<std::string>>()](ShaderOptions& options) { options.subgroup = new_value; };
  if (key == "vulkan_minor") return [new_value = value.cast<int>()](ShaderOptions& options) { options.vulkan_minor = new_value; };
  if (key == "profile")
    return [new_macros = value.cast<DeviceMacroSet::Macros>()](ShaderOptions& options) {
      DeviceMacroSet::Macros macros = new_macros;
      macros.insert(options.profile.macros().begin(), options.profile.macros().end());
      options.profile = DeviceMacroSet(std::move(macros));
    };
  if (key == "storage")
    throw py::type_error(
        "Kernel: options: 'storage' is derived from the arrays of each call; ShaderOptions(storage=...) fixes it and all other options");
  throw py::type_error("Kernel: options: expected keywords of ShaderOptions; given '" + key + "'");
}

OptionsCallback make_override_callback(const Record& overrides) {
  std::vector<OptionChange> changes;
  for (const auto& [key, value] : overrides) {
    const auto name = py::str(key).cast<std::string>();
    try {
      changes.push_back(parse_option(name, value));
    } catch (const py::cast_error&) {
      throw py::type_error("Kernel: options['" + name + "']: expected a value that ShaderOptions accepts; given " + get_type_name(value));
    }
  }
  return [changes = std::move(changes)](ShaderOptions options) {
    for (const OptionChange& change : changes) change(options);
    check_options(options);
    return options;
  };
}

}  // namespace

OptionsCallback make_options_callback(const OptionsArgument& argument) {
  if (const auto* fixed = std::get_if<ShaderOptions>(&argument)) return [options = *fixed](const ShaderOptions&) { return options; };
  if (const auto* changes = std::get_if<Record>(&argument)) return make_override_callback(*changes);
  return {};
}

}  // namespace pumice
