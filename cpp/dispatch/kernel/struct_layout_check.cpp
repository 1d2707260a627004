#include "dispatch/kernel/struct_layout_check.h"

#include <algorithm>

#include "core/error.h"

namespace pumice {
namespace {

bool is_structure(const MemoryLayout& layout) {
  return layout.scalar == ScalarType::other;
}

std::string place(const MemoryLayout& layout, uint64_t offset) {
  return to_string(layout) + " at byte " + std::to_string(offset);
}

uint64_t bytes_of(const MemoryLayout& layout) {
  return layout.count() * layout.bytes;
}

// Text that suggests a matching dtype, for errors.
std::string helper(const BindingInterface& binding) {
  const bool has_length = binding.is_block && !binding.layout->members.empty() && !binding.layout->members.back().layout.axes.empty() &&
                          binding.layout->members.back().layout.axes.front() == 0;
  return "kernel.dtype(\"" + binding.name + (has_length ? "\", length)" : "\")") + " is the dtype";
}

// Compares the fields of two structs.
class Comparison {
 public:
  explicit Comparison(const BindingInterface& binding) : binding_(binding) {}

  void structures(const MemoryLayout& wanted, const MemoryLayout& given, const std::string& path) const {
    for (const auto& member : wanted.members) {
      const auto found = std::ranges::find(given.members, member.name, &MemoryMember::name);
      if (found == given.members.end()) refuse(path + member.name, place(member.layout, member.offset), "no such field");
      if (found->offset != member.offset || !agree(member.layout, found->layout))
        refuse(path + member.name, place(member.layout, member.offset), place(found->layout, found->offset));
      if (is_structure(member.layout)) structures(member.layout, found->layout, path + member.name + ".");
    }
    for (const auto& member : given.members) check_spare(wanted, member, path);
  }

  [[noreturn]] void refuse(const std::string& field, const std::string& expected, const std::string& given) const {
    throw BindingError("K5", "argument '" + binding_.name + "'", binding_.name,
                       (field.empty() ? "" : "field '" + field + "' as ") + expected + "; " + helper(binding_), given);
  }

 private:
  // Axes may be grouped differently: a mat4 matches 16 numbers. An unsized array accepts any whole number of elements.
  static bool agree(const MemoryLayout& wanted, const MemoryLayout& given) {
    if (wanted.scalar != given.scalar) return false;
    const bool any_length = !wanted.axes.empty() && wanted.axes.front() == 0;
    if (any_length ? given.count() % wanted.count() != 0 : given.count() != wanted.count()) return false;
    return !is_structure(wanted) || (wanted.axes.empty() && given.axes.empty()) || wanted.bytes == given.bytes;
  }

  // Extra host fields are allowed only in padding.
  void check_spare(const MemoryLayout& wanted, const MemoryMember& member, const std::string& path) const {
    if (std::ranges::find(wanted.members, member.name, &MemoryMember::name) != wanted.members.end()) return;
    for (const auto& one : wanted.members) {
      const bool runs_on = !one.layout.axes.empty() && one.layout.axes.front() == 0;
      const uint64_t end = runs_on ? UINT64_MAX : one.offset + bytes_of(one.layout);
      if (member.offset < end && one.offset < member.offset + bytes_of(member.layout))
        throw BindingError("K5", "argument '" + binding_.name + "'", binding_.name,
                           "'" + path + one.name + "' at byte " + std::to_string(one.offset) + "; " + helper(binding_),
                           "field '" + path + member.name + "' at byte " + std::to_string(member.offset));
    }
  }

  const BindingInterface& binding_;
};

void add_scalars(const MemoryLayout& layout, uint64_t offset, std::vector<std::pair<uint64_t, ScalarType>>& scalars) {
  constexpr size_t kMostComponents = 64;  // larger than the number of components of any matrix
  for (uint64_t i = 0; i < layout.count() && scalars.size() <= kMostComponents; ++i) {
    const uint64_t at = offset + i * layout.bytes;
    if (!is_structure(layout)) scalars.emplace_back(at, layout.scalar);
    for (const auto& member : layout.members) add_scalars(member.layout, at + member.offset, scalars);
  }
}

// Whether the fields are the components of a vector (x, y, z).
bool are_components(const MemoryLayout& wanted, const MemoryLayout& given) {
  std::vector<std::pair<uint64_t, ScalarType>> scalars;
  add_scalars(given, 0, scalars);
  return !scalars.empty() && std::ranges::all_of(scalars, [&](const auto& scalar) {
    return scalar.second == wanted.scalar && scalar.first % wanted.bytes == 0;
  });
}

// Returns the number of scalars of this type; an unsized array counts as none.
uint64_t scalars_of(const MemoryLayout& layout, ScalarType scalar) {
  if (!is_structure(layout)) return layout.scalar == scalar && (layout.axes.empty() || layout.axes.front() != 0) ? layout.count() : 0;
  uint64_t sum = 0;
  for (const auto& member : layout.members) sum += scalars_of(member.layout, scalar);
  return sum * layout.count();
}

}  // namespace

void check_structured(const BindingInterface& binding, const TensorArgument& given) {
  const MemoryLayout& layout = *given.layout;
  if (!binding.layout) throw UnsupportedError("'" + binding.name + "' has more members than an array of structures can be checked against");
  const Comparison comparison(binding);
  const MemoryLayout& wanted = *binding.layout;
  if (!is_structure(wanted)) {
    if (layout.bytes != bytes_of(wanted) || !are_components(wanted, layout))
      comparison.refuse("", "elements of " + to_string(wanted), to_string(layout));
    return;
  }
  comparison.structures(wanted, layout, "");
  if (binding.is_block) {
    if (given.bytes != layout.bytes)
      comparison.refuse("", "one structure, for the whole block '" + binding.block + "'",
                        std::to_string(layout.bytes == 0 ? 0 : given.bytes / layout.bytes) + " of them");
  } else if (layout.bytes != wanted.bytes) {
    comparison.refuse("", "structures of " + std::to_string(wanted.bytes) + " bytes",
                      "structures of " + std::to_string(layout.bytes) + " bytes");
  }
}

void check_plain(const BindingInterface& binding, const TensorArgument& given) {
  if (!binding.layout) return;
  const MemoryLayout& wanted = *binding.layout;
  const auto refuse = [&](const std::string& expected, const std::string& what) {
    throw BindingError("K5", "argument '" + binding.name + "'", binding.name, expected + "; " + helper(binding), what);
  };
  if (binding.is_block) {
    if (is_structure(wanted) && scalars_of(wanted, binding.scalar) * bytes(binding.scalar) != wanted.bytes)
      refuse("one structure for the whole block '" + binding.block + "', whose members differ or have gaps",
             "an array of " + std::string(name(given.dtype)));
    return;
  }
  if (is_structure(wanted)) {
    if (!are_raw_structures(binding, given))
      refuse("structures of " + std::to_string(wanted.bytes) + " bytes, or rows of their bytes as uint8",
             "an array of " + std::string(name(given.dtype)));
    return;
  }
  const uint64_t whole = wanted.count();
  if (whole * wanted.bytes == uint64_t{binding.components} * bytes(binding.scalar)) return;  // no padding
  if (given.last_axis != wanted.axes.back() && given.last_axis != whole)
    refuse("elements that lie " + std::to_string(whole * wanted.bytes) + " bytes apart (the stride of '" + binding.name +
               "'): the last axis is " + std::to_string(wanted.axes.back()) + ", shape (n, " + (wanted.axes.size() > 1 ? "..., " : "") +
               std::to_string(wanted.axes.back()) + "), or a structured dtype",
           "a last axis of " + std::to_string(given.last_axis));
}

void check_stored(const BindingInterface& binding, const TensorArgument& given) {
  if (binding.is_block || !binding.layout || is_structure(*binding.layout)) return;
  const MemoryLayout& wanted = *binding.layout;
  const uint64_t whole = wanted.count();
  if (whole * wanted.bytes == uint64_t{binding.components} * bytes(binding.scalar)) return;  // no padding
  const auto refuse = [&](const std::string& expected, const std::string& what) {
    throw BindingError("K5", "argument '" + binding.name + "'", binding.name, expected, what);
  };
  const std::string apart =
      "elements that lie " + std::to_string(whole * wanted.bytes) + " bytes apart (the stride of '" + binding.name + "')";
  if (wanted.bytes != bytes(scalar_of(given.dtype))) refuse(apart + ": float32, or std430, which has no gaps", "two elements in a word");
  if (given.last_axis != wanted.axes.back() && given.last_axis != whole)
    refuse(apart + ": the last axis is " + std::to_string(wanted.axes.back()), "a last axis of " + std::to_string(given.last_axis));
}

bool are_raw_structures(const BindingInterface& binding, const TensorArgument& given) {
  if (given.dtype != DType::uint8 || !binding.layout) return false;
  return binding.is_block || (is_structure(*binding.layout) && given.last_axis % binding.layout->bytes == 0);
}

}  // namespace pumice
