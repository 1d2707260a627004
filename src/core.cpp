#include "bindings.h"
#include "core/cache_file.h"
#include "core/half.h"
#include "core/tensor_desc.h"

namespace pumice {
namespace {

TensorDesc make_desc(const py::object& dtype, Shape shape, std::optional<Strides> strides, bool owned, uint64_t alignment,
                     std::optional<float> scale, std::optional<int32_t> zero_point) {
  TensorDesc desc(dtype_argument(dtype), std::move(shape), std::move(strides), owned, alignment);
  desc.scale = scale;
  desc.zero_point = zero_point;
  return desc;
}

}  // namespace

void bind_core(py::module_& module) {
  py::class_<TensorDesc>(module, "TensorDesc", "What a tensor looks like in memory: dtype, shape, strides in elements. Immutable.")
      .def(py::init(&make_desc), py::arg("dtype"), py::arg("shape"), py::arg("strides") = py::none(), py::arg("owned") = false,
           py::arg("alignment") = 0, py::arg("scale") = py::none(), py::arg("zero_point") = py::none(),
           "shape, strides in elements (packed row-major unless given); owned: bound at initialisation only; alignment: guaranteed base "
           "offset in bytes.\n"
           "Raises GraphError (rules R4, R8).")
      .def_property_readonly("dtype", [](const TensorDesc& self) { return std::string(name(self.dtype)); })
      .def_property_readonly("shape", [](const TensorDesc& self) { return sizes_of(self.shape); })
      .def_property_readonly("strides", [](const TensorDesc& self) { return sizes_of(self.strides); })
      .def_readonly("owned", &TensorDesc::owned)
      .def_readonly("alignment", &TensorDesc::alignment)
      .def_readonly("scale", &TensorDesc::scale)
      .def_readonly("zero_point", &TensorDesc::zero_point)
      .def_property_readonly("rank", &TensorDesc::rank)
      .def_property_readonly("elements", &TensorDesc::elements)
      .def_property_readonly("bytes", &TensorDesc::bytes, "From element 0 to the last one reached, rounded up to 4; 0 where a size is 0.")
      .def_property_readonly("is_packed", &TensorDesc::is_packed)
      .def("packed_strides", [](const TensorDesc& self) { return sizes_of(packed_strides(self.shape)); })
      .def(
          "__eq__", [](const TensorDesc& self, const TensorDesc& other) { return self == other; }, py::is_operator())
      .def("__repr__", [](const TensorDesc& self) { return "TensorDesc(" + to_string(self) + ")"; });
  module.def(
      "buffer_size",
      [](const py::object& dtype, const Shape& shape, const std::optional<Strides>& strides) {
        return buffer_size(dtype_argument(dtype), shape, strides ? &*strides : nullptr);
      },
      py::arg("dtype"), py::arg("shape"), py::arg("strides") = py::none(),
      "Bytes that a tensor needs, rounded up to 4. Raises GraphError on overflow, rank over 8, over 2**32 - 1 elements.");
  module.def(
      "strides", [](const Shape& shape, const std::string& layout) { return sizes_of(layout_strides(shape, layout)); }, py::arg("shape"),
      py::arg("layout"),
      "Strides in elements of a layout by name ('NCHW', 'NHWC', 'NCDHW', 'NDHWC', any permutation); shape in logical order.");
  py::class_<CacheState>(module, "CacheState", "The cache on disk: shaders, pipelines and graphs.")
      .def_property_readonly("folder", [](const CacheState& self) { return self.folder.string(); })
      .def_readonly("files", &CacheState::files)
      .def_readonly("bytes", &CacheState::bytes)
      .def_readonly("limit", &CacheState::limit, "Bytes: beyond it what was not used for longest is removed. PUMICE_CACHE_MB sets it.")
      .def("__repr__", [](const CacheState& self) {
        return "<CacheState " + std::to_string(self.files) + " files, " + std::to_string(self.bytes) + " bytes of at most " +
               std::to_string(self.limit) + ">";
      });
  module.def("cache_state", &cache_state, py::call_guard<ReleasedGil>(), "None where there is no cache (PUMICE_NO_CACHE).");
  module.def(
      "cache_directory",
      []() -> std::optional<std::string> {
        const auto folder = cache_directory();
        return folder ? std::optional(folder->string()) : std::nullopt;
      },
      "PUMICE_CACHE_DIR, else pumice in XDG_CACHE_HOME or ~/.cache; None where PUMICE_NO_CACHE is set (and not \"0\").");
  module.def("prune_cache", &prune_cache, py::call_guard<ReleasedGil>(),
             "Brings the cache under its limit, the least recently used entries first, and removes what killed writers left.");
  module.def("note_cache_use", [](const std::string& path) { note_use(path); }, py::arg("path"), "Marks an entry as used now.");
}

}  // namespace pumice
