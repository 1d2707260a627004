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

#include "core/active_calls.h"
#include "core/tensor_desc.h"
#include "device/tensor.h"
#include "dispatch/kernel/kernel.h"
#include "integer.h"
#include "operators/table/attributes.h"

namespace py = pybind11;

namespace pumice {

class MappedFile;
class MessageLog;
class IntermediateTensorCapture;
class Program;
class Recording;
struct CapturedTensor;
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
void bind_context(py::module_& module);
void bind_device_visibility(py::module_& module);  // call after bind_context()
py::class_<Buffer, std::shared_ptr<Buffer>> bind_buffer(py::module_& module);
void bind_memory_sharing(py::module_& module, py::class_<Buffer, std::shared_ptr<Buffer>>& buffer);  // call after bind_tensor()
void bind_tensor(py::module_& module);
void add_buffer_protocol(PyHeapTypeObject* type);  // type: the Python type of Tensor
void bind_dlpack(py::module_& module, py::class_<Tensor, std::shared_ptr<Tensor>>& tensor);
void bind_arithmetic(py::class_<Tensor, std::shared_ptr<Tensor>>& tensor);  // Python operators
void bind_image(py::module_& module);
void bind_shader(py::module_& module);
void bind_messages(py::module_& module);
void bind_kernel(py::module_& module);
void bind_dispatch(py::module_& module);
void bind_profile(py::module_& module);
void bind_operators(py::module_& module);
void bind_graph(py::module_& module);
void bind_cached_graph(py::module_& module);  // call after bind_graph()
void bind_program(py::module_& module);
void bind_execution(py::module_& module);  // call before bind_program()
void bind_nnapi(py::module_& module);
void bind_dv(py::module_& module);
void bind_dv_packing(py::module_& module);
void bind_dv_layout(py::module_& module);
void bind_program_executions(py::class_<Program, std::shared_ptr<Program>>& program);

// Releases the GIL for the lifetime of this object. A daemon thread that finds the interpreter finalized blocks until the process ends,
// because Python before 3.14 would unwind it through code that needs the GIL. While the GIL is released, an ActiveCallGuard counts the
// thread as active.
class GilRelease {
 public:
  GilRelease() : call_(std::in_place), state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    call_.reset();
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) pause();
    }
  }
  GilRelease(const GilRelease&) = delete;

 private:
  std::optional<ActiveCallGuard> call_;
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

// A workgroup size: one to three numbers, or None.
using LocalSizeArgument = std::variant<std::monostate, int64_t, std::vector<int64_t>>;
// Throws BindingError (K2) for an invalid workgroup size.
std::optional<LocalSize> parse_local_size(const LocalSizeArgument& argument);

// Returns the driver's statistics for a kernel variant as dicts and lists.
Record make_driver_record(const KernelVariant& variant);
// Returns the driver's statistics under the engine's names; None for those that the driver does not report.
py::dict make_summary_record(const std::vector<PipelineExecutable>& executables);
Record make_pipeline_record(const PipelineRecord& pipeline, bool used);
// Returns a plan step in the format of Program.plan().
Record make_step_record(const StepReport& step);
// Copies a tensor that a program stores with strides to a packed array.
py::array copy_to_packed_array(const CapturedTensor& tensor);
py::typing::List<Record> make_tensor_records(const IntermediateTensorCapture& run);
// Returns the variant compiled for a storage mode, by default `fp32_variant`. Throws BindingError (K1) if it is not compiled yet.
std::shared_ptr<const KernelVariant> find_variant(Kernel& kernel, const std::shared_ptr<const KernelVariant>& fp32_variant,
                                                  const std::optional<std::string>& storage);

// A kernel with bound arguments: a dispatch that command lists can record repeatedly.
struct BoundKernel {
  Dispatch dispatch;
};

// Returns a tensor at an address in memory that the context shares with another API, such as CUDA; nullopt for any other address.
std::optional<Tensor> find_shared_tensor(Context& context, uint64_t address, TensorDesc desc);
// Returns the shared-memory tensor of a CUDA array from another library; nullopt for arrays on other devices. Throws UnsupportedError if
// the context does not share its memory.
std::optional<Tensor> find_cuda_tensor(const py::handle& object, std::shared_ptr<Context> context);
Shape parse_shape(const py::object& shape);  // accepts one integer or a sequence of integers

// Creates a packed tensor from a copy of packed host bytes.
Tensor upload_tensor(const HostTensor& host, std::shared_ptr<Context> context);
// Creates a tensor that imports writable host memory without a copy. `strides` are in elements. Throws UnsupportedError naming the unmet
// requirement.
Tensor import_host_tensor(TensorDesc desc, void* address, std::shared_ptr<Context> context, std::shared_ptr<const void> owner);

// Returns the NumPy dtype of an engine dtype (from ml_dtypes for bfloat16, fp8 and smaller).
py::dtype get_numpy_dtype(DType dtype);
// Returns the engine dtype of a NumPy dtype. Throws BindingError (K5), with a hint for big-endian dtypes. `label`: names the value in the
// error.
DType get_engine_dtype(const py::dtype& dtype, std::string_view label);
// Returns the engine dtype for a DType, a name ("float32") or anything that numpy.dtype accepts.
DType parse_dtype(const py::object& dtype);

// Quantisation scale in Python: a number, one per channel, or None.
using Scale = std::variant<std::monostate, float, std::vector<float>>;
using ScaleTuple = std::variant<std::monostate, float, py::typing::Tuple<float, py::ellipsis>>;
Quantization parse_quantization(const Scale& scale, const std::optional<Integer>& zero_point, const std::optional<Integer>& channel_axis);
ScaleTuple get_scale(const Quantization& self);

// Returns the array itself if it is C-contiguous, aligned and in native byte order, else a copy that is.
py::array make_contiguous(const py::array& array);
std::span<const std::byte> get_bytes(const py::array& array);
// Returns the bytes of a buffer passed to the function `user`. Throws Error if they are not contiguous.
std::span<const std::byte> get_contiguous_bytes(const py::buffer_info& info, std::string_view user);
// Converts an array to the engine's representation: contiguous, with sub-byte elements packed. unpack_elements() is the inverse.
py::array pack_elements(const py::array& array, DType dtype);
py::array unpack_elements(DType dtype, const Shape& shape, std::span<const std::byte> packed);
Shape get_shape(const py::array& array);
Sizes make_size_tuple(std::span<const int64_t> sizes);
py::array make_empty_array(DType dtype, const Shape& shape);
void reject_masked_array(const py::handle& array, std::string_view label);  // throws BindingError (K5): the mask would be lost
// Throws BindingError (K5) if elements of this dtype cannot be written to the array directly.
void check_output_array(const py::array& array, DType dtype, const std::string& slot, const std::string& name);
// Applies numpy.asarray to a value, which may be another library's array. Throws BindingError (K5) with NumPy's reason if that fails, and
// for masked arrays.
py::array convert_to_numpy(const py::handle& value, std::string_view label);
// Returns whether the value is another library's array, neither a NumPy array nor a NumPy scalar.
bool is_foreign_array(const py::handle& value);
// Returns an owner that keeps the object alive; it may be released on any thread.
std::shared_ptr<const void> keep_alive(py::object object);
// Returns a tensor that refers to the array's memory if it is contiguous and needs no packing, else to a copy. Throws BindingError (K5) for
// dtypes that tensors do not support and for masked arrays.
HostTensor make_host_tensor(const py::array& array, std::string_view label);
py::array copy_to_array(const HostTensor& host);  // copies the elements
// Returns the MappedFile that contains these bytes, or null.
std::shared_ptr<const MappedFile> find_mapped_file(const py::buffer& raw);

// Returns a base object for arrays that view a buffer's mapped bytes. It keeps the buffer alive and open.
py::capsule make_buffer_view(const std::shared_ptr<Buffer>& buffer);

KnownSizes make_shape_tuple(const std::optional<Shape>& shape);

// Converts operator attributes from Python; None means not given. Throws GraphError for an invalid attribute value.
Attributes parse_attributes(const py::dict& dict);
py::object make_python_attribute(const AttributeValue& value);  // inverse of parse_attributes()

// Returns the name of a value's Python type, for messages.
std::string get_type_name(const py::handle& value);
// Returns the words of a SPIR-V module. Throws ShaderCompileError if the size is not a multiple of 4.
std::vector<uint32_t> parse_spirv_words(const py::bytes& spirv);
// Warns that a public name is deprecated; old_name: the key in pumice.base.deprecation.RENAMED. Needs the GIL.
void warn_renamed(std::string_view old_name);
// Returns the current name of an operator or fusion; warns if `name` is a deprecated name. Needs the GIL.
std::string_view replace_deprecated_name(std::string_view name);

// Forwards the engine's log messages to the logger "pumice".
void forward_log();
// Forwards messages of debugged kernels to the logger "pumice.shader".
void log_messages(MessageLog& log);
// Reads and logs messages of debugged kernels after waiting for an execution. Throws OutOfBoundsError.
void collect_messages(Recording& recording, uint64_t id);
// Like collect_messages(), for all finished executions of a context. Each error is thrown by only one wait.
void collect_finished_messages(Context& context);

// Waits for an execution: polls briefly with the GIL held, then releases it. Ctrl-C interrupts the wait.
void wait_for_execution(Context& context, uint64_t id, std::optional<double> timeout_seconds);
// Runs Python's signal handlers and throws their exception. Called during waits without the GIL.
void check_signals();

}  // namespace pumice
