// Shared declarations of the Python bindings: one bind_ function per engine class, and conversions between NumPy and the engine.
#pragma once

#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>
#include <unistd.h>

#include <optional>
#include <variant>
#include <vector>

#include "core/open_calls.h"
#include "core/tensor_desc.h"
#include "device/tensor.h"
#include "dispatch/kernel/kernel.h"
#include "integer.h"
#include "operators/table/attributes.h"

namespace py = pybind11;

namespace pumice {

class MappedFile;
class MessageLog;
class Program;
class Recording;
struct StepReport;

// Python types as they appear in signatures and the stub file.
using Sizes = py::typing::Tuple<int64_t, py::ellipsis>;
using KnownSizes =
    py::typing::Optional<py::typing::Tuple<py::typing::Optional<int64_t>, py::ellipsis>>;  // None for an unknown size or rank
using Arrays = py::typing::Tuple<py::array, py::ellipsis>;
using ArrayLikes = py::typing::Tuple<py::object, py::ellipsis>;  // arrays or anything that numpy.asarray accepts
using Record = py::typing::Dict<py::str, py::object>;

void bind_errors(py::module_& module);
void bind_core(py::module_& module);
void bind_json(py::module_& module);
void bind_context(py::module_& module);
void bind_visibility(py::module_& module);  // call after bind_context()
py::class_<Buffer, std::shared_ptr<Buffer>> bind_buffer(py::module_& module);
void bind_sharing(py::module_& module, py::class_<Buffer, std::shared_ptr<Buffer>>& buffer);  // call after bind_tensor()
void bind_tensor(py::module_& module);
void add_buffer_protocol(PyHeapTypeObject* type);  // type: the Python type of Tensor
void bind_dlpack(py::module_& module, py::class_<Tensor, std::shared_ptr<Tensor>>& tensor);
void add_arithmetic(py::class_<Tensor, std::shared_ptr<Tensor>>& tensor);  // Python operators
void bind_image(py::module_& module);
void bind_shader(py::module_& module);
void bind_messages(py::module_& module);
void bind_kernel(py::module_& module);
void bind_dispatch(py::module_& module);
void bind_profile(py::module_& module);
void bind_operators(py::module_& module);
void bind_graph(py::module_& module);
void bind_program(py::module_& module);
void bind_execution(py::module_& module);  // call before bind_program()
void bind_nnapi(py::module_& module);
void bind_dv(py::module_& module);
void bind_dv_packing(py::module_& module);
void bind_dv_layout(py::module_& module);
void bind_program_executions(py::class_<Program, std::shared_ptr<Program>>& program);

// Releases the GIL for the lifetime of this object. A daemon thread that finds the interpreter finalized blocks until the process ends,
// because Python before 3.14 would unwind it through code that needs the GIL. A thread inside is counted as an OpenCall.
class ReleasedGil {
 public:
  ReleasedGil() : call_(std::in_place), state_(PyEval_SaveThread()) {}
  ~ReleasedGil() {
    call_.reset();
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) pause();
    }
  }
  ReleasedGil(const ReleasedGil&) = delete;

 private:
  std::optional<OpenCall> call_;
  PyThreadState* state_;
};

// Releases a Python object on any thread, or leaks it if the interpreter is gone. A thread that hits interpreter shutdown here blocks
// forever, because it would otherwise be unwound through destructors.
template <typename Release>
void release_with_gil(const Release& release) {
  if (!Py_IsInitialized()) return;
  try {
    const py::gil_scoped_acquire gil;
    release();
  } catch (...) {
    for (;;) pause();
  }
}

// Workgroup size from Python: one to three numbers, or None. Throws BindingError (K2).
using LocalSizeArgument = std::variant<std::monostate, int64_t, std::vector<int64_t>>;
std::optional<LocalSize> local_size_argument(const LocalSizeArgument& given);

// Returns the driver's statistics for a kernel variant as dicts and lists. find_build() returns the variant compiled for a storage mode, by
// default the plain one; throws BindingError (K1) if it is not compiled yet.
Record driver_record(const KernelVariant& variant);
// A plan step as returned by Program.plan.
Record step_record(const StepReport& step);
std::shared_ptr<const KernelVariant> find_build(Kernel& kernel, const std::shared_ptr<const KernelVariant>& fp32_variant,
                                                const std::optional<std::string>& storage);

// A kernel with bound arguments: a dispatch that command lists can record repeatedly.
struct BoundKernel {
  Dispatch dispatch;
};

// Returns a tensor at an address of the other API in memory shared with the context; nullopt for any other address.
std::optional<Tensor> shared_tensor_at(Context& context, uint64_t address, TensorDesc desc);
// Returns the shared-memory tensor of a CUDA array from another library; nullopt for arrays on other devices. Throws UnsupportedError if
// the context does not share its memory.
std::optional<Tensor> find_cuda_tensor(const py::handle& given, std::shared_ptr<Context> context);
Shape shape_argument(const py::object& shape);  // one or more integers

// Creates a packed tensor from a copy of packed host bytes.
Tensor upload_tensor(const HostTensor& host, std::shared_ptr<Context> context);
// Creates a tensor that imports writable host memory without a copy. `strides` are in elements. Throws UnsupportedError naming the unmet
// requirement.
Tensor import_host_tensor(TensorDesc desc, void* address, std::shared_ptr<Context> context, std::shared_ptr<const void> owner);

// NumPy dtype of an engine dtype (from ml_dtypes for bfloat16, fp8 and smaller).
py::dtype numpy_dtype(DType dtype);
// Engine dtype of a NumPy dtype. Throws BindingError (K5) with `what`, the supported dtypes and the given one; for big-endian dtypes with a
// hint.
DType engine_dtype(const py::dtype& dtype, std::string_view what);
// Accepts an engine DType, a name ("float32") or anything that numpy.dtype accepts.
DType dtype_argument(const py::object& dtype);

// Quantisation scale in Python: a number, one per channel, or None.
using Scale = std::variant<std::monostate, float, std::vector<float>>;
using ScaleTuple = std::variant<std::monostate, float, py::typing::Tuple<float, py::ellipsis>>;
Quantization quantization_argument(const Scale& scale, const std::optional<Integer>& zero_point,
                                   const std::optional<Integer>& channel_axis);
ScaleTuple scale_of(const Quantization& self);

// Returns the array itself if it is C-contiguous, aligned and in native byte order, else a copy that is.
py::array contiguous(const py::array& array);
std::span<const std::byte> bytes_of(const py::array& array);
// Bytes of a buffer passed to the function `user`. Throws Error if they are not contiguous.
std::span<const std::byte> contiguous_bytes(const py::buffer_info& info, std::string_view user);
// Engine representation of an array: contiguous, with sub-byte elements packed. unpacked() is the inverse.
py::array pack_elements(const py::array& array, DType dtype);
py::array unpack_elements(DType dtype, const Shape& shape, std::span<const std::byte> packed);
Shape shape_of(const py::array& array);
Sizes sizes_of(std::span<const int64_t> sizes);
py::array empty_array(DType dtype, const Shape& shape);
void reject_masked(const py::handle& array, std::string_view what);  // throws BindingError (K5): the mask would be lost
// Throws BindingError (K5) if elements of this dtype cannot be written to the array directly.
void check_output_array(const py::array& array, DType dtype, const std::string& slot, const std::string& name);
// numpy.asarray of a value, which may be another library's array. Throws BindingError (K5) with NumPy's reason if that fails, and for
// masked arrays.
py::array array_like(const py::handle& given, std::string_view what);
// Whether the value is an array of another library, neither a NumPy array nor a NumPy scalar.
bool is_foreign_array(const py::handle& value);
// Keeps an object alive until the last owner is gone, on any thread.
std::shared_ptr<const void> keep(py::object object);
// Refers to the array's memory if it is usable as is, else to a copy. Throws BindingError (K5) for dtypes that tensors do not support and
// for masked arrays.
HostTensor host_tensor(const py::array& array, std::string_view what);
py::array array_of(const HostTensor& host);  // copies
// Returns the MappedFile that contains these bytes, or null.
std::shared_ptr<const MappedFile> find_mapped_file(const py::buffer& raw);

// Base object for arrays that view a buffer's mapped bytes; keeps the buffer alive and open.
py::capsule make_buffer_view(const std::shared_ptr<Buffer>& buffer);

KnownSizes shape_object(const std::optional<Shape>& shape);

// Converts operator attributes from Python; None means not given. Throws GraphError for an invalid attribute value.
Attributes attributes_of(const py::dict& given);
py::object attribute_object(const AttributeValue& value);  // inverse of the above

// Python type name of a value, for messages.
std::string type_name(const py::handle& value);
// Words of a SPIR-V module. Throws ShaderCompileError if the size is not a multiple of 4.
std::vector<uint32_t> spirv_words(const py::bytes& spirv);
// Forwards the engine's log messages to the logger "pumice".
void forward_log();
// Forwards messages of debugged kernels to the logger "pumice.shader".
void log_messages(MessageLog& log);
// Reads and logs messages of debugged kernels after waiting for an execution. Throws OutOfBoundsError.
void collect_messages(Recording& recording, uint64_t id);
// Like collect(), for all finished executions of a context. Each error is thrown by only one wait.
void collect_finished_messages(Context& context);

// Waits for an execution: polls briefly with the GIL held, then releases it. Ctrl-C interrupts the wait.
void wait_for(Context& context, uint64_t id, std::optional<double> timeout_seconds);
// Called during waits without the GIL: rethrows an exception from a signal handler.
void check_signals();

}  // namespace pumice
