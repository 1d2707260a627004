#include "dispatch/kernel/struct_layout_check.h"

#include <algorithm>

#include "core/error.h"

namespace pumice {
namespace {

bool is_struct(const MemoryLayout& layout) {
  return layout.scalar == ScalarType::other;
}

std::string format_field(const MemoryLayout& layout, uint64_t offset) {
  return to_string(layout) + " at byte " + std::to_string(offset);
}

uint64_t count_bytes(const MemoryLayout& layout) {
  return layout.element_count() * layout.bytes;
}

// Returns a suggestion of a matching dtype, for error messages.
std::string make_dtype_hint(const BindingInterface& binding) {
  const bool has_length = binding.is_block && !binding.layout->members.empty() && !binding.layout->members.back().layout.axes.empty() &&
                          binding.layout->members.back().layout.axes.front() == 0;
  return "kernel.dtype(\"" + binding.name + (has_length ? "\", length)" : "\")") + " is the dtype";
}

// Compares the fields of two structs.
class StructLayoutComparer {
 public:
  explicit StructLayoutComparer(const BindingInterface& binding) : binding_(binding) {}

  void compare_structs(const MemoryLayout& expected, const MemoryLayout& actual, const std::string& path) const {
    for (const auto& member : expected.members) {
      const auto actual_field = std::ranges::find(actual.members, member.name, &MemoryMember::name);
      if (actual_field == actual.members.end())
        throw_mismatch(path + member.name, format_field(member.layout, member.offset), "no such field");
      if (actual_field->offset != member.offset || !layouts_agree(member.layout, actual_field->layout))
        throw_mismatch(path + member.name, format_field(member.layout, member.offset),
                       format_field(actual_field->layout, actual_field->offset));
      if (is_struct(member.layout)) compare_structs(member.layout, actual_field->layout, path + member.name + ".");
    }
    for (const auto& member : actual.members) check_extra_field(expected, member, path);
  }

  [[noreturn]] void throw_mismatch(const std::string& field, const std::string& expected, const std::string& actual) const {
    throw BindingError("K5", "argument '" + binding_.name + "'", binding_.name,
                       (field.empty() ? "" : "field '" + field + "' as ") + expected + "; " + make_dtype_hint(binding_), actual);
  }

 private:
  // Whether the layouts match. Axes may be grouped differently: a mat4 matches 16 numbers. An unsized array matches any number of whole
  // elements.
  static bool layouts_agree(const MemoryLayout& expected, const MemoryLayout& actual) {
    if (expected.scalar != actual.scalar) return false;
    const bool any_length = !expected.axes.empty() && expected.axes.front() == 0;
    if (any_length ? actual.element_count() % expected.element_count() != 0 : actual.element_count() != expected.element_count())
      return false;
    return !is_struct(expected) || (expected.axes.empty() && actual.axes.empty()) || expected.bytes == actual.bytes;
  }

  // Extra host fields are allowed only in padding.
  void check_extra_field(const MemoryLayout& expected, const MemoryMember& member, const std::string& path) const {
    if (std::ranges::find(expected.members, member.name, &MemoryMember::name) != expected.members.end()) return;
    for (const auto& field : expected.members) {
      const bool runs_on = !field.layout.axes.empty() && field.layout.axes.front() == 0;
      const uint64_t end = runs_on ? UINT64_MAX : field.offset + count_bytes(field.layout);
      if (member.offset < end && field.offset < member.offset + count_bytes(member.layout))
        throw BindingError("K5", "argument '" + binding_.name + "'", binding_.name,
                           "'" + path + field.name + "' at byte " + std::to_string(field.offset) + "; " + make_dtype_hint(binding_),
                           "field '" + path + member.name + "' at byte " + std::to_string(member.offset));
    }
  }

  const BindingInterface& binding_;
};

void collect_scalars(const MemoryLayout& layout, uint64_t offset, std::vector<std::pair<uint64_t, ScalarType>>& scalars) {
  constexpr size_t kMaxComponents = 64;  // larger than the number of components of any matrix
  for (uint64_t i = 0; i < layout.element_count() && scalars.size() <= kMaxComponents; ++i) {
    const uint64_t at = offset + i * layout.bytes;
    if (!is_struct(layout)) scalars.emplace_back(at, layout.scalar);
    for (const auto& member : layout.members) collect_scalars(member.layout, at + member.offset, scalars);
  }
}

// Whether the fields are the components of a vector (x, y, z).
bool are_vector_components(const MemoryLayout& expected, const MemoryLayout& actual) {
  std::vector<std::pair<uint64_t, ScalarType>> scalars;
  collect_scalars(actual, 0, scalars);
  return !scalars.empty() && std::ranges::all_of(scalars, [&](const auto& scalar) {
    return scalar.second == expected.scalar && scalar.first % expected.bytes == 0;
  });
}

// Returns the number of scalars of this type; an unsized array counts as none.
uint64_t count_scalars(const MemoryLayout& layout, ScalarType scalar) {
  if (!is_struct(layout)) return layout.scalar == scalar && (layout.axes.empty() || layout.axes.front() != 0) ? layout.element_count() : 0;
  uint64_t sum = 0;
  for (const auto& member : layout.members) sum += count_scalars(member.layout, scalar);
  return sum * layout.element_count();
}

}  // namespace

void check_struct_layout(const BindingInterface& binding, const TensorArgument& tensor) {
  const MemoryLayout& layout = *tensor.layout;
  if (!binding.layout) throw UnsupportedError("'" + binding.name + "' has too many members to check an array of structures against");
  const StructLayoutComparer comparison(binding);
  const MemoryLayout& expected = *binding.layout;
  if (!is_struct(expected)) {
    if (layout.bytes != count_bytes(expected) || !are_vector_components(expected, layout))
      comparison.throw_mismatch("", "elements of " + to_string(expected), to_string(layout));
    return;
  }
  comparison.compare_structs(expected, layout, "");
  if (binding.is_block) {
    if (tensor.bytes != layout.bytes)
      comparison.throw_mismatch("", "one structure, for the whole block '" + binding.block + "'",
                                std::to_string(layout.bytes == 0 ? 0 : tensor.bytes / layout.bytes) + " of them");
  } else if (layout.bytes != expected.bytes) {
    comparison.throw_mismatch("", "structures of " + std::to_string(expected.bytes) + " bytes",
                              "structures of " + std::to_string(layout.bytes) + " bytes");
  }
}

void check_array_stride(const BindingInterface& binding, const TensorArgument& tensor) {
  if (!binding.layout) return;
  const MemoryLayout& expected = *binding.layout;
  const auto throw_mismatch = [&](const std::string& expected_text, const std::string& actual) {
    throw BindingError("K5", "argument '" + binding.name + "'", binding.name, expected_text + "; " + make_dtype_hint(binding), actual);
  };
  if (binding.is_block) {
    if (is_struct(expected) && count_scalars(expected, binding.scalar) * bytes(binding.scalar) != expected.bytes)
      throw_mismatch("one structure for the whole block '" + binding.block + "', whose members differ or have gaps",
                     "an array of " + std::string(name(tensor.dtype)));
    return;
  }
  if (is_struct(expected)) {
    if (!are_raw_struct_bytes(binding, tensor))
      throw_mismatch("structures of " + std::to_string(expected.bytes) + " bytes, or rows of their bytes as uint8",
                     "an array of " + std::string(name(tensor.dtype)));
    return;
  }
  const uint64_t num_elements = expected.element_count();
  if (num_elements * expected.bytes == uint64_t{binding.components} * bytes(binding.scalar))
    return;  // the shader's elements have no padding
  if (tensor.last_axis != expected.axes.back() && tensor.last_axis != num_elements)
    throw_mismatch("elements " + std::to_string(num_elements * expected.bytes) + " bytes apart (the stride of '" + binding.name +
                       "'): the last axis is " + std::to_string(expected.axes.back()) + ", shape (n, " +
                       (expected.axes.size() > 1 ? "..., " : "") + std::to_string(expected.axes.back()) + "), or a structured dtype",
                   "a last axis of " + std::to_string(tensor.last_axis));
}

void check_storage_stride(const BindingInterface& binding, const TensorArgument& tensor) {
  if (binding.is_block || !binding.layout || is_struct(*binding.layout)) return;
  const MemoryLayout& expected = *binding.layout;
  const uint64_t num_elements = expected.element_count();
  if (num_elements * expected.bytes == uint64_t{binding.components} * bytes(binding.scalar))
    return;  // the shader's elements have no padding
  const auto throw_mismatch = [&](const std::string& expected_text, const std::string& actual) {
    throw BindingError("K5", "argument '" + binding.name + "'", binding.name, expected_text, actual);
  };
  const std::string stride_message =
      "elements " + std::to_string(num_elements * expected.bytes) + " bytes apart (the stride of '" + binding.name + "')";
  if (expected.bytes != bytes(to_scalar_type(tensor.dtype)))
    throw_mismatch(stride_message + ": float32, or std430, which has no gaps", "two elements in a word");
  if (tensor.last_axis != expected.axes.back() && tensor.last_axis != num_elements)
    throw_mismatch(stride_message + ": the last axis is " + std::to_string(expected.axes.back()),
                   "a last axis of " + std::to_string(tensor.last_axis));
}

bool are_raw_struct_bytes(const BindingInterface& binding, const TensorArgument& tensor) {
  if (tensor.dtype != DType::uint8 || !binding.layout) return false;
  return binding.is_block || (is_struct(*binding.layout) && tensor.last_axis % binding.layout->bytes == 0);
}

}  // namespace pumice
