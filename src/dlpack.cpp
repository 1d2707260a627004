// DLPack: exports tensors as CPU arrays (as CUDA arrays if memory is shared) and imports such arrays.
#include "core/dlpack.h"

#include <cstring>

#include "bindings.h"
#include "core/error.h"
#include "core/strided_copy.h"
#include "operators/compiled/convert_tensor.h"

namespace pumice {
namespace {

constexpr int64_t kNoSync = -1;  // stream value that requests no synchronisation
constexpr const char *kName = "dltensor", *kVersionedName = "dltensor_versioned";
constexpr const char *kUsedName = "used_dltensor", *kUsedVersionedName = "used_dltensor_versioned";

[[noreturn]] void throw_export_error(const std::string& reason) {
  PyErr_SetString(PyExc_BufferError, reason.c_str());
  throw py::error_already_set();
}

// Memory of an exported array: the tensor's mapped memory or a copy of its elements.
struct ExportedArray {
  std::shared_ptr<Buffer> shared;
  Buffer::UseGuard use;
  std::vector<std::byte> copied;
  Shape shape;
  Strides strides;
  dlpack::DLManagedTensor managed{};
  dlpack::DLManagedTensorVersioned versioned{};

  ~ExportedArray() {
    if (shared) shared->adjust_view_count(-1);
  }
};

// Exports the elements of a tensor after waiting for submitted work.
std::unique_ptr<ExportedArray> export_array(const Tensor& self, bool share, bool waits = true) {
  auto result = std::make_unique<ExportedArray>();
  result->shape = self.desc().shape;
  result->strides = share ? self.desc().strides : packed_strides(self.desc().shape);
  const GilRelease release;
  if (share) {
    result->use = self.buffer()->acquire();
    if (waits) self.buffer()->context()->wait_idle(check_signals);
    self.buffer()->adjust_view_count(1);
    result->shared = self.buffer();
  } else {
    result->copied.resize(self.desc().element_bytes());
    self.download(result->copied, check_signals);
  }
  return result;
}

// Releases the array of a capsule that was never consumed.
template <typename M>
void release_capsule(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, name));
  managed->release(managed);
}

py::capsule make_capsule(std::unique_ptr<ExportedArray> result, const dlpack::DLTensor& array, bool versioned) {
  if (versioned) {
    auto& managed = result->versioned;
    managed = {{1, 0},
               result.get(),
               [](dlpack::DLManagedTensorVersioned* self) { delete static_cast<ExportedArray*>(self->owner); },
               result->shared ? 0 : dlpack::kCopied,
               array};
    result.release();
    return py::reinterpret_steal<py::capsule>(PyCapsule_New(
        &managed, kVersionedName, [](PyObject* capsule) { release_capsule<dlpack::DLManagedTensorVersioned>(capsule, kVersionedName); }));
  }
  auto& managed = result->managed;
  managed = {array, result.get(), [](dlpack::DLManagedTensor* self) { delete static_cast<ExportedArray*>(self->owner); }};
  result.release();
  return py::reinterpret_steal<py::capsule>(
      PyCapsule_New(&managed, kName, [](PyObject* capsule) { release_capsule<dlpack::DLManagedTensor>(capsule, kName); }));
}

std::pair<int, int> get_export_device(const Tensor& self) {
  const auto& mapping = self.buffer()->mapping();
  return mapping ? std::pair(int{dlpack::kCuda}, mapping->device) : std::pair(int{dlpack::kCpu}, 0);
}

// Exports a tensor as a CUDA array of the same memory.
py::object export_to_cuda(const Tensor& self, const py::object& stream, bool versioned, bool copy) {
  const TensorDesc& desc = self.desc();
  if (copy)
    throw_export_error("memory shared with CUDA is exported without a copy; copy it in the importer, or to the host with Tensor.numpy()");
  if (bits(desc.dtype) < 8)
    throw_export_error("DLPack cannot represent packed elements of " + std::string(name(desc.dtype)) + "; convert them with .to('int8')");
  const bool waits = stream.is_none() || stream.cast<int64_t>() != kNoSync;
  auto result = export_array(self, true, waits);
  dlpack::DLTensor array{};
  array.data = reinterpret_cast<void*>(self.buffer()->mapping()->address + self.byte_offset());
  array.device = {dlpack::kCuda, self.buffer()->mapping()->device};
  array.rank = desc.rank();
  array.type = dlpack::to_dl_data_type(desc.dtype);
  array.shape = result->shape.data();
  array.strides = result->strides.data();
  return make_capsule(std::move(result), array, versioned);
}

py::object export_to_dlpack(const Tensor& self, const py::object& stream, const std::optional<std::pair<int, int>>& max_version,
                            const std::optional<std::pair<int, int>>& dl_device, std::optional<bool> copy) {
  const TensorDesc& desc = self.desc();
  const bool versioned = max_version && max_version->first >= 1;
  if (self.buffer()->mapping() && (!dl_device || *dl_device == get_export_device(self)))
    return export_to_cuda(self, stream, versioned, copy.value_or(false));
  if (!stream.is_none()) throw_export_error("a Tensor is exported as a CPU array, which has no streams; stream must be None");
  if (dl_device && *dl_device != std::pair<int, int>(dlpack::kCpu, 0))
    throw_export_error("a Tensor is exported to the CPU, device (1, 0); given (" + std::to_string(dl_device->first) + ", " +
                       std::to_string(dl_device->second) + ")");
  if (bits(desc.dtype) < 8)
    throw_export_error("DLPack cannot represent packed elements of " + std::string(name(desc.dtype)) + "; convert them with .to('int8')");
  const bool can_share = self.buffer()->mappable() && !has_internal_overlap(desc.shape, desc.strides);
  if (copy && !*copy && !can_share)
    throw_export_error(self.buffer()->mappable() ? "elements of this view share memory, so it can only be exported as a copy"
                                                 : "the host cannot access this Tensor's memory, so it can only be exported as a copy");
  auto result = export_array(self, can_share && !copy.value_or(false));
  dlpack::DLTensor array{};
  if (result->shared) self.buffer()->context()->require_execution("a shared tensor");
  array.data = result->shared ? self.buffer()->host_bytes() + self.byte_offset() : result->copied.data();
  array.device = {dlpack::kCpu, 0};
  array.rank = desc.rank();
  array.type = dlpack::to_dl_data_type(desc.dtype);
  array.shape = result->shape.data();
  array.strides = result->strides.data();
  return make_capsule(std::move(result), array, versioned);
}

// An array from another library; released with the last owner.
struct ImportedArray {
  std::shared_ptr<const void> owner;
  dlpack::ValidatedTensor array;
};

template <typename M>
M* consume_capsule(const py::object& capsule, const char* name, const char* used) {
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (PyCapsule_SetName(capsule.ptr(), used) != 0) throw py::error_already_set();
  return managed;
}

// The deleter of a Python library may need the GIL, and the last owner may be on any thread.
template <typename M>
std::shared_ptr<const void> make_owner(M* managed) {
  return {managed, [](M* array) {
            if (array->release) release_with_gil([&] { array->release(array); });
          }};
}

// Calls a method of the other library's array. Throws BindingError (K5) with the library's reason if the method raises.
template <typename... Arguments>
py::object call_array_method(const py::object& array, const char* method, Arguments&&... arguments) {
  try {
    return array.attr(method)(std::forward<Arguments>(arguments)...);
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw;
    throw BindingError("K5", "array", "", "an array that its library can share through DLPack",
                       get_type_name(array) + ", whose " + method + " failed: " + error.what());
  }
}

std::pair<int, int> get_dlpack_device(const py::object& array) {
  reject_masked_array(array, "array");
  if (!py::hasattr(array, "__dlpack_device__") || !py::hasattr(array, "__dlpack__"))
    throw BindingError("K5", "array", "", "an array with __dlpack__ and __dlpack_device__; use tensor() for lists and numbers",
                       get_type_name(array));
  const py::object device = call_array_method(array, "__dlpack_device__");
  try {
    return device.cast<std::pair<int, int>>();
  } catch (const py::cast_error&) {
    throw BindingError("K5", "array", "", "an array whose __dlpack_device__ returns a pair of integers, (type, id)",
                       py::repr(device).cast<std::string>());
  }
}

// Takes ownership of a capsule's array, and releases it even if it is rejected.
template <typename M>
ImportedArray import_capsule(const py::object& capsule, const char* name, const char* used, const dlpack::DLDevice& device) {
  auto* managed = consume_capsule<M>(capsule, name, used);
  auto owner = make_owner(managed);
  return {std::move(owner), dlpack::validate_managed_tensor(managed, device)};
}

[[noreturn]] void throw_capsule_error(const py::object& array) {
  std::string text = get_type_name(array);
  if (PyCapsule_CheckExact(array.ptr())) {
    const char* name = PyCapsule_GetName(array.ptr());
    text = "a capsule named '" + std::string(name ? name : "") + "'";
    if (name && std::string_view(name).starts_with("used_"))
      text += ", which another consumer has used already; each consumer needs its own";
  }
  throw BindingError("K5", "array", "", "an array whose __dlpack__ returns a capsule named 'dltensor' or 'dltensor_versioned'", text);
}

ImportedArray import_dlpack(const py::object& array, const std::pair<int, int>& device) {
  if (device.first != dlpack::kCpu && device.first != dlpack::kCuda)
    throw UnsupportedError("an array of DLPack device type " + std::to_string(device.first) +
                           "; expected 1 (CPU), or memory shared with 2 (CUDA): move it there first");
  const bool is_cuda = device.first == dlpack::kCuda;
  py::object capsule;
  try {
    const auto version = py::make_tuple(1, 0);
    capsule = is_cuda ? array.attr("__dlpack__")(py::arg("max_version") = version, py::arg("stream") = kNoSync)
                      : array.attr("__dlpack__")(py::arg("max_version") = version);
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw;
    capsule =
        call_array_method(array, "__dlpack__");  // an unversioned capsule (DLPack before 1.0), or the error that explains why there is none
  }
  const dlpack::DLDevice expected{device.first, device.second};
  if (PyCapsule_IsValid(capsule.ptr(), kVersionedName))
    return import_capsule<dlpack::DLManagedTensorVersioned>(capsule, kVersionedName, kUsedVersionedName, expected);
  if (PyCapsule_IsValid(capsule.ptr(), kName)) return import_capsule<dlpack::DLManagedTensor>(capsule, kName, kUsedName, expected);
  throw_capsule_error(capsule);
}

// Returns the packed elements of an array; copies them unless they are already packed.
HostTensor make_packed_host_tensor(const ImportedArray& from) {
  const auto& [desc, data, device, read_only] = from.array;
  if (desc.is_packed()) return {desc, from.owner, data};
  const auto width = static_cast<size_t>(bits(desc.dtype)) / 8;
  const TensorDesc packed(desc.dtype, desc.shape);
  const auto bytes = std::make_shared<std::vector<std::byte>>(packed.element_bytes());
  copy_strided(width, desc.shape, data, to_byte_strides(desc.strides, width), bytes->data(), to_byte_strides(packed.strides, width));
  return {packed, bytes, bytes->data()};
}

// Returns the tensor that shares its memory with a CUDA array. Throws UnsupportedError if this context does not share that memory.
Tensor find_shared_cuda_tensor(const dlpack::ValidatedTensor& array, Context& context) {
  if (auto found = find_shared_tensor(context, reinterpret_cast<uintptr_t>(array.data), array.desc)) return *std::move(found);
  throw UnsupportedError("an array of CUDA device " + std::to_string(array.device.id) +
                         " whose memory this context does not share; pumice.empty(shape, dtype, share=\"cuda\") allocates memory that both "
                         "can use: copy it there");
}

Tensor from_dlpack(const py::object& object, std::shared_ptr<Context> context, std::optional<bool> copy) {
  const auto device = get_dlpack_device(object);
  const ImportedArray imported = import_dlpack(object, device);
  const dlpack::ValidatedTensor& array = imported.array;
  if (device.first == dlpack::kCuda) {
    Tensor found = find_shared_cuda_tensor(array, *context);
    if (!copy.value_or(false)) return found;
    const GilRelease release;
    return make_packed_copy(found, check_signals);
  }
  if (!copy.value_or(true)) {
    if (array.read_only) throw UnsupportedError("host memory without a copy: the array is read-only, but the device may write to it");
    const GilRelease release;
    return import_host_tensor(TensorDesc(array.desc.dtype, array.desc.shape, array.desc.strides), array.data, std::move(context),
                              imported.owner);
  }
  return upload_tensor(make_packed_host_tensor(imported), std::move(context));
}

}  // namespace

std::optional<Tensor> find_cuda_tensor(const py::handle& object, std::shared_ptr<Context> context) {
  try {
    if (!py::hasattr(object, "__dlpack_device__") || object.attr("__dlpack_device__")().cast<std::pair<int, int>>().first != dlpack::kCuda)
      return {};
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw;
    return {};
  } catch (const std::exception&) {  // let NumPy report the error for such an array
    return {};
  }
  return from_dlpack(py::reinterpret_borrow<py::object>(object), std::move(context), {});
}

void bind_dlpack(py::module_& module, py::class_<Tensor, std::shared_ptr<Tensor>>& tensor) {
  tensor
      .def("__dlpack__", &export_to_dlpack, py::kw_only(), py::arg("stream") = py::none(), py::arg("max_version") = py::none(),
           py::arg("dl_device") = py::none(), py::arg("copy") = py::none(),
           "Return a DLPack capsule with the elements as a CPU array, after waiting for the work submitted so far. It shares the tensor's "
           "memory if that is host-visible and copy is not True, or else contains a copy. The capsule is versioned for max_version >= 1.\n"
           "Tensors created with empty(share=\"cuda\") are exported as CUDA arrays; stream=-1 skips the wait.\n"
           "Raise BufferError for other devices, streams and 4-bit dtypes, and for copy=False if a copy is needed.")
      .def("__dlpack_device__", &get_export_device, "Return (1, 0), the CPU, or (2, index) for memory shared with a CUDA device.");
  module.def("from_dlpack", &from_dlpack, py::arg("array"), py::arg("context").none(false), py::arg("copy") = py::none());
}

}  // namespace pumice
