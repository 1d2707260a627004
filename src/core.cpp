#include "bindings.h"
#include "core/error.h"
#include "core/files/cache_file.h"
#include "core/files/hash.h"
#include "core/mapped_file.h"
#include "core/tensor_desc.h"

namespace pumice {
namespace {

// Returns all fields, for pickling and hashing.
py::tuple get_desc_fields(const TensorDesc& self) {
  return py::make_tuple(std::string(name(self.dtype)), make_size_tuple(self.shape), make_size_tuple(self.strides), self.owned,
                        self.alignment, get_scale(self), self.zero_point, self.channel_axis, self.bytes());
}

TensorDesc make_desc_from_fields(const py::tuple& fields) {
  if (fields.size() != 9) throw py::value_error("this TensorDesc was pickled by another version of pumice");
  TensorDesc desc(parse_dtype(fields[0]), fields[1].cast<Shape>(), fields[2].cast<Strides>(), fields[3].cast<bool>(),
                  fields[4].cast<uint64_t>(), fields[8].cast<uint64_t>());
  desc.quantized(
      parse_quantization(fields[5].cast<Scale>(), fields[6].cast<std::optional<Integer>>(), fields[7].cast<std::optional<Integer>>()));
  return desc;
}

// Converts a non-negative byte count of a description.
uint64_t parse_desc_byte_count(const Integer& bytes, const char* label, const char* rule) {
  if (const auto value = bytes.as<uint64_t>()) return *value;
  throw GraphError(label, "expected a number of bytes from 0 to 2^64 - 1; given " + bytes.text(), rule);
}

TensorDesc make_tensor_desc(const py::object& dtype, const Integers& shape, const std::optional<Integers>& strides, bool owned,
                            const Integer& alignment, const Scale& scale, const std::optional<Integer>& zero_point,
                            const std::optional<Integer>& channel_axis, const std::optional<Integer>& total_bytes) {
  const auto total = total_bytes ? std::optional(parse_desc_byte_count(*total_bytes, "total_bytes", "R6")) : std::nullopt;
  TensorDesc desc(parse_dtype(dtype), parse_sizes(shape, "shape"), parse_strides(strides), owned,
                  parse_desc_byte_count(alignment, "alignment", "R4"), total);
  desc.quantized(parse_quantization(scale, zero_point, channel_axis));
  return desc;
}

}  // namespace

std::shared_ptr<const MappedFile> find_mapped_file(const py::buffer& raw) {
  const py::object source = PyMemoryView_Check(raw.ptr()) ? raw.attr("obj").cast<py::object>() : py::object(raw);
  return py::isinstance<MappedFile>(source) ? source.cast<std::shared_ptr<MappedFile>>() : nullptr;
}

Quantization parse_quantization(const Scale& scale, const std::optional<Integer>& zero_point, const std::optional<Integer>& channel_axis) {
  Quantization quantization{{}, parse_zero_point(zero_point), parse_channel_axis(channel_axis)};
  if (const auto* single = std::get_if<float>(&scale)) quantization.scale = {*single};
  if (const auto* per_channel = std::get_if<std::vector<float>>(&scale)) quantization.scale = *per_channel;
  return quantization;
}

ScaleTuple get_scale(const Quantization& self) {
  if (self.scale.empty()) return std::monostate();
  if (!self.channel_axis) return self.scale[0];
  return py::typing::Tuple<float, py::ellipsis>(py::cast(self.scale));
}

namespace {

std::span<const std::byte> get_bytes(const py::bytes& bytes) {
  return std::as_bytes(std::span(std::string_view(bytes)));
}

std::optional<py::bytes> read_cache_payload(const std::string& kind, const std::string& name) {
  std::optional<std::vector<std::byte>> payload;
  {
    const py::gil_scoped_release released;
    payload = read_cache_entry(kind, name);
  }
  return payload ? std::optional(py::bytes(reinterpret_cast<const char*>(payload->data()), payload->size())) : std::nullopt;
}

bool write_cache_payload(const std::string& kind, const std::string& name, const py::bytes& payload) {
  const auto bytes = get_bytes(payload);
  const py::gil_scoped_release released;
  return write_cache_entry(kind, name, bytes);
}

std::string compute_sha256(const py::args& buffers) {
  Sha256 hash;
  for (const auto& py_buffer : buffers) {
    const py::buffer_info info = py_buffer.cast<py::buffer>().request();
    const auto bytes = get_contiguous_bytes(info, "sha256");
    const py::gil_scoped_release released;
    hash.add_bytes(bytes);
  }
  return hash.hex();
}

void bind_mapped_file(py::module_& module) {
  py::class_<MappedFile, std::shared_ptr<MappedFile>>(module, "MappedFile", py::buffer_protocol(),
                                                      "A file as read-only bytes, loaded on demand.")
      .def(py::init(&MappedFile::map), py::arg("descriptor"), py::arg("name"),
           "descriptor: an open regular file; may be closed afterwards.\n"
           "name: name of the file in error messages.\n"
           "Raise Error if it cannot be mapped.")
      .def_buffer([](const MappedFile& self) {
        const auto bytes = self.bytes();
        const auto count = static_cast<py::ssize_t>(bytes.size());
        return py::buffer_info(reinterpret_cast<const uint8_t*>(bytes.data()), count);
      })
      .def(
          "view", [](const py::object& self) { return py::memoryview(self); },
          "Return a read-only view of the file's bytes, without a copy.");
}

// Binds constructors and fields of TensorDesc.
void bind_desc_fields(py::class_<TensorDesc>& desc) {
  desc.def(py::init(&make_tensor_desc), py::arg("dtype"), py::arg("shape"), py::arg("strides") = py::none(), py::arg("owned") = false,
           py::arg("alignment") = 0, py::arg("scale") = py::none(), py::arg("zero_point") = py::none(),
           py::arg("channel_axis") = py::none(), py::arg("total_bytes") = py::none(),
           "shape, strides: in elements. Strides default to packed row-major; a stride of 0 broadcasts.\n"
           "owned: bound at initialisation only.\n"
           "alignment: guaranteed alignment of the base offset, in bytes.\n"
           "scale, zero_point: quantisation; scale is a number, or one per channel of channel_axis.\n"
           "total_bytes: size of the whole tensor including trailing padding; None: the range that shape and strides cover.\n"
           "Raise GraphError (R4, R5, R6, R8).")
      .def_static(
          "with_layout",
          [](const py::object& dtype, const Integers& shape, const std::string& layout, const std::vector<bool>& broadcast) {
            return TensorDesc::with_layout(parse_dtype(dtype), parse_sizes(shape, "shape"), layout, broadcast);
          },
          py::arg("dtype"), py::arg("shape"), py::arg("layout"), py::arg("broadcast") = std::vector<bool>(),
          "Return a TensorDesc with the strides that pumice.strides computes for the layout. Raise GraphError.")
      .def_property_readonly("dtype", [](const TensorDesc& self) { return std::string(name(self.dtype)); })
      .def_property_readonly("shape", [](const TensorDesc& self) { return make_size_tuple(self.shape); })
      .def_property_readonly("strides", [](const TensorDesc& self) { return make_size_tuple(self.strides); })
      .def_readonly("owned", &TensorDesc::owned)
      .def_readonly("alignment", &TensorDesc::alignment)
      .def_property_readonly("scale", [](const TensorDesc& self) { return get_scale(self); })
      .def_readonly("zero_point", &TensorDesc::zero_point)
      .def_readonly("channel_axis", &TensorDesc::channel_axis);
}

// Binds properties derived from dtype, shape and strides.
void bind_desc_properties(py::class_<TensorDesc>& desc) {
  desc.def_property_readonly("rank", &TensorDesc::rank)
      .def_property_readonly("elements", &TensorDesc::elements)
      .def_property_readonly(
          "bytes", &TensorDesc::bytes,
          "Size in bytes: total_bytes if given, or else from element 0 to the last element reached, rounded up to 4; 0 if any size is 0.")
      .def_property_readonly("is_packed", &TensorDesc::is_packed,
                             "Whether the strides are row-major without gaps; the strides of axes of size 1 do not matter.")
      .def_property_readonly(
          "overlaps", [](const TensorDesc& self) { return has_internal_overlap(self.shape, self.strides); },
          "Whether two indices share an element (rule R9).")
      .def_property_readonly(
          "layout", [](const TensorDesc& self) { return find_layout_name(self.shape, self.strides); },
          "The layout name for which pumice.strides gives these strides, with axes of stride 0 as broadcast; None if there is none.")
      .def_property_readonly(
          "physical_shape", [](const TensorDesc& self) { return make_size_tuple(physical_shape(self.shape, self.strides)); },
          "The shape in memory, where axes of stride 0 have size 1.")
      .def_property_readonly("required_alignment", &TensorDesc::required_alignment,
                             "Required alignment of the tensor's bound offset in bytes (rule R3).");
}

// Binds methods that return other descriptions, and value semantics (pickling, equality).
void bind_desc_methods(py::class_<TensorDesc>& desc) {
  desc.def("packed_strides", [](const TensorDesc& self) { return make_size_tuple(packed_strides(self.shape)); })
      .def("packed", &TensorDesc::packed, "Return a TensorDesc of the same shape with packed strides.")
      .def(
          "broadcast_to", [](const TensorDesc& self, const Integers& shape) { return self.broadcast_to(parse_sizes(shape, "shape")); },
          py::arg("shape"),
          "Return a TensorDesc broadcast to this shape like numpy.broadcast_to; new axes have stride 0. Raise GraphError.")
      .def(
          "permute", [](const TensorDesc& self, const Integers& axes) { return self.permute(parse_axes(axes, "permute")); },
          py::arg("axes"),
          "Return a TensorDesc with permuted axes like numpy.transpose; negative axes count from the end. Raise GraphError.")
      .def(
          "pad_rows", [](const TensorDesc& self, const Integer& multiple) { return self.pad_rows(parse_sizes({multiple}, "pad_rows")[0]); },
          py::arg("multiple"),
          "Return a TensorDesc with the same axis order, repacked with its rows (the innermost axis in memory) padded to a multiple of "
          "this many elements.")
      .def(
          "__eq__", [](const TensorDesc& self, const TensorDesc& other) { return self == other; }, py::is_operator())
      .def("__hash__", [](const TensorDesc& self) { return py::hash(get_desc_fields(self)); })
      .def(py::pickle(&get_desc_fields, &make_desc_from_fields))
      .def("__repr__", [](const TensorDesc& self) { return "TensorDesc(" + to_string(self) + ")"; });
}

void bind_tensor_desc(py::module_& module) {
  py::class_<TensorDesc> desc(
      module, "TensorDesc",
      "Memory layout of a tensor: dtype, shape, strides in elements. An immutable value: comparable, hashable and picklable.");
  bind_desc_fields(desc);
  bind_desc_properties(desc);
  bind_desc_methods(desc);
  module.def(
      "buffer_size",
      [](const py::object& dtype, const Integers& shape, const std::optional<Integers>& strides_argument) {
        const auto strides = parse_strides(strides_argument);
        return buffer_size(parse_dtype(dtype), parse_sizes(shape, "shape"), strides ? &*strides : nullptr);
      },
      py::arg("dtype"), py::arg("shape"), py::arg("strides") = py::none(),
      "Return the bytes from element 0 to the last element reached, rounded up to 4; 0 if any size is 0, one element for rank 0.\n"
      "Raise GraphError (R8) on 64-bit overflow, a rank above 8, more than 2**32 - 1 elements, or negative strides.");
  module.def(
      "strides",
      [](const Integers& shape, const std::string& layout, const std::vector<bool>& broadcast) {
        return make_size_tuple(compute_layout_strides(parse_sizes(shape, "shape"), layout, broadcast));
      },
      py::arg("shape"), py::arg("layout"), py::arg("broadcast") = std::vector<bool>(),
      "Return the strides of a layout in elements. Inverse of TensorDesc.layout.\n"
      "shape: in logical order.\n"
      "layout: 'NCHW', 'NHWC', 'NCDHW', 'NDHWC', any permutation of the letters of NCDHW, or of the letters from 'a' on, which name the "
      "axes in order ('acb').\n"
      "broadcast: marks axes of size 1 in memory, which get stride 0.\n"
      "Raise GraphError.");
}

}  // namespace

void bind_core(py::module_& module) {
  bind_mapped_file(module);
  bind_tensor_desc(module);
  py::class_<CacheUsage>(module, "CacheState", "The on-disk cache of shaders, pipelines, graphs and measurements.")
      .def_property_readonly("folder", [](const CacheUsage& self) { return self.folder.string(); })
      .def_readonly("files", &CacheUsage::files, "Number of entries. Files that pumice has not written do not count.")
      .def_readonly("bytes", &CacheUsage::bytes, "Disk space used by the entries, in bytes.")
      .def_readonly("limit", &CacheUsage::limit,
                    "Maximum size in bytes, set by PUMICE_CACHE_MB. Beyond it, the least recently used entries are removed.")
      .def("__repr__", [](const CacheUsage& self) {
        return "<CacheState " + std::to_string(self.files) + " files, " + std::to_string(self.bytes) + " bytes of at most " +
               std::to_string(self.limit) + ">";
      });
  module.def("cache_state", &get_cache_usage, py::call_guard<GilRelease>(),
             "Return the state of the on-disk cache; None if PUMICE_NO_CACHE is set.");
  module.def(
      "cache_directory",
      []() -> std::optional<std::string> {
        const auto folder = get_cache_directory();
        return folder ? std::optional(folder->string()) : std::nullopt;
      },
      "Return the cache folder: `pumice` in PUMICE_CACHE_DIR, or else in XDG_CACHE_HOME, or else in ~/.cache; None if PUMICE_NO_CACHE is "
      "set (and not \"0\").");
  module.def("prune_cache", &prune_cache, py::call_guard<GilRelease>(),
             "Remove the least recently used entries if the cache exceeds its limit, and temporary files of killed writers. Keep files "
             "that pumice has not written.");
  module.def("read_cache_entry", &read_cache_payload, py::arg("kind"), py::arg("name"),
             "Return the payload of an entry; None if it is missing, truncated, corrupt, owned by another user, or writable by others.");
  module.def("write_cache_entry", &write_cache_payload, py::arg("kind"), py::arg("name"), py::arg("payload"),
             "Replace an entry atomically. Return False if the file could not be written.");
  module.def("cache_entries", &list_cache_entries, py::call_guard<GilRelease>(), py::arg("kind"), py::arg("folder") = "",
             "Return the sorted names of the entries of a kind.\n"
             "folder: return only entries in this folder of a nested kind.");
  module.def("sha256", &compute_sha256, "Return the SHA-256 of the concatenated parts, as 64 hexadecimal digits.");
}

}  // namespace pumice
