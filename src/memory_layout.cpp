#include "memory_layout.h"

#include "core/error.h"

namespace pumice {
namespace {

MemoryLayout read(const py::dtype& dtype, const std::string& what) {
  MemoryLayout layout;
  py::dtype element = dtype;
  for (py::object pair = dtype.attr("subdtype"); !pair.is_none(); pair = element.attr("subdtype")) {
    element = pair[py::int_(0)].cast<py::dtype>();
    for (const uint32_t size : pair[py::int_(1)].cast<std::vector<uint32_t>>()) layout.axes.push_back(size);
  }
  layout.bytes = static_cast<uint32_t>(element.itemsize());
  if (!element.has_fields()) {
    layout.scalar = scalar_of(dtype_of(element, what));
    if (layout.scalar == ScalarType::other)
      throw BindingError("K5", what, what, "a type that shaders have", py::str(element).cast<std::string>());
    return layout;
  }
  const py::object fields = element.attr("fields");
  for (const auto& key : element.attr("names")) {
    const py::object field = fields[key];
    const auto name = key.cast<std::string>();
    layout.members.push_back(
        {name, field[py::int_(1)].cast<uint32_t>(), read(field[py::int_(0)].cast<py::dtype>(), what + ", field '" + name + "'")});
  }
  return layout;
}

py::object dtype_of_structure(const MemoryLayout& layout, uint64_t length) {
  py::list names, formats, offsets;
  uint64_t bytes = layout.bytes;
  for (const auto& member : layout.members) {
    const py::dtype format = numpy_dtype(member.layout, length);
    names.append(member.name);
    formats.append(format);
    offsets.append(member.offset);
    bytes = std::max(bytes, member.offset + static_cast<uint64_t>(format.itemsize()));
  }
  py::dict made;
  made["names"] = names;
  made["formats"] = formats;
  made["offsets"] = offsets;
  made["itemsize"] = bytes;
  return made;
}

}  // namespace

std::shared_ptr<const MemoryLayout> memory_layout(const py::dtype& dtype, const std::string& what) {
  return std::make_shared<const MemoryLayout>(read(dtype, what));
}

py::dtype numpy_dtype(const MemoryLayout& layout, uint64_t length) {
  py::object made = layout.scalar == ScalarType::other ? dtype_of_structure(layout, length)
                                                       : py::object(numpy_dtype(dtype_from_name(std::string(name(layout.scalar)))));
  if (!layout.axes.empty()) {
    py::tuple axes(layout.axes.size());
    for (size_t i = 0; i < layout.axes.size(); ++i) axes[i] = layout.axes[i] == 0 ? length : uint64_t{layout.axes[i]};
    made = py::make_tuple(py::dtype::from_args(made), axes);
  }
  return py::dtype::from_args(made);
}

}  // namespace pumice
