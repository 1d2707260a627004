#include "core/error.h"
#include "shader/spirv/spirv_module.h"

namespace pumice::spirv {
namespace {

constexpr size_t kMaxMembers = 4096;  // limit on members, because nested types can double the count at every level

struct LayoutAxis {
  uint32_t size, stride;
};

// Builds the MemoryLayout of a type recursively.
class LayoutReader {
 public:
  explicit LayoutReader(const Module& module) : module_(module) {}

  MemoryLayout read_member(uint32_t structure, uint32_t index, int depth = 0) {
    return read_type(module_.definition(structure)[index + 1], module_.find_member_decoration(structure, index, MatrixStride).value_or(0),
                     module_.find_member_decoration(structure, index, RowMajor).has_value(), depth);
  }

  MemoryLayout read_type(uint32_t type, uint32_t matrix_stride, bool row_major, int depth) {
    if (depth > kMaxTypeDepth) throw ShaderCompileError("malformed SPIR-V: types nest too deeply");
    std::vector<LayoutAxis> axes;
    uint32_t element = strip_arrays(type, axes);
    if (module_.definition(element).op == OpTypeMatrix)
      element = add_matrix_axes(element, matrix_stride, row_major, axes);
    else if (const auto& vector = module_.definition(element); vector.op == OpTypeVector)
      axes.push_back({vector[2], module_.get_layout(element = vector[1]).bytes});
    const TypeLayout element_layout = module_.get_layout(element);
    MemoryLayout layout;
    layout.scalar = element_layout.scalar;
    layout.bytes = element_layout.bytes;
    if (module_.definition(element).op == OpTypeStruct) {
      if (!axes.empty() && axes.back().stride != 0) layout.bytes = axes.back().stride;
      add_members(layout, element, depth);
    }
    const bool is_extension = module_.definition(element).op == OpTypeStruct && module_.name(element).starts_with("sfp");
    make_axes_dense(layout, axes);
    if (is_extension && !layout.members.empty()) flatten_to_vector(layout);
    return layout;
  }

  bool is_complete() const { return members_ <= kMaxMembers; }

 private:
  uint32_t strip_arrays(uint32_t type, std::vector<LayoutAxis>& axes) const {
    for (;;) {
      const auto& definition = module_.definition(type);
      if (definition.op != OpTypeArray && definition.op != OpTypeRuntimeArray) return type;
      if (axes.size() > static_cast<size_t>(kMaxTypeDepth)) throw ShaderCompileError("malformed SPIR-V: types nest too deeply");
      const uint32_t size = definition.op == OpTypeArray ? module_.get_constant_value(definition[2]) : 0;
      axes.push_back({size, module_.find_decoration(type, ArrayStride).value_or(0)});
      type = definition[1];
    }
  }

  uint32_t add_matrix_axes(uint32_t type, uint32_t stride, bool row_major, std::vector<LayoutAxis>& axes) const {
    const auto& matrix = module_.definition(type);
    const auto& column = module_.definition(matrix[1]);
    if (column.op != OpTypeVector) throw ShaderCompileError("malformed SPIR-V: a matrix without columns");
    const uint32_t scalar = module_.get_layout(column[1]).bytes;
    axes.push_back({row_major ? column[2] : matrix[2], stride});
    axes.push_back({row_major ? matrix[2] : column[2], scalar});
    return column[1];
  }

  void add_members(MemoryLayout& layout, uint32_t structure, int depth) {
    for (uint32_t i = 0; i + 1 < module_.definition(structure).size() && is_complete(); ++i) {
      ++members_;
      layout.members.push_back({module_.member_name(structure, i), module_.find_member_decoration(structure, i, Offset).value_or(0),
                                read_member(structure, i, depth + 1)});
    }
  }

  // Flattens a structure that represents a vector or matrix of the GLSL extension, as in some storage modes.
  static void flatten_to_vector(MemoryLayout& layout) {
    const MemoryLayout& first = layout.members.front().layout;
    uint64_t count = 0;
    for (const auto& [name, offset, member] : layout.members) {
      if (member.scalar != first.scalar || offset != count * first.bytes) return;
      count += member.element_count();
    }
    if (first.scalar == ScalarType::other || count * first.bytes != layout.bytes) return;
    layout.scalar = first.scalar;
    layout.bytes = first.bytes;
    layout.axes.push_back(static_cast<uint32_t>(count));
    layout.members.clear();
  }

  // Removes gaps between elements: padding lengthens the inner axis, or adds an axis.
  static void make_axes_dense(MemoryLayout& layout, const std::vector<LayoutAxis>& axes) {
    uint64_t inner = layout.bytes;
    for (size_t i = axes.size(); i-- > 0;) {
      const uint32_t stride = axes[i].stride == 0 ? static_cast<uint32_t>(inner) : axes[i].stride;
      if (stride != inner && inner != 0 && !layout.axes.empty()) {
        layout.axes.front() = static_cast<uint32_t>(uint64_t{layout.axes.front()} * stride / inner);
      } else if (stride != inner && inner != 0) {
        layout.axes.insert(layout.axes.begin(), static_cast<uint32_t>(stride / inner));
      }
      layout.axes.insert(layout.axes.begin(), axes[i].size);
      inner = uint64_t{stride} * axes[i].size;
    }
  }

  const Module& module_;
  size_t members_ = 0;
};

template <typename ReadRoot>
std::shared_ptr<const MemoryLayout> read_layout(const Module& module, ReadRoot&& read_root) {
  LayoutReader reader(module);
  auto layout = std::make_shared<MemoryLayout>(read_root(reader));
  return reader.is_complete() ? layout : nullptr;
}

}  // namespace

std::shared_ptr<const MemoryLayout> Module::get_memory_layout(uint32_t type) const {
  return read_layout(*this, [&](LayoutReader& reader) { return reader.read_type(type, 0, false, 0); });
}

std::shared_ptr<const MemoryLayout> Module::get_member_layout(uint32_t type, uint32_t member) const {
  return read_layout(*this, [&](LayoutReader& reader) { return reader.read_member(type, member); });
}

}  // namespace pumice::spirv
