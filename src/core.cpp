#include "bindings.h"
#include "core/error.h"
#include "core/files/cache_file.h"
#include "core/files/hash.h"
#include "core/mapped_file.h"
#include "core/tensor_desc.h"

namespace pumice {
namespace {

// All fields, for pickling and hashing.
py::tuple fields_of(const TensorDesc& self) {
  return py::make_tuple(std::string(name(self.dtype)), sizes_of(self.shape), sizes_of(self.strides), self.owned, self.alignment,
                        scale_of(self), self.zero_point, self.channel_axis, self.bytes());
}

TensorDesc desc_of(const py::tuple& fields) {
  if (fields.size() != 9) throw py::value_error("a pickled TensorDesc of another version of pumice");
  TensorDesc desc(dtype_argument(fields[0]), fields[1].cast<Shape>(), fields[2].cast<Strides>(), fields[3].cast<bool>(),
                  fields[4].cast<uint64_t>(), fields[8].cast<uint64_t>());
  desc.quantized(
      quantization_argument(fields[5].cast<Scale>(), fields[6].cast<std::optional<Integer>>(), fields[7].cast<std::optional<Integer>>()));
  return desc;
}

// Converts a non-negative byte count of a description.
uint64_t described_bytes(const Integer& bytes, const char* what, const char* rule) {
  if (const auto value = bytes.as<uint64_t>()) return *value;
  throw GraphError(what, "expected a number of bytes from 0 to 2^64 - 1; given " + bytes.text(), rule);
}

TensorDesc make_desc(const py::object& dtype, const Integers& shape, const std::optional<Integers>& strides, bool owned,
                     const Integer& alignment, const Scale& scale, const std::optional<Integer>& zero_point,
                     const std::optional<Integer>& channel_axis, const std::optional<Integer>& total_bytes) {
  const auto total = total_bytes ? std::optional(described_bytes(*total_bytes, "total_bytes", "R6")) : std::nullopt;
  TensorDesc desc(dtype_argument(dtype), sizes_argument(shape, "shape"), strides_argument(strides), owned,
                  described_bytes(alignment, "alignment", "R4"), total);
  desc.quantized(quantization_argument(scale, zero_point, channel_axis));
  return desc;
}

}  // namespace

std::shared_ptr<const MappedFile> mapped_file_of(const py::buffer& raw) {
  const py::object source = PyMemoryView_Check(raw.ptr()) ? raw.attr("obj").cast<py::object>() : py::object(raw);
  return py::isinstance<MappedFile>(source) ? source.cast<std::shared_ptr<MappedFile>>() : nullptr;
}

Quantization quantization_argument(const Scale& scale, const std::optional<Integer>& zero_point,
                                   const std::optional<Integer>& channel_axis) {
  Quantization given{{}, zero_point_argument(zero_point), channel_axis_argument(channel_axis)};
  if (const auto* one = std::get_if<float>(&scale)) given.scale = {*one};
  if (const auto* many = std::get_if<std::vector<float>>(&scale)) given.scale = *many;
  return given;
}

GivenScale scale_of(const Quantization& self) {
  if (self.scale.empty()) return std::monostate();
  if (!self.channel_axis) return self.scale[0];
  return py::typing::Tuple<float, py::ellipsis>(py::cast(self.scale));
}

namespace {

std::span<const std::byte> bytes_of(const py::bytes& given) {
  return std::as_bytes(std::span(std::string_view(given)));
}

std::optional<py::bytes> read_entry(const std::string& kind, const std::string& name) {
  std::optional<std::vector<std::byte>> payload;
  {
    const py::gil_scoped_release released;
    payload = read_cache_entry(kind, name);
  }
  return payload ? std::optional(py::bytes(reinterpret_cast<const char*>(payload->data()), payload->size())) : std::nullopt;
}

bool write_entry(const std::string& kind, const std::string& name, const py::bytes& payload) {
  const auto bytes = bytes_of(payload);
  const py::gil_scoped_release released;
  return write_cache_entry(kind, name, bytes);
}

std::string sha256_of(const py::args& parts) {
  Sha256 hash;
  for (const auto& part : parts) {
    const py::buffer_info info = part.cast<py::buffer>().request();
    const auto bytes = contiguous_bytes(info, "sha256");
    const py::gil_scoped_release released;
    hash.bytes(bytes);
  }
  return hash.hex();
}

void bind_mapped_file(py::module_& module) {
  py::class_<MappedFile, std::shared_ptr<MappedFile>>(module, "MappedFile", py::buffer_protocol(),
                                                      "A file as read-only bytes, read as they are needed.")
      .def(py::init(&MappedFile::map), py::arg("descriptor"), py::arg("name"),
           "descriptor: an open regular file, which may be closed afterwards. name: what messages call the file. Raises "
           "Error.")
      .def_buffer([](const MappedFile& self) {
        const auto bytes = self.bytes();
        const auto count = static_cast<py::ssize_t>(bytes.size());
        return py::buffer_info(reinterpret_cast<const uint8_t*>(bytes.data()), count);
      })
      .def("view", [](const py::object& self) { return py::memoryview(self); }, "The file's bytes, read-only and not copied.");
}

// Binds constructors and fields of TensorDesc.
void bind_desc_fields(py::class_<TensorDesc>& desc) {
  desc.def(py::init(&make_desc), py::arg("dtype"), py::arg("shape"), py::arg("strides") = py::none(), py::arg("owned") = false,
           py::arg("alignment") = 0, py::arg("scale") = py::none(), py::arg("zero_point") = py::none(),
           py::arg("channel_axis") = py::none(), py::arg("total_bytes") = py::none(),
           "shape and strides in elements (packed row-major unless given; 0 broadcasts). owned: bound at initialisation "
           "only. alignment: guaranteed base\n"
           "offset in bytes. scale, zero_point: of a quantized tensor; scale is a number, or one for each channel of "
           "channel_axis. total_bytes: size of\n"
           "the whole tensor, padding after its last element included; None: what sizes and strides reach over.\n"
           "Raises GraphError (rules R4, R5, R6, R8).")
      .def_static(
          "with_layout",
          [](const py::object& dtype, const Integers& shape, const std::string& layout, const std::vector<bool>& broadcast) {
            return TensorDesc::with_layout(dtype_argument(dtype), sizes_argument(shape, "shape"), layout, broadcast);
          },
          py::arg("dtype"), py::arg("shape"), py::arg("layout"), py::arg("broadcast") = std::vector<bool>(),
          "A TensorDesc with the strides that pumice.strides gives for the layout. Raises GraphError.")
      .def_property_readonly("dtype", [](const TensorDesc& self) { return std::string(name(self.dtype)); })
      .def_property_readonly("shape", [](const TensorDesc& self) { return sizes_of(self.shape); })
      .def_property_readonly("strides", [](const TensorDesc& self) { return sizes_of(self.strides); })
      .def_readonly("owned", &TensorDesc::owned)
      .def_readonly("alignment", &TensorDesc::alignment)
      .def_property_readonly("scale", [](const TensorDesc& self) { return scale_of(self); })
      .def_readonly("zero_point", &TensorDesc::zero_point)
      .def_readonly("channel_axis", &TensorDesc::channel_axis);
}

// Binds properties derived from dtype, shape and strides.
void bind_desc_facts(py::class_<TensorDesc>& desc) {
  desc.def_property_readonly("rank", &TensorDesc::rank)
      .def_property_readonly("elements", &TensorDesc::elements)
      .def_property_readonly("bytes", &TensorDesc::bytes,
                             "Size in bytes: total_bytes, or where none was given from element 0 to the last one reached, rounded up to 4; "
                             "0 where a size is 0.")
      .def_property_readonly("is_packed", &TensorDesc::is_packed,
                             "Whether the strides are row-major without gaps; axes of size 1 may have any stride.")
      .def_property_readonly(
          "overlaps", [](const TensorDesc& self) { return overlaps(self.shape, self.strides); },
          "Whether two indices reach one element (rule R9).")
      .def_property_readonly(
          "layout", [](const TensorDesc& self) { return layout_name(self.shape, self.strides); },
          "The name that pumice.strides gives these strides for, axes of stride 0 taken as broadcast; None where there is none.")
      .def_property_readonly(
          "physical_shape", [](const TensorDesc& self) { return sizes_of(physical_shape(self.shape, self.strides)); },
          "The shape in memory: axes of stride 0 are of size 1.")
      .def_property_readonly("required_alignment", &TensorDesc::required_alignment,
                             "Alignment in bytes: the offset at which the tensor is bound is a multiple of it (rule R3).");
}

// Binds methods that return other descriptions, and value semantics (pickling, equality).
void bind_desc_forms(py::class_<TensorDesc>& desc) {
  desc.def("packed_strides", [](const TensorDesc& self) { return sizes_of(packed_strides(self.shape)); })
      .def("packed", &TensorDesc::packed, "A TensorDesc of the same sizes with packed strides.")
      .def(
          "broadcast_to", [](const TensorDesc& self, const Integers& shape) { return self.broadcast_to(sizes_argument(shape, "shape")); },
          py::arg("shape"), "A TensorDesc of this shape, as numpy.broadcast_to makes one: the new axes have stride 0. Raises GraphError.")
      .def(
          "permute", [](const TensorDesc& self, const Integers& axes) { return self.permute(axes_argument(axes, "permute")); },
          py::arg("axes"),
          "A TensorDesc with its axes in another order, as numpy.transpose; negative axes count from the end. Raises "
          "GraphError.")
      .def(
          "pad_rows",
          [](const TensorDesc& self, const Integer& multiple) { return self.pad_rows(sizes_argument({multiple}, "pad_rows")[0]); },
          py::arg("multiple"),
          "A TensorDesc that is packed again, with rows (the innermost axis in memory) a multiple of so many elements "
          "apart; the order of axes stays.")
      .def(
          "__eq__", [](const TensorDesc& self, const TensorDesc& other) { return self == other; }, py::is_operator())
      .def("__hash__", [](const TensorDesc& self) { return py::hash(fields_of(self)); })
      .def(py::pickle(&fields_of, &desc_of))
      .def("__repr__", [](const TensorDesc& self) { return "TensorDesc(" + to_string(self) + ")"; });
}

void bind_desc(py::module_& module) {
  py::class_<TensorDesc> desc(module, "TensorDesc",
                              "What a tensor looks like in memory: dtype, shape, strides in elements. A value: it is immutable and can be\n"
                              "compared, hashed and pickled.");
  bind_desc_fields(desc);
  bind_desc_facts(desc);
  bind_desc_forms(desc);
  module.def(
      "buffer_size",
      [](const py::object& dtype, const Integers& shape, const std::optional<Integers>& given) {
        const auto strides = strides_argument(given);
        return buffer_size(dtype_argument(dtype), sizes_argument(shape, "shape"), strides ? &*strides : nullptr);
      },
      py::arg("dtype"), py::arg("shape"), py::arg("strides") = py::none(),
      "Bytes from element 0 to the last one reached, rounded up to 4; 0 where a size is 0, one element for rank 0. Raises GraphError\n"
      "(rule R8) on overflow of 64 bits, a rank over 8, over 2**32 - 1 elements, negative strides.");
  module.def(
      "strides",
      [](const Integers& shape, const std::string& layout, const std::vector<bool>& broadcast) {
        return sizes_of(layout_strides(sizes_argument(shape, "shape"), layout, broadcast));
      },
      py::arg("shape"), py::arg("layout"), py::arg("broadcast") = std::vector<bool>(),
      "Strides in elements of a layout by name: 'NCHW', 'NHWC', 'NCDHW', 'NDHWC', any permutation of letters of NCDHW, or of the letters\n"
      "from 'a' on, which name the axes in order ('acb'). shape is in logical order. broadcast marks axes that are of size 1 in memory:\n"
      "they have stride 0. Raises GraphError. TensorDesc.layout is the inverse.");
}

}  // namespace

void bind_core(py::module_& module) {
  bind_mapped_file(module);
  bind_desc(module);
  py::class_<CacheState>(module, "CacheState", "The cache on disk: shaders, pipelines, graphs and measurements.")
      .def_property_readonly("folder", [](const CacheState& self) { return self.folder.string(); })
      .def_readonly("files", &CacheState::files, "The number of entries. Files that pumice has not written are not counted.")
      .def_readonly("bytes", &CacheState::bytes, "The disk space that the entries occupy.")
      .def_readonly("limit", &CacheState::limit,
                    "The maximum size in bytes. Above it the least recently used entries are removed. PUMICE_CACHE_MB sets it.")
      .def("__repr__", [](const CacheState& self) {
        return "<CacheState " + std::to_string(self.files) + " files, " + std::to_string(self.bytes) + " bytes of at most " +
               std::to_string(self.limit) + ">";
      });
  module.def("cache_state", &cache_state, py::call_guard<ReleasedGil>(), "The state of the cache on disk; None if PUMICE_NO_CACHE is set.");
  module.def(
      "cache_directory",
      []() -> std::optional<std::string> {
        const auto folder = cache_directory();
        return folder ? std::optional(folder->string()) : std::nullopt;
      },
      "The folder `pumice` in PUMICE_CACHE_DIR, else in XDG_CACHE_HOME, else in ~/.cache; None if PUMICE_NO_CACHE is set (and not \"0\").");
  module.def("prune_cache", &prune_cache, py::call_guard<ReleasedGil>(),
             "Remove the least recently used entries of a cache above its limit, and temporary files of killed writers. Files that pumice "
             "has not written stay.");
  module.def("read_cache_entry", &read_entry, py::arg("kind"), py::arg("name"),
             "The payload of an entry; None if it is missing, truncated, corrupt, owned by another user, or writable by others.");
  module.def("write_cache_entry", &write_entry, py::arg("kind"), py::arg("name"), py::arg("payload"),
             "Replace an entry atomically. False if the file could not be written.");
  module.def("cache_entries", &cache_entries, py::call_guard<ReleasedGil>(), py::arg("kind"), py::arg("folder") = "",
             "The names of the entries of a kind, sorted; folder: only those in this folder of a nested kind.");
  module.def("sha256", &sha256_of, "The SHA-256 of the parts one after the other, as 64 hexadecimal digits.");
}

}  // namespace pumice
