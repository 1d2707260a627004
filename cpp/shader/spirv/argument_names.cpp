// Looks up kernel arguments by name.
#include <algorithm>
#include <map>

#include "core/error.h"
#include "shader/spirv/interface.h"

namespace pumice {
namespace {

template <typename Items>
auto find_named(const Items& items, std::string_view name) {
  const auto found = std::ranges::find(items, name, [](const auto& item) -> std::string_view { return item.name; });
  return found == items.end() ? nullptr : &*found;
}

}  // namespace

const BindingInterface* ShaderInterface::find_binding(std::string_view name) const {
  if (const auto* found = find_named(bindings, name)) return found;
  for (const auto& binding : bindings)
    if (std::ranges::find(binding.aliases, name) != binding.aliases.end()) return &binding;
  return nullptr;
}

std::string ShaderInterface::resolve_argument_name(const std::string& argument) const {
  if (find_binding(argument) || find_image(argument) || find_push_constant(argument)) return argument;
  const BindingInterface* found = nullptr;
  for (const BindingInterface& buffer : bindings) {
    if (buffer.member.empty()) continue;
    if (argument == buffer.name + "." + buffer.member) return buffer.name;
    if (argument != buffer.member) continue;
    if (found) return argument;  // ambiguous; the caller rejects it and lists the valid names
    found = &buffer;
  }
  return found ? found->name : argument;
}

namespace {

// Throws if two blocks without instance names share a member, because a call could not distinguish them. This is valid in SPIR-V, but not
// in GLSL.
void check_anonymous_block_members(const ShaderInterface& interface) {
  std::map<std::string, std::string> owners;
  for (const BindingInterface& buffer : interface.bindings) {
    if (!buffer.is_block || !buffer.member.empty() || !buffer.layout) continue;
    for (const MemoryMember& member : buffer.layout->members) {
      const std::string block = "block '" + buffer.block + "' at binding " + std::to_string(buffer.binding);
      const auto [found, is_new] = owners.emplace(member.name, block);
      if (!is_new)
        throw ShaderCompileError("'" + member.name + "' is a member of " + found->second + " and of " + block +
                                 ", which have no instance names. Name the blocks, because a call passes members by name");
    }
  }
}

}  // namespace

void check_argument_names(const ShaderInterface& interface) {
  check_anonymous_block_members(interface);
  std::map<std::string, std::string> owners;
  const auto add = [&](const std::string& name, const std::string& owner) {
    const auto [found, is_new] = owners.emplace(name, owner);
    if (!is_new)
      throw ShaderCompileError("two arguments of this kernel are named '" + name + "': " + found->second + " and " + owner +
                               ". Rename one of them, because a call passes arguments by name");
  };
  for (const BindingInterface& buffer : interface.bindings) {
    add(buffer.name, "the buffer at binding " + std::to_string(buffer.binding) + " (block '" + buffer.block + "')");
    for (const std::string& alias : buffer.aliases) add(alias, "another block at binding " + std::to_string(buffer.binding));
  }
  for (const ImageInterface& image : interface.images) add(image.name, "the image at binding " + std::to_string(image.binding));
  for (const PushConstant& member : interface.push_constants)
    add(member.name, "the push constant at byte " + std::to_string(member.offset));
}

const PushConstant* ShaderInterface::find_push_constant(std::string_view name) const {
  return find_named(push_constants, name);
}
const SpecConstant* ShaderInterface::find_spec_constant(std::string_view name) const {
  return find_named(spec_constants, name);
}
const ImageInterface* ShaderInterface::find_image(std::string_view name) const {
  return find_named(images, name);
}

}  // namespace pumice
