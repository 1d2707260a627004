#include "shader/preamble/shader_options.h"

#include <array>

#include "core/error.h"
#include "shader/source/glsl_tokens.h"

namespace pumice {
namespace {

constexpr std::array<std::string_view, 5> kStorageNames{"fp32", "fp16", "fp16_packed", "bf16", "bf16_packed"};
constexpr std::array<std::string_view, 2> kGenerationNames{"current", "2024"};
const std::set<std::string> kSubgroupNames{"basic", "vote", "ballot", "shuffle"};

template <typename Names>
std::string join_names(const Names& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

template <typename Enum, typename Names>
Enum parse_enum(std::string_view option_name, const Names& names, std::string_view name) {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  throw UnsupportedError("unknown " + std::string(option_name) + " '" + std::string(name) + "': expected one of " + join_names(names));
}

bool is_macro_name(std::string_view name) {
  const auto tokens = tokenize(name);
  return tokens.size() == 1 && tokens[0].kind == TokenKind::word && tokens[0].text == name;
}

}  // namespace

std::string_view name(StorageType storage) {
  return kStorageNames.at(static_cast<size_t>(storage));
}

StorageType parse_storage_type(std::string_view name) {
  return parse_enum<StorageType>("storage", kStorageNames, name);
}

std::string_view name(GlslExtensionVersion generation) {
  return kGenerationNames.at(static_cast<size_t>(generation));
}

GlslExtensionVersion parse_extension_version(std::string_view name) {
  return parse_enum<GlslExtensionVersion>("generation", kGenerationNames, name);
}

DeviceMacroSet::DeviceMacroSet(Macros macros) {
  for (const auto& [name, text] : macros) {
    if (!is_macro_name(name)) throw ShaderCompileError("the name of a profile's macro must be an identifier: given '" + name + "'");
    if (text.find_first_of("\n\r\\") != std::string::npos)
      throw ShaderCompileError("a profile's macro must be a single line: '" + name + "' is not");
  }
  if (!macros.empty()) macros_ = std::make_shared<const Macros>(std::move(macros));
}

const DeviceMacroSet::Macros& DeviceMacroSet::macros() const {
  static const Macros none;
  return macros_ ? *macros_ : none;
}

void check_options(const ShaderOptions& options) {
  if (options.vulkan_minor < 0 || options.vulkan_minor > 3)
    throw UnsupportedError("Vulkan 1." + std::to_string(options.vulkan_minor) + ": expected vulkan_minor from 0 to 3");
  if (options.generation == GlslExtensionVersion::current && options.image_storage)
    throw UnsupportedError("image_storage: the current generation of the extension has no images, expected generation '2024'");
  if (options.generation == GlslExtensionVersion::current && !options.subgroup.empty())
    throw UnsupportedError("subgroup: the current generation of the extension has no NCNN_subgroup macros, expected generation '2024'");
  for (const auto& operation : options.subgroup)
    if (!kSubgroupNames.contains(operation))
      throw UnsupportedError("unknown subgroup operation '" + operation + "': expected any of " + join_names(kSubgroupNames));
}

}  // namespace pumice
