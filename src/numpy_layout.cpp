#include "numpy_layout.h"

#include "core/error.h"

namespace pumice {
namespace {

MemoryLayout parse_layout(const py::dtype& dtype, const std::string& context) {
  MemoryLayout layout;
  py::dtype element = dtype;
  for (py::object pair = dtype.attr("subdtype"); !pair.is_none(); pair = element.attr("subdtype")) {
    element = pair[py::int_(0)].cast<py::dtype>();
    for (const uint32_t size : pair[py::int_(1)].cast<std::vector<uint32_t>>()) layout.axes.push_back(size);
  }
  layout.bytes = static_cast<uint32_t>(element.itemsize());
  if (!element.has_fields()) {
    layout.scalar = to_scalar_type(get_engine_dtype(element, context));
    if (layout.scalar == ScalarType::other)
      throw BindingError("K5", context, context, "a type that shaders support", py::str(element).cast<std::string>());
    return layout;
  }
  const py::object fields = element.attr("fields");
  for (const auto& key : element.attr("names")) {
    const py::object field = fields[key];
    const auto name = key.cast<std::string>();
    layout.members.push_back({name, field[py::int_(1)].cast<uint32_t>(),
                              parse_layout(field[py::int_(0)].cast<py::dtype>(), context + ", field '" + name + "'")});
  }
  return layout;
}

py::object make_struct_dtype(const MemoryLayout& layout, uint64_t length) {
  py::list names, formats, offsets;
  uint64_t bytes = layout.bytes;
  for (const auto& member : layout.members) {
    const py::dtype format = make_layout_dtype(member.layout, length);
    names.append(member.name);
    formats.append(format);
    offsets.append(member.offset);
    bytes = std::max(bytes, member.offset + static_cast<uint64_t>(format.itemsize()));
  }
  py::dict result;
  result["names"] = names;
  result["formats"] = formats;
  result["offsets"] = offsets;
  result["itemsize"] = bytes;
  return result;
}

}  // namespace

std::shared_ptr<const MemoryLayout> parse_memory_layout(const py::dtype& dtype, const std::string& context) {
  return std::make_shared<const MemoryLayout>(parse_layout(dtype, context));
}

py::dtype make_layout_dtype(const MemoryLayout& layout, uint64_t length) {
  py::object result = layout.scalar == ScalarType::other ? make_struct_dtype(layout, length)
                                                         : py::object(get_numpy_dtype(dtype_from_name(std::string(name(layout.scalar)))));
  if (!layout.axes.empty()) {
    py::tuple axes(layout.axes.size());
    for (size_t i = 0; i < layout.axes.size(); ++i) axes[i] = layout.axes[i] == 0 ? length : uint64_t{layout.axes[i]};
    result = py::make_tuple(py::dtype::from_args(result), axes);
  }
  return py::dtype::from_args(result);
}

}  // namespace pumice
