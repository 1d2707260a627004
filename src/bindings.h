// The parts that the bindings share: one bind_ function per engine noun, and the conversions between NumPy and the engine.
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
#include "operators/row/attributes.h"

namespace py = pybind11;

namespace pumice {

class MappedFile;
class MessageLog;
class Program;
class Recording;
struct StepReport;

// Types of Python values, as signatures and the stub name them.
using Sizes = py::typing::Tuple<int64_t, py::ellipsis>;
using KnownSizes =
    py::typing::Optional<py::typing::Tuple<py::typing::Optional<int64_t>, py::ellipsis>>;  // None for an unknown size or rank
using Arrays = py::typing::Tuple<py::array, py::ellipsis>;
using ArrayLikes = py::typing::Tuple<py::object, py::ellipsis>;  // arrays, or what numpy.asarray makes arrays of
using Record = py::typing::Dict<py::str, py::object>;

void bind_errors(py::module_& module);
void bind_core(py::module_& module);
void bind_json(py::module_& module);
void bind_context(py::module_& module);
void bind_visibility(py::module_& module);  // after bind_context()
py::class_<Buffer, std::shared_ptr<Buffer>> bind_buffer(py::module_& module);
void bind_sharing(py::module_& module, py::class_<Buffer, std::shared_ptr<Buffer>>& buffer);  // after bind_tensor()
void bind_tensor(py::module_& module);
void add_buffer_protocol(PyHeapTypeObject* type);  // for Tensor's type
void bind_dlpack(py::module_& module, py::class_<Tensor, std::shared_ptr<Tensor>>& tensor);
void add_arithmetic(py::class_<Tensor, std::shared_ptr<Tensor>>& tensor);  // Python's operators
void bind_image(py::module_& module);
void bind_shader(py::module_& module);
void bind_messages(py::module_& module);
void bind_kernel(py::module_& module);
void bind_dispatch(py::module_& module);
void bind_profile(py::module_& module);
void bind_operators(py::module_& module);
void bind_graph(py::module_& module);
void bind_program(py::module_& module);
void bind_execution(py::module_& module);  // before bind_program()
void bind_nnapi(py::module_& module);
void bind_dv(py::module_& module);
void bind_dv_packing(py::module_& module);
void bind_dv_layout(py::module_& module);
void bind_program_executions(py::class_<Program, std::shared_ptr<Program>>& program);

// The GIL is free while this lives. A daemon thread that finds the interpreter gone waits for the end of the process: Python before
// 3.14 would unwind it through code that needs the GIL. One that is still at work then is known as an open call.
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

// Releases an object of Python's, on any thread; not at all once the interpreter is gone. A thread that meets the interpreter's end here
// stays here: it would be unwound through destructors.
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

// A workgroup's size as Python gives it: a number, one to three of them, or None. Throws BindingError (K2).
using GivenLocalSize = std::variant<std::monostate, int64_t, std::vector<int64_t>>;
std::optional<LocalSize> local_size_argument(const GivenLocalSize& given);

// What the driver tells of one build of a kernel, as dicts and lists; a kernel's build of this storage, by default its plain one. Throws
// BindingError (K1) where there is no such build yet.
Record driver_record(const KernelVariant& variant);
// A step of a plan, as Program.plan gives it.
Record step_record(const StepReport& step);
std::shared_ptr<const KernelVariant> build_of(Kernel& kernel, const std::shared_ptr<const KernelVariant>& plain,
                                              const std::optional<std::string>& storage);

// A kernel bound to its arguments: one dispatch that a command list can record as often as wanted.
struct BoundKernel {
  Dispatch dispatch;
};

// A tensor at an address of the other interface, in memory that the context shares with it; none where the address is in no such memory.
std::optional<Tensor> shared_tensor_at(Context& context, uint64_t address, TensorDesc desc);
// The tensor in shared memory that another library's array of CUDA is; none for arrays of other devices. Throws UnsupportedError where the
// context does not share its memory.
std::optional<Tensor> cuda_tensor_of(const py::handle& given, std::shared_ptr<Context> context);
Shape shape_argument(const py::object& shape);  // of an integer or integers

// A packed tensor with a copy of packed host bytes.
Tensor tensor_of(const HostTensor& host, std::shared_ptr<Context> context);
// A tensor on host memory itself. `strides` in elements; the memory is writable. Throws UnsupportedError naming what is not as it has to
// be.
Tensor tensor_on(TensorDesc desc, void* address, std::shared_ptr<Context> context, std::shared_ptr<const void> owner);

// The NumPy dtype of an engine dtype (that of ml_dtypes for bfloat16 and what has few bits).
py::dtype numpy_dtype(DType dtype);
// The engine's dtype of a NumPy dtype. Throws BindingError (K5) naming `what`, the dtypes there are and the one given; big-endian dtypes
// are refused with a hint.
DType dtype_of(const py::dtype& dtype, std::string_view what);
// A dtype given as the engine's, a name ("float32") or anything that numpy.dtype takes.
DType dtype_argument(const py::object& dtype);

// The scale of a quantized tensor as Python gives it and gets it: a number, one for each channel, or None.
using Scale = std::variant<std::monostate, float, std::vector<float>>;
using GivenScale = std::variant<std::monostate, float, py::typing::Tuple<float, py::ellipsis>>;
Quantization quantization_argument(const Scale& scale, const std::optional<Integer>& zero_point,
                                   const std::optional<Integer>& channel_axis);
GivenScale scale_of(const Quantization& self);

// The bytes of a C-contiguous, aligned array of native byte order; any other array is copied to such a one.
py::array contiguous(const py::array& array);
std::span<const std::byte> bytes_of(const py::array& array);
// The bytes of a buffer for a function of this name. Throws Error where they do not lie one after the other.
std::span<const std::byte> contiguous_bytes(const py::buffer_info& info, std::string_view user);
// The bytes of an array as the engine keeps them: contiguous, elements below a byte packed two to a byte. unpacked() is the inverse.
py::array stored(const py::array& array, DType dtype);
py::array unpacked(DType dtype, const Shape& shape, std::span<const std::byte> packed);
Shape shape_of(const py::array& array);
Sizes sizes_of(std::span<const int64_t> sizes);
py::array empty_array(DType dtype, const Shape& shape);
void refuse_masked(const py::handle& array, std::string_view what);  // BindingError (K5): a mask would be lost
// Refuses (BindingError, K5) an array that elements of this dtype cannot be copied to as the engine has them.
void check_target(const py::array& array, DType dtype, const std::string& slot, const std::string& name);
// The array that NumPy makes of a value, which may be another library's. Throws BindingError (K5) with NumPy's reason where it makes none,
// and for masked arrays.
py::array array_like(const py::handle& given, std::string_view what);
// Whether a value is an array of another library: no NumPy array, and no number of NumPy's.
bool is_foreign_array(const py::handle& value);
// Keeps an object until the last owner is gone, whatever thread that is in.
std::shared_ptr<const void> keep(py::object object);
// The array's memory itself where it can be used as it is, kept alive by the HostTensor; else a copy. Throws BindingError (K5) for dtypes
// that no tensor has and for masked arrays.
HostTensor host_tensor(const py::array& array, std::string_view what);
py::array array_of(const HostTensor& host);  // a copy
// The MappedFile whose bytes these are; none for other bytes.
std::shared_ptr<const MappedFile> mapped_file_of(const py::buffer& raw);

// The base of an array that is a view of a buffer's mapped bytes: it keeps the buffer alive, and open.
py::capsule view_of(const std::shared_ptr<Buffer>& buffer);

KnownSizes shape_object(const std::optional<Shape>& shape);

// Attributes of an operator from Python values; None stands for one left out. Throws GraphError for what is no attribute.
Attributes attributes_of(const py::dict& given);
py::object attribute_object(const AttributeValue& value);  // and back

// The name of a value's Python type, for messages.
std::string type_name(const py::handle& value);
// The words of a SPIR-V module. Throws ShaderCompileError for bytes that are no whole words.
std::vector<uint32_t> words_of(const py::bytes& spirv);
// Hands the engine's log messages to the logger "pumice".
void forward_log();
// Hands messages of debugged kernels to the logger "pumice.shader".
void log_messages(MessageLog& log);
// Reads and logs the messages of the debugged kernels of an execution that was waited for. Throws OutOfBoundsError.
void collect(Recording& recording, uint64_t id);
// Does the same for all executions of a context that have finished. An error among them is raised by one wait alone.
void collect_finished(Context& context);

// Waits for an execution: polls briefly with the GIL held, then releases it; Ctrl-C interrupts.
void wait_for(Context& context, uint64_t id, std::optional<double> timeout_seconds);
// Called while waiting without the GIL: raises what a signal handler raised.
void check_signals();

}  // namespace pumice
