// DLPack in both directions: tensors as arrays of the CPU, or of CUDA where it shares their memory, and such arrays as tensors.
#include <cstring>

#include "bindings.h"
#include "core/error.h"
#include "core/strided_copy.h"
#include "operators/compiled/convert.h"

namespace pumice {
namespace {

// The structures of DLPack's interface, version 1.
namespace dlpack {

constexpr int32_t kCpu = 1, kCuda = 2;
constexpr int64_t kNoOrder = -1;  // a stream for which nothing is ordered
constexpr uint64_t kReadOnly = 1, kCopied = 2;
constexpr const char *kName = "dltensor", *kVersionedName = "dltensor_versioned";
constexpr const char *kUsedName = "used_dltensor", *kUsedVersionedName = "used_dltensor_versioned";

enum Code : uint8_t { signed_integer = 0, unsigned_integer = 1, real = 2, bfloat = 4, boolean = 6 };

struct Device {
  int32_t type, id;
};
struct ElementType {
  uint8_t code, bits;
  uint16_t lanes;
  bool operator==(const ElementType&) const = default;
};
struct Array {
  void* data;
  Device device;
  int32_t rank;
  ElementType type;
  int64_t *shape, *strides;  // in elements; strides may be null: packed
  uint64_t byte_offset;
};
struct Managed {
  Array array;
  void* owner;
  void (*release)(Managed*);
};
struct Version {
  uint32_t major, minor;
};
struct VersionedManaged {
  Version version;
  void* owner;
  void (*release)(VersionedManaged*);
  uint64_t flags;
  Array array;
};

}  // namespace dlpack

dlpack::ElementType element_type(DType dtype) {
  const auto width = static_cast<uint8_t>(bits(dtype));
  if (dtype == DType::bool_) return {dlpack::boolean, width, 1};
  if (dtype == DType::bfloat16) return {dlpack::bfloat, width, 1};
  if (is_float(dtype)) return {dlpack::real, width, 1};
  return {is_signed_integer(dtype) ? dlpack::signed_integer : dlpack::unsigned_integer, width, 1};
}

DType dtype_of_type(const dlpack::ElementType& type) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (const auto dtype = static_cast<DType>(i); bits(dtype) >= 8 && element_type(dtype) == type) return dtype;
  throw UnsupportedError("from_dlpack: expected elements of a dtype of at least 8 bits, given DLPack's code " + std::to_string(type.code) +
                         " with " + std::to_string(type.bits) + " bits in " + std::to_string(type.lanes) + " lanes");
}

[[noreturn]] void refuse_export(const std::string& why) {
  PyErr_SetString(PyExc_BufferError, why.c_str());
  throw py::error_already_set();
}

// The memory that an exported array points to: the tensor's own mapped memory, or a copy of the elements.
struct Exported {
  std::shared_ptr<Buffer> shared;
  Buffer::Use use;
  std::vector<std::byte> copied;
  Shape shape;
  Strides strides;
  dlpack::Managed managed{};
  dlpack::VersionedManaged versioned{};

  ~Exported() {
    if (shared) shared->count_view(-1);
  }
};

// The elements of a tensor once the work submitted so far is done.
std::unique_ptr<Exported> exported(const Tensor& self, bool share, bool waits = true) {
  auto made = std::make_unique<Exported>();
  made->shape = self.desc().shape;
  made->strides = share ? self.desc().strides : packed_strides(self.desc().shape);
  const ReleasedGil release;
  if (share) {
    made->use = self.buffer()->use();
    if (waits) self.buffer()->context()->wait_idle(check_signals);
    self.buffer()->count_view(1);
    made->shared = self.buffer();
  } else {
    made->copied.resize(self.desc().element_bytes());
    self.download(made->copied, check_signals);
  }
  return made;
}

// Releases the array of a capsule that nobody has taken.
template <typename M>
void release_capsule(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, name));
  managed->release(managed);
}

py::capsule capsule_of(std::unique_ptr<Exported> made, const dlpack::Array& array, bool versioned) {
  if (versioned) {
    auto& managed = made->versioned;
    managed = {{1, 0},
               made.get(),
               [](dlpack::VersionedManaged* self) { delete static_cast<Exported*>(self->owner); },
               made->shared ? 0 : dlpack::kCopied,
               array};
    made.release();
    return py::reinterpret_steal<py::capsule>(PyCapsule_New(&managed, dlpack::kVersionedName, [](PyObject* capsule) {
      release_capsule<dlpack::VersionedManaged>(capsule, dlpack::kVersionedName);
    }));
  }
  auto& managed = made->managed;
  managed = {array, made.get(), [](dlpack::Managed* self) { delete static_cast<Exported*>(self->owner); }};
  made.release();
  return py::reinterpret_steal<py::capsule>(
      PyCapsule_New(&managed, dlpack::kName, [](PyObject* capsule) { release_capsule<dlpack::Managed>(capsule, dlpack::kName); }));
}

std::pair<int, int> export_device(const Tensor& self) {
  const auto& mapping = self.buffer()->mapping();
  return mapping ? std::pair(int{dlpack::kCuda}, mapping->device) : std::pair(int{dlpack::kCpu}, 0);
}

// A tensor as an array of CUDA, which sees the same memory.
py::object to_cuda(const Tensor& self, const py::object& stream, bool versioned, bool copy) {
  const TensorDesc& desc = self.desc();
  if (copy) refuse_export("memory shared with CUDA is exported as it is; the importer copies it, or Tensor.numpy() does to the host");
  if (bits(desc.dtype) < 8) refuse_export("DLPack has no packed elements of " + std::string(name(desc.dtype)) + "; .to('int8') has some");
  const bool waits = stream.is_none() || stream.cast<int64_t>() != dlpack::kNoOrder;
  auto made = exported(self, true, waits);
  dlpack::Array array{};
  array.data = reinterpret_cast<void*>(self.buffer()->mapping()->address + self.byte_offset());
  array.device = {dlpack::kCuda, self.buffer()->mapping()->device};
  array.rank = desc.rank();
  array.type = element_type(desc.dtype);
  array.shape = made->shape.data();
  array.strides = made->strides.data();
  return capsule_of(std::move(made), array, versioned);
}

py::object to_dlpack(const Tensor& self, const py::object& stream, const std::optional<std::pair<int, int>>& max_version,
                     const std::optional<std::pair<int, int>>& dl_device, std::optional<bool> copy) {
  const TensorDesc& desc = self.desc();
  const bool versioned = max_version && max_version->first >= 1;
  if (self.buffer()->mapping() && (!dl_device || *dl_device == export_device(self)))
    return to_cuda(self, stream, versioned, copy.value_or(false));
  if (!stream.is_none()) refuse_export("a Tensor is exported as an array of the CPU, which has no streams; stream has to be None");
  if (dl_device && *dl_device != std::pair<int, int>(dlpack::kCpu, 0))
    refuse_export("a Tensor is exported to the CPU, device (1, 0); given (" + std::to_string(dl_device->first) + ", " +
                  std::to_string(dl_device->second) + ")");
  if (bits(desc.dtype) < 8) refuse_export("DLPack has no packed elements of " + std::string(name(desc.dtype)) + "; .to('int8') has some");
  const bool can_share = self.buffer()->mappable() && !overlaps(desc.shape, desc.strides);
  if (copy && !*copy && !can_share)
    refuse_export(self.buffer()->mappable() ? "elements of this view share memory: an array of it is a copy"
                                            : "the host does not see this Tensor's memory: an array of it is a copy");
  auto made = exported(self, can_share && !copy.value_or(false));
  dlpack::Array array{};
  array.data = made->shared ? self.buffer()->host_bytes() + self.byte_offset() : made->copied.data();
  array.device = {dlpack::kCpu, 0};
  array.rank = desc.rank();
  array.type = element_type(desc.dtype);
  array.shape = made->shape.data();
  array.strides = made->strides.data();
  return capsule_of(std::move(made), array, versioned);
}

// An array that another library gave; released with the last owner.
struct Imported {
  std::shared_ptr<const void> owner;
  const dlpack::Array* array = nullptr;
  bool read_only = false;
};

template <typename M>
M* taken(const py::capsule& capsule, const char* name, const char* used) {
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (PyCapsule_SetName(capsule.ptr(), used) != 0) throw py::error_already_set();
  return managed;
}

// The release function of a Python library may need the GIL, and the last owner may be any thread.
template <typename M>
std::shared_ptr<const void> owner_of(M* managed) {
  return {managed, [](M* given) {
            if (given->release) release_with_gil([&] { given->release(given); });
          }};
}

// The result of a method of the other library's array. Throws BindingError (K5) with the library's reason where the method raises.
template <typename... Arguments>
py::object asked(const py::object& given, const char* method, Arguments&&... arguments) {
  try {
    return given.attr(method)(std::forward<Arguments>(arguments)...);
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw;
    throw BindingError("K5", "array", "", "an array that its library shares by DLPack",
                       type_name(given) + ", whose " + method + " failed: " + error.what());
  }
}

std::pair<int, int> device_of(const py::object& given) {
  refuse_masked(given, "array");
  if (!py::hasattr(given, "__dlpack_device__") || !py::hasattr(given, "__dlpack__"))
    throw BindingError("K5", "array", "", "an array with __dlpack__ and __dlpack_device__; tensor() takes lists and numbers",
                       type_name(given));
  const py::object device = asked(given, "__dlpack_device__");
  try {
    return device.cast<std::pair<int, int>>();
  } catch (const py::cast_error&) {
    throw py::type_error("__dlpack_device__ gave " + py::repr(device).cast<std::string>() + "; expected a pair of integers");
  }
}

Imported imported(const py::object& given, const std::pair<int, int>& device) {
  if (device.first != dlpack::kCpu && device.first != dlpack::kCuda)
    throw UnsupportedError("an array of DLPack device type " + std::to_string(device.first) +
                           "; expected 1, the CPU, or memory shared with 2, CUDA: move it there first");
  const bool is_cuda = device.first == dlpack::kCuda;
  py::object capsule;
  try {
    const auto version = py::make_tuple(1, 0);
    capsule = is_cuda ? given.attr("__dlpack__")(py::arg("max_version") = version, py::arg("stream") = dlpack::kNoOrder)
                      : given.attr("__dlpack__")(py::arg("max_version") = version);
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw;
    capsule = asked(given, "__dlpack__");  // a capsule from before version 1, or the reason why there is none
  }
  if (PyCapsule_IsValid(capsule.ptr(), dlpack::kVersionedName)) {
    auto* managed = taken<dlpack::VersionedManaged>(capsule, dlpack::kVersionedName, dlpack::kUsedVersionedName);
    auto owner = owner_of(managed);
    if (managed->version.major != 1) throw UnsupportedError("DLPack of version " + std::to_string(managed->version.major) + "; expected 1");
    return {owner, &managed->array, (managed->flags & dlpack::kReadOnly) != 0};
  }
  if (!PyCapsule_IsValid(capsule.ptr(), dlpack::kName)) throw py::type_error("__dlpack__ gave no capsule of DLPack that is unused");
  auto* managed = taken<dlpack::Managed>(capsule, dlpack::kName, dlpack::kUsedName);
  return {owner_of(managed), &managed->array, false};
}

// Packed bytes of an array: its own, or a copy.
HostTensor packed_host(const Imported& from, const TensorDesc& desc, const std::byte* data) {
  if (desc.is_packed()) return {desc, from.owner, data};
  const auto width = static_cast<size_t>(bits(desc.dtype)) / 8;
  const TensorDesc packed(desc.dtype, desc.shape);
  const auto bytes = std::make_shared<std::vector<std::byte>>(packed.element_bytes());
  copy_strided(width, desc.shape, data, byte_strides(desc.strides, width), bytes->data(), byte_strides(packed.strides, width));
  return {packed, bytes, bytes->data()};
}

// The tensor whose memory an array of CUDA has. Throws UnsupportedError where that memory is not shared with this context.
Tensor on_cuda(const dlpack::Array& array, TensorDesc desc, Context& context) {
  const uint64_t address = reinterpret_cast<uintptr_t>(array.data) + array.byte_offset;
  if (auto found = shared_tensor_at(context, address, std::move(desc))) return *std::move(found);
  throw UnsupportedError(
      "an array of CUDA device " + std::to_string(array.device.id) +
      " whose memory this context does not share; pumice.empty(shape, dtype, share=\"cuda\") makes memory that both use: copy it there");
}

Tensor from_dlpack(const py::object& given, std::shared_ptr<Context> context, std::optional<bool> copy) {
  const auto device = device_of(given);
  const Imported from = imported(given, device);
  const dlpack::Array& array = *from.array;
  TensorDesc desc(dtype_of_type(array.type), Shape(array.shape, array.shape + array.rank));
  if (array.strides) desc.strides.assign(array.strides, array.strides + array.rank);  // may be negative, as no tensor's are
  if (device.first == dlpack::kCuda) {
    Tensor found = on_cuda(array, std::move(desc), *context);
    if (!copy.value_or(false)) return found;
    const ReleasedGil release;
    return packed_copy(found, check_signals);
  }
  auto* const data = static_cast<std::byte*>(array.data) + array.byte_offset;
  if (!copy.value_or(true)) {
    if (from.read_only) throw UnsupportedError("host memory without a copy: the array is read-only, and the device may write");
    const ReleasedGil release;
    return tensor_on(TensorDesc(desc.dtype, desc.shape, desc.strides), data, std::move(context), from.owner);
  }
  return tensor_of(packed_host(from, desc, data), std::move(context));
}

}  // namespace

std::optional<Tensor> cuda_tensor_of(const py::handle& given, std::shared_ptr<Context> context) {
  try {
    if (!py::hasattr(given, "__dlpack_device__") || given.attr("__dlpack_device__")().cast<std::pair<int, int>>().first != dlpack::kCuda)
      return {};
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw;
    return {};
  } catch (const std::exception&) {  // NumPy's own reason is the one that is told of such an array
    return {};
  }
  return from_dlpack(py::reinterpret_borrow<py::object>(given), std::move(context), {});
}

void bind_dlpack(py::module_& module, py::class_<Tensor, std::shared_ptr<Tensor>>& tensor) {
  tensor
      .def(
          "__dlpack__", &to_dlpack, py::kw_only(), py::arg("stream") = py::none(), py::arg("max_version") = py::none(),
          py::arg("dl_device") = py::none(), py::arg("copy") = py::none(),
          "A DLPack capsule of the elements as an array of the CPU, when the work submitted so far is done. It shares the tensor's memory\n"
          "where the host sees that and copy is not True; else it holds a copy. From max_version 1 on the capsule is versioned.\n"
          "Memory that empty(share=\"cuda\") made is exported as an array of CUDA; stream=-1 leaves out the wait.\n"
          "Raises BufferError for another device, a stream, a 4-bit dtype, and copy=False where a copy is needed.")
      .def("__dlpack_device__", &export_device, "(1, 0): the CPU; (2, number) for memory shared with a CUDA device.");
  module.def("from_dlpack", &from_dlpack, py::arg("array"), py::arg("context").none(false), py::arg("copy") = py::none());
}

}  // namespace pumice
