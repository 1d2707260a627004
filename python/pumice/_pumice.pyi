"""
The pumice engine: compute kernels and neural networks on any Vulkan device.
"""
from __future__ import annotations
import builtins
import collections.abc
import numpy as np
import numpy.typing
import typing
__all__: list[str] = ['AttributeSchema', 'BindingError', 'BindingProperties', 'BindingTable', 'BoundKernel', 'Buffer', 'BufferRange', 'Burst', 'CacheState', 'CommandList', 'CompileCounts', 'CompiledOperator', 'Context', 'DeviceError', 'DeviceInfo', 'DeviceLostError', 'DispatchTime', 'Dispatchable', 'DriverQuirk', 'DvCommandList', 'DvContext', 'DvMemory', 'Error', 'Event', 'Execution', 'Expression', 'Graph', 'GraphError', 'Image', 'IndexRangeError', 'Initializer', 'Kernel', 'MappedFile', 'MatrixShape', 'MemoryCounts', 'Message', 'NnapiOperand', 'NnapiOperation', 'Node', 'Operator', 'OperatorRow', 'OutOfBoundsError', 'OutOfMemoryError', 'OutputSizeError', 'PrecisionSupport', 'Program', 'ProgramRun', 'ProgramValue', 'Shader', 'ShaderCompileError', 'ShaderOptions', 'SharedTimeline', 'Slot', 'StateError', 'Submission', 'Tensor', 'TensorDesc', 'TimeoutError', 'UnpackedWeights', 'UnsupportedError', 'UploadMemory', 'Value', 'ValueRole', 'another_context', 'begin_order', 'binding_rules', 'buffer_size', 'build_cached_graph', 'cache_directory', 'cache_entries', 'cache_state', 'choose_device', 'compile', 'compile_counts', 'device_list', 'device_macros', 'devices', 'distinct_pipelines', 'dv_constants', 'dv_required_bytes', 'dv_run_outputs', 'dv_structures', 'dv_total_size', 'dv_version_string', 'embedded_shader', 'embedded_shaders', 'empty', 'empty_host', 'empty_shared', 'end_order', 'evaluate_on_host', 'forward_log', 'from_dlpack', 'from_host', 'from_whc8', 'fusions', 'glslang_accepts', 'glslang_version', 'graph_rules', 'has_operator', 'included_files', 'keep_spare', 'log_pipelines', 'lose_device_after', 'nnapi_operations', 'nnapi_rules', 'onnx_skeleton', 'operators', 'output_descs', 'pack_conv_weights', 'pack_dil_weights', 'pack_fc_weights', 'precision_support', 'prune_cache', 'quantize_weights', 'read_cache_entry', 'reflect', 'sha256', 'shared_tensor', 'simulate_spills', 'strides', 'summarize_statistics', 'take_log', 'take_spare', 'take_validation_messages', 'tensor', 'to_whc8', 'unpack_conv_weights', 'unpack_dil_weights', 'unpack_fc_weights', 'visible_places', 'whc8_index', 'write_cache_entry']
class Error(Exception):
    """
    Base class of all pumice errors.
    """
class DeviceError(Error):
    """
    A Vulkan call failed, or there is no loader, driver or matching device.
    """
class DeviceLostError(DeviceError):
    """
    The device was lost. Create a new Context to continue.
    """
class OutOfMemoryError(DeviceError, MemoryError):
    """
    Device memory ran out. The message gives the requested bytes, their purpose and the heap's budget.
    """
class ShaderCompileError(Error, ValueError):
    """
    The shader source does not compile. The message has the file, the line with a caret, and the error.
    """
    messages: collections.abc.Sequence[str]
class BindingError(Error, ValueError):
    """
    A binding or argument is invalid. Attributes: rule, slot, tensor, expected, given.
    """
    expected: str
    given: str
    rule: str
    slot: str
    tensor: str
class GraphError(Error, ValueError):
    """
    A graph or a model file violates a rule. Attributes: node, rule.
    """
    node: str
    rule: str
class UnsupportedError(Error, NotImplementedError):
    """
    Something is not supported. Attribute: items, everything that is unsupported.
    """
    items: collections.abc.Sequence[str]
class StateError(Error, RuntimeError):
    """
    A call in the wrong state, such as use after close or recording into a committed list. Attribute: rule.
    """
    rule: str
class OutputSizeError(Error, ValueError):
    """
    The array given for an output is too small. Attributes: output (its name) and shape (the actual one).
    """
    output: str
    shape: collections.abc.Sequence[str]
class OutOfBoundsError(Error, IndexError):
    """
    A kernel with debug=True accessed a buffer out of bounds. Attributes of the first access: kernel, file, line, buffer, index, size, invocation; count: number of accesses.
    """
    buffer: str
    count: int
    file: str
    index: int
    invocation: tuple[int, int, int]
    kernel: str
    line: int
    size: int
class IndexRangeError(Error, IndexError):
    """
    An index was out of range in a program compiled with check_indices=True or in an NNAPI operation. Attributes of the first one: node, value (name of the indices), index, element; count: number of such indices.
    """
    count: int
    element: collections.abc.Sequence[str]
    index: int
    node: str
    value: str
class MappedFile:
    """
    A file as read-only bytes, loaded on demand.
    """
    def __init__(self, descriptor: typing.SupportsInt | typing.SupportsIndex, name: str) -> None:
        """
        descriptor: an open regular file; may be closed afterwards.
        name: name of the file in error messages.
        Raise Error if it cannot be mapped.
        """
    def view(self) -> memoryview:
        """
        Return a read-only view of the file's bytes, without a copy.
        """
class TensorDesc:
    """
    Memory layout of a tensor: dtype, shape, strides in elements. An immutable value: comparable, hashable and picklable.
    """
    @staticmethod
    def _repr_html_(obj: typing.Any) -> str:
        ...
    @staticmethod
    def with_layout(dtype: typing.Any, shape: collections.abc.Sequence[typing.SupportsIndex], layout: str, broadcast: collections.abc.Sequence[bool] = []) -> TensorDesc:
        """
        Return a TensorDesc with the strides that pumice.strides computes for the layout. Raise GraphError.
        """
    def __eq__(self, other: object) -> bool:
        ...
    def __getstate__(self) -> tuple[typing.Any, ...]:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, dtype: typing.Any, shape: collections.abc.Sequence[typing.SupportsIndex], strides: collections.abc.Sequence[typing.SupportsIndex] | None = None, owned: bool = False, alignment: typing.SupportsIndex = 0, scale: None | typing.SupportsFloat | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] = None, zero_point: typing.SupportsIndex | None = None, channel_axis: typing.SupportsIndex | None = None, total_bytes: typing.SupportsIndex | None = None) -> None:
        """
        shape, strides: in elements. Strides default to packed row-major; a stride of 0 broadcasts.
        owned: bound at initialisation only.
        alignment: guaranteed alignment of the base offset, in bytes.
        scale, zero_point: quantisation; scale is a number, or one per channel of channel_axis.
        total_bytes: size of the whole tensor including trailing padding; None: the range that shape and strides cover.
        Raise GraphError (R4, R5, R6, R8).
        """
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple[typing.Any, ...]) -> None:
        ...
    def broadcast_to(self, shape: collections.abc.Sequence[typing.SupportsIndex]) -> TensorDesc:
        """
        Return a TensorDesc broadcast to this shape like numpy.broadcast_to; new axes have stride 0. Raise GraphError.
        """
    def packed(self) -> TensorDesc:
        """
        Return a TensorDesc of the same shape with packed strides.
        """
    def packed_strides(self) -> tuple[int, ...]:
        ...
    def pad_rows(self, multiple: typing.SupportsIndex) -> TensorDesc:
        """
        Return a TensorDesc with the same axis order, repacked with its rows (the innermost axis in memory) padded to a multiple of this many elements.
        """
    def permute(self, axes: collections.abc.Sequence[typing.SupportsIndex]) -> TensorDesc:
        """
        Return a TensorDesc with permuted axes like numpy.transpose; negative axes count from the end. Raise GraphError.
        """
    @property
    def alignment(self) -> int:
        ...
    @property
    def bytes(self) -> int:
        """
        Size in bytes: total_bytes if given, or else from element 0 to the last element reached, rounded up to 4; 0 if any size is 0.
        """
    @property
    def channel_axis(self) -> int | None:
        ...
    @property
    def dtype(self) -> str:
        ...
    @property
    def elements(self) -> int:
        ...
    @property
    def is_packed(self) -> bool:
        """
        Whether the strides are row-major without gaps; the strides of axes of size 1 do not matter.
        """
    @property
    def layout(self) -> str | None:
        """
        The layout name for which pumice.strides gives these strides, with axes of stride 0 as broadcast; None if there is none.
        """
    @property
    def overlaps(self) -> bool:
        """
        Whether two indices share an element (rule R9).
        """
    @property
    def owned(self) -> bool:
        ...
    @property
    def physical_shape(self) -> tuple[int, ...]:
        """
        The shape in memory, where axes of stride 0 have size 1.
        """
    @property
    def rank(self) -> int:
        ...
    @property
    def required_alignment(self) -> int:
        """
        Required alignment of the tensor's bound offset in bytes (rule R3).
        """
    @property
    def scale(self) -> None | float | tuple[float, ...]:
        ...
    @property
    def shape(self) -> tuple[int, ...]:
        ...
    @property
    def strides(self) -> tuple[int, ...]:
        ...
    @property
    def zero_point(self) -> int | None:
        ...
class CacheState:
    """
    The on-disk cache of shaders, pipelines, graphs and measurements.
    """
    def __repr__(self) -> str:
        ...
    @property
    def bytes(self) -> int:
        """
        Disk space used by the entries, in bytes.
        """
    @property
    def files(self) -> int:
        """
        Number of entries. Files that pumice has not written do not count.
        """
    @property
    def folder(self) -> str:
        ...
    @property
    def limit(self) -> int:
        """
        Maximum size in bytes, set by PUMICE_CACHE_MB. Beyond it, the least recently used entries are removed.
        """
class MatrixShape:
    """
    A cooperative matrix shape at subgroup scope: [m, k] x [k, n] -> [m, n].
    """
    def __eq__(self, other: object) -> bool:
        ...
    def __getstate__(self) -> tuple[typing.Any, ...]:
        ...
    def __hash__(self) -> int:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple[typing.Any, ...]) -> None:
        ...
    @property
    def a(self) -> str:
        ...
    @property
    def b(self) -> str:
        ...
    @property
    def c(self) -> str:
        ...
    @property
    def k(self) -> int:
        ...
    @property
    def m(self) -> int:
        ...
    @property
    def n(self) -> int:
        ...
    @property
    def result(self) -> str:
        ...
class DeviceInfo:
    """
    Identity, kind, features and limits of a Vulkan device. A value: comparable, hashable and picklable.
    """
    @staticmethod
    def _repr_html_(obj: typing.Any) -> str:
        ...
    def __eq__(self, other: object) -> bool:
        ...
    def __getstate__(self) -> tuple[typing.Any, ...]:
        ...
    def __hash__(self) -> int:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple[typing.Any, ...]) -> None:
        ...
    @property
    def api_version(self) -> str:
        """
        Vulkan version, 'major.minor.patch'.
        """
    @property
    def device_id(self) -> int:
        ...
    @property
    def driver(self) -> str:
        ...
    @property
    def driver_id(self) -> int:
        """
        VkDriverId of the driver.
        """
    @property
    def driver_info(self) -> str:
        ...
    @property
    def driver_version(self) -> int:
        ...
    @property
    def extensions(self) -> dict[str, int]:
        """
        Vulkan extension names -> spec versions.
        """
    @property
    def features(self) -> dict[str, bool]:
        """
        Vulkan feature names -> whether available.
        """
    @property
    def index(self) -> int:
        """
        Index of the device in devices(); -1 if the environment hides the device.
        """
    @property
    def kind(self) -> str:
        """
        'discrete', 'integrated', 'virtual', 'software' or 'other'.
        """
    @property
    def limits(self) -> dict[str, int]:
        """
        Vulkan limit names -> values; arrays are named name_0, name_1, ...
        """
    @property
    def matrices(self) -> list[MatrixShape]:
        """
        Supported cooperative matrix shapes; empty if there are none.
        """
    @property
    def memory_bytes(self) -> int:
        """
        Size of the largest device-local heap in bytes.
        """
    @property
    def name(self) -> str:
        ...
    @property
    def pci(self) -> str:
        """
        PCI address ('0000:3b:00.0'); empty if unknown.
        """
    @property
    def restrictions(self) -> str:
        """
        What PUMICE_LIMITS and PUMICE_WITHOUT take from the device, as text; empty if neither is set.
        """
    @property
    def uuid(self) -> str:
        """
        UUID of the device, 32 hexadecimal digits, stable across processes.
        """
    @property
    def vendor_id(self) -> int:
        ...
class DriverQuirk:
    """
    A driver behaviour that deviates from the Vulkan specification or that the engine has to work around.
    """
    def __repr__(self) -> str:
        ...
    @property
    def answer(self) -> str:
        ...
    @property
    def detected(self) -> bool:
        """
        Whether a trial on this driver detected the quirk. If not, the driver is known to have it, or the `quirks` argument of Context names it.
        """
    @property
    def name(self) -> str:
        ...
    @property
    def shown(self) -> bool:
        ...
    @property
    def summary(self) -> str:
        """
        One sentence: what the driver does.
        """
    @property
    def test(self) -> str:
        """
        The test that demonstrates the quirk.
        """
    @property
    def workaround(self) -> str:
        """
        One sentence: how the engine works around it.
        """
class MemoryCounts:
    """
    Device memory in use by a Context.
    """
    @property
    def block_bytes(self) -> int:
        ...
    @property
    def blocks(self) -> int:
        ...
    @property
    def buffer_bytes(self) -> int:
        ...
    @property
    def buffers(self) -> int:
        ...
    @property
    def image_bytes(self) -> int:
        ...
    @property
    def images(self) -> int:
        ...
class Context:
    """
    A logical device with its queue, timeline, allocator and features. Thread-safe. Also a context manager.
    """
    @staticmethod
    def _repr_html_(obj: typing.Any) -> str:
        ...
    def __enter__(self) -> Context:
        ...
    def __exit__(self, *args: typing.Any) -> None:
        ...
    @typing.overload
    def __init__(self, device: str = '', without: collections.abc.Sequence[str] = [], limits: collections.abc.Mapping[str, typing.SupportsInt | typing.SupportsIndex] = {}, quirks: collections.abc.Sequence[str] = [], compile_only: bool = False) -> None:
        """
        Open a device.
        device: '' (PUMICE_DEVICE, or else the best device), 'uuid:...', 'pci:...', an index, a kind ('discrete', 'software') or part of a name.
        without: features and extensions to disable, to test fallbacks.
        limits: Vulkan limit names -> values to use instead of the device's, to test less capable devices; 'maxComputeWorkGroupCount' sets all three axes, 'maxComputeWorkGroupCount_1' one of them.
        quirks: names of DriverQuirks to assume, to test their workarounds.
        compile_only: compile and record everything, but execute nothing; reading a result raises UnsupportedError. The driver trial does not run, and the driver may be one without its hardware. PUMICE_COMPILE_ONLY=1 sets it for all contexts.
        Raise DeviceError with the list of devices if none matches. Raise UnsupportedError for names that the engine does not use, and for limits that the device does not have.
        """
    @typing.overload
    def __init__(self, index: typing.SupportsIndex) -> None:
        """
        Open the device at this index of devices().
        """
    def __repr__(self) -> str:
        ...
    def close(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Wait for the work in flight and free the device. Idempotent.
        timeout: abandon the context if no execution finishes for this many seconds (None: `patience`); this is logged as an error to the logger "pumice". Ctrl-C interrupts the wait and leaves the context open.
        """
    def feature(self, name: str) -> bool:
        """
        Return whether a Vulkan feature is enabled.
        """
    def limit(self, name: str) -> int:
        """
        Return a Vulkan limit by name.
        """
    def require_execution(self, result: str) -> None:
        """
        Raise UnsupportedError in a compile-only context, naming the result that it does not have.
        """
    def wait(self, id: typing.SupportsIndex, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Wait for the execution with this id.
        timeout: in seconds.
        Raise StateError (L7) if no execution has this id, TimeoutError, DeviceLostError, OutOfBoundsError.
        """
    def wait_idle(self) -> None:
        """
        Wait for all work submitted so far. Raise DeviceLostError, or OutOfBoundsError if a debugged kernel failed in an execution and no wait has raised that yet.
        """
    @property
    def abandoned(self) -> bool:
        """
        Whether close() gave up on an execution that did not finish. Memory that the device may still use is then never freed, and device calls raise DeviceLostError.
        """
    @property
    def choice(self) -> str:
        """
        Why this device was chosen.
        """
    @property
    def closed(self) -> bool:
        ...
    @property
    def compile_only(self) -> bool:
        """
        Whether this context only compiles and records.
        """
    @property
    def completed(self) -> int:
        """
        Id of the last execution that finished.
        """
    @property
    def driver_quirks(self) -> list[DriverQuirk]:
        """
        The DriverQuirks of this driver. Runs the driver trial if it has not run yet; never in a compile-only context.
        """
    @property
    def info(self) -> DeviceInfo:
        """
        The device, with the features enabled in this context.
        """
    @property
    def memory(self) -> MemoryCounts:
        """
        Counts of live buffers, images and device allocations.
        """
    @property
    def patience(self) -> float:
        """
        Seconds without a finished execution after which close() and process exit abandon the context: PUMICE_ABANDON_SECONDS (default 30) plus the longest execution waited for so far.
        """
    @property
    def pipelines(self) -> list[dict[str, typing.Any]]:
        """
        The pipelines of a compile-only context in order of creation: kernel, key, storage, local_size, constants, used (whether a recording dispatches it; others are rejected variants), compile_seconds, failure, the driver's `executables`, and their `summary`. Empty in other contexts.
        """
    @property
    def pipelines_created(self) -> int:
        ...
    @property
    def submitted(self) -> int:
        """
        Id of the last execution that was submitted.
        """
    @property
    def without(self) -> list[str]:
        """
        The features and extensions disabled in this context.
        """
class Buffer:
    """
    A byte range of device memory. Also a context manager.
    """
    def __enter__(self) -> Buffer:
        ...
    def __exit__(self, *args: typing.Any) -> None:
        ...
    def __init__(self, context: Context, bytes: typing.SupportsIndex, heap: str = 'default') -> None:
        """
        Allocate memory with undefined content.
        bytes: size in bytes.
        heap: 'default' (device memory), 'upload' (written by the host) or 'readback' (read by the host).
        Raise OutOfMemoryError, or BindingError (M5) if the size is negative.
        """
    def __repr__(self) -> str:
        ...
    def _export_memory(self) -> int:
        """
        Return a new file descriptor for a shared buffer's memory, owned by the caller.
        """
    def _set_mapping(self, address: typing.SupportsInt | typing.SupportsIndex, device: typing.SupportsInt | typing.SupportsIndex, owner: typing.Any) -> None:
        """
        Set the buffer's address and device index in the other API. Keep `owner` alive as long as the memory.
        """
    def close(self) -> None:
        """
        Free the memory once the work in flight has finished. Idempotent.
        """
    def map(self) -> np.typing.NDArray[np.uint8]:
        """
        Map the whole buffer and return it as a uint8 NumPy array, without a copy. Raise StateError if the memory is not host-visible.
        """
    def sync_end(self) -> None:
        ...
    def sync_start(self, read: bool = True, write: bool = True) -> None:
        """
        Begin host access. If `read`, wait for all work submitted so far.
        """
    def unmap(self) -> None:
        """
        End host access. Idempotent.
        """
    @property
    def _allocated_bytes(self) -> int:
        """
        Allocation size in bytes, required for the import.
        """
    @property
    def _mapping(self) -> tuple[int, int] | None:
        """
        The (address, device index) of a shared buffer in the other API; None for other buffers.
        """
    @property
    def _views(self) -> int:
        """
        Number of external arrays that view the buffer's memory and keep it alive.
        """
    @property
    def bytes(self) -> int:
        ...
    @property
    def closed(self) -> bool:
        ...
    @property
    def context(self) -> Context:
        ...
    @property
    def heap(self) -> str:
        ...
    @property
    def id(self) -> int:
        """
        The buffer's number in error messages.
        """
    @property
    def mappable(self) -> bool:
        ...
    @property
    def mapped(self) -> bool:
        ...
class BufferRange:
    """
    A byte range of a buffer.
    """
    def __init__(self, buffer: Buffer, offset: typing.SupportsIndex = 0, bytes: typing.SupportsIndex | None = None) -> None:
        """
        offset, bytes: in bytes; bytes=None extends to the end of the buffer. The range is checked against the buffer when it is bound.
        Raise BindingError (R1) if either is negative.
        """
    def __repr__(self) -> str:
        ...
    @property
    def buffer(self) -> Buffer:
        ...
    @property
    def bytes(self) -> int:
        ...
    @property
    def offset(self) -> int:
        ...
class Tensor:
    """
    A TensorDesc and the buffer with its elements. Views share the buffer and keep it alive. While the buffer is mapped, the buffer protocol exposes its memory. Arithmetic, comparison and bitwise operators follow NumPy: they run on the device, broadcast, and return a new Tensor of NumPy's result dtype; Python numbers adopt the tensor's dtype. == compares elementwise and returns a bool Tensor, so tensors are not hashable.
    """
    __array_priority__: typing.ClassVar[float] = 1000.0
    __hash__: typing.ClassVar[None]  # type: ignore[assignment]
    @staticmethod
    def _repr_html_(obj: typing.Any) -> str:
        ...
    def __abs__(self) -> Tensor:
        ...
    def __add__(self, arg0: typing.Any) -> Tensor:
        ...
    def __and__(self, arg0: typing.Any) -> Tensor:
        ...
    def __array__(self, dtype: typing.Any = None, copy: typing.Any = None) -> typing.Any:
        """
        Return the elements as numpy() does, converted to dtype on the host. Raise ValueError for copy=False.
        """
    def __bool__(self) -> bool:
        ...
    def __contains__(self, value: typing.Any) -> bool:
        ...
    def __divmod__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __dlpack__(self, *, stream: typing.Any = None, max_version: tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex] | None = None, dl_device: tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex] | None = None, copy: bool | None = None) -> typing.Any:
        """
        Return a DLPack capsule with the elements as a CPU array, after waiting for the work submitted so far. It shares the tensor's memory if that is host-visible and copy is not True, or else contains a copy. The capsule is versioned for max_version >= 1.
        Tensors created with empty(share="cuda") are exported as CUDA arrays; stream=-1 skips the wait.
        Raise BufferError for other devices, streams and 4-bit dtypes, and for copy=False if a copy is needed.
        """
    def __dlpack_device__(self) -> tuple[int, int]:
        """
        Return (1, 0), the CPU, or (2, index) for memory shared with a CUDA device.
        """
    def __eq__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __float__(self) -> float:
        ...
    def __floordiv__(self, arg0: typing.Any) -> Tensor:
        ...
    def __ge__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __getitem__(self, key: typing.Any) -> Tensor:
        """
        Return a view: integers drop an axis, slices with positive steps keep it, None adds one. Raise IndexError, or GraphError for arrays and negative steps.
        """
    def __gt__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __iadd__(self, arg0: typing.Any) -> Tensor:
        ...
    def __iand__(self, arg0: typing.Any) -> Tensor:
        ...
    def __ifloordiv__(self, arg0: typing.Any) -> Tensor:
        ...
    def __ilshift__(self, arg0: typing.Any) -> Tensor:
        ...
    def __imod__(self, arg0: typing.Any) -> Tensor:
        ...
    def __imul__(self, arg0: typing.Any) -> Tensor:
        ...
    def __init__(self, desc: TensorDesc, buffer: Buffer, offset: typing.SupportsIndex = 0) -> None:
        """
        offset: offset of the first element in the buffer, in elements.
        Raise BindingError (R1) if the buffer is too small.
        """
    def __int__(self) -> int:
        ...
    def __invert__(self) -> Tensor:
        ...
    def __ior__(self, arg0: typing.Any) -> Tensor:
        ...
    def __ipow__(self, arg0: typing.Any) -> Tensor:
        ...
    def __irshift__(self, arg0: typing.Any) -> Tensor:
        ...
    def __isub__(self, arg0: typing.Any) -> Tensor:
        ...
    def __iter__(self) -> collections.abc.Iterator[Tensor]:
        ...
    def __itruediv__(self, arg0: typing.Any) -> Tensor:
        ...
    def __ixor__(self, arg0: typing.Any) -> Tensor:
        ...
    def __le__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __len__(self) -> int:
        ...
    def __lshift__(self, arg0: typing.Any) -> Tensor:
        ...
    def __lt__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __mod__(self, arg0: typing.Any) -> Tensor:
        ...
    def __mul__(self, arg0: typing.Any) -> Tensor:
        ...
    def __ne__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __neg__(self) -> Tensor:
        ...
    def __or__(self, arg0: typing.Any) -> Tensor:
        ...
    def __pos__(self) -> Tensor:
        ...
    def __pow__(self, arg0: typing.Any) -> Tensor:
        ...
    def __radd__(self, arg0: typing.Any) -> Tensor:
        ...
    def __rand__(self, arg0: typing.Any) -> Tensor:
        ...
    def __rdivmod__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __repr__(self) -> str:
        ...
    def __rfloordiv__(self, arg0: typing.Any) -> Tensor:
        ...
    def __rlshift__(self, arg0: typing.Any) -> Tensor:
        ...
    def __rmod__(self, arg0: typing.Any) -> Tensor:
        ...
    def __rmul__(self, arg0: typing.Any) -> Tensor:
        ...
    def __ror__(self, arg0: typing.Any) -> Tensor:
        ...
    def __rpow__(self, arg0: typing.Any) -> Tensor:
        ...
    def __rrshift__(self, arg0: typing.Any) -> Tensor:
        ...
    def __rshift__(self, arg0: typing.Any) -> Tensor:
        ...
    def __rsub__(self, arg0: typing.Any) -> Tensor:
        ...
    def __rtruediv__(self, arg0: typing.Any) -> Tensor:
        ...
    def __rxor__(self, arg0: typing.Any) -> Tensor:
        ...
    def __setitem__(self, key: typing.Any, value: typing.Any) -> None:
        """
        Overwrite the elements of the view [key] with a number, or with a broadcastable array or Tensor of the same dtype. Raise the errors of upload and fill.
        """
    def __sub__(self, arg0: typing.Any) -> Tensor:
        ...
    def __truediv__(self, arg0: typing.Any) -> Tensor:
        ...
    def __xor__(self, arg0: typing.Any) -> Tensor:
        ...
    def all(self) -> bool:
        """
        Return whether all elements are nonzero; True if there are no elements.
        """
    def any(self) -> bool:
        """
        Return whether any element is nonzero; False if there are no elements.
        """
    def broadcast_to(self, shape: collections.abc.Sequence[typing.SupportsIndex]) -> Tensor:
        """
        Return a view with strides of 0, like numpy.broadcast_to. Raise GraphError.
        """
    def contiguous(self) -> Tensor:
        """
        Return the tensor itself if is_contiguous, otherwise a copy.
        """
    def copy(self) -> Tensor:
        """
        Return a packed copy in new memory, made on the device (4-bit dtypes: via the host).
        """
    def expand_dims(self, axis: typing.SupportsIndex) -> Tensor:
        """
        Return a view with a new axis of size 1 at this index. Raise GraphError.
        """
    def fill(self, value: typing.Any) -> None:
        """
        Set all elements to a number. Raise BindingError (K6) if it is not representable in an integer dtype.
        """
    def item(self) -> typing.Any:
        """
        Return the only element as a Python number. Raise BindingError (K5) unless there is exactly one.
        """
    def numpy(self, out: np.typing.NDArray[typing.Any] | None = None) -> np.typing.NDArray[typing.Any]:
        """
        Return the elements as a row-major NumPy array, after waiting for the work submitted so far. Types that NumPy lacks use ml_dtypes.
        out: a writable C-contiguous array of the same dtype and shape; None: a new array.
        Raise BindingError (K5) if `out` does not match.
        """
    def reshape(self, shape: typing.Any) -> Tensor:
        """
        Return a view of another shape, in which one size may be -1. Raise GraphError if elements would have to move.
        """
    def squeeze(self, axis: typing.SupportsIndex | collections.abc.Sequence[typing.SupportsIndex] | None = None) -> Tensor:
        """
        Return a view without the given axes of size 1, by default all. Raise GraphError.
        """
    def to(self, dtype: typing.Any) -> Tensor:
        """
        Return a packed copy of another dtype, converted on the device like the Cast operator: floats round to nearest even. Return the tensor itself if it already has the dtype. Raise UnsupportedError naming a dtype that Cast does not support.
        """
    def tolist(self) -> typing.Any:
        """
        Return the elements as nested lists of Python numbers.
        """
    def transpose(self, axes: collections.abc.Sequence[typing.SupportsIndex] | None = None) -> Tensor:
        """
        Return a view with permuted axes; without `axes`, reversed.
        """
    def upload(self, array: np.typing.NDArray[typing.Any]) -> None:
        """
        Overwrite the elements after the work submitted so far.
        array: same dtype and shape, any strides and byte order.
        Raise BindingError (K5), GraphError if elements of this view share memory, UnsupportedError for strided 4-bit views.
        """
    @property
    def T(self) -> Tensor:
        """
        A view with reversed axes.
        """
    @property
    def buffer(self) -> Buffer:
        ...
    @property
    def context(self) -> Context:
        ...
    @property
    def desc(self) -> TensorDesc:
        ...
    @property
    def dtype(self) -> np.dtype[typing.Any]:
        ...
    @property
    def is_contiguous(self) -> bool:
        """
        Whether the elements are row-major and start at an offset that all kernels support; .contiguous() then returns the tensor itself.
        """
    @property
    def nbytes(self) -> int:
        """
        Bytes of all elements, without gaps.
        """
    @property
    def ndim(self) -> int:
        ...
    @property
    def offset(self) -> int:
        """
        Offset of the first element in the buffer, in elements.
        """
    @property
    def shape(self) -> tuple[int, ...]:
        ...
    @property
    def size(self) -> int:
        ...
    @property
    def strides(self) -> tuple[int, ...]:
        """
        Strides in elements.
        """
class SharedTimeline:
    """
    A timeline semaphore that another API can import by file descriptor.
    """
    def __init__(self, context: Context) -> None:
        """
        Raise UnsupportedError naming the missing feature.
        """
    def export_semaphore(self) -> int:
        """
        Return a new file descriptor, owned by the caller.
        """
    @property
    def value(self) -> int:
        ...
class Image:
    """
    Texels in device memory, for the image arguments of kernels. Also a context manager.
    """
    def __array__(self, dtype: typing.Any = None, copy: typing.Any = None) -> typing.Any:
        ...
    def __enter__(self) -> Image:
        ...
    def __exit__(self, *args: typing.Any) -> None:
        ...
    def __init__(self, context: Context, format: typing.Any, shape: typing.Any, *, filter: typing.Any = 'nearest', address: typing.Any = 'clamp', normalized: typing.Any = None) -> None:
        """
        Create an image with undefined content.
        format: in GLSL's notation. Floats: 'r32f', 'rg32f', 'rgba32f', 'r16f', 'rg16f', 'rgba16f'. Normalised bytes, floats from 0 to 1 in shaders: 'r8', 'rg8', 'rgba8'. Integers: 'r32ui', 'rg32ui', 'rgba32ui', 'r16ui', 'r8ui', 'rgba8ui', 'r32i', 'rg32i', 'rgba32i', 'r16i', 'r8i'.
        shape: [width], [height, width] or [depth, height, width], with 2 or 4 channels last for rg and rgba formats. Shaders use coordinates (x, y, z) = (width, height, depth).
        filter: 'nearest' or 'linear'.
        address: 'clamp', 'repeat' or 'border' (zeros).
        normalized: whether sampler coordinates are 0 to 1 instead of texels; None: texels if possible, that is for 1D and 2D images without 'repeat'.
        These sampler settings apply to texture functions, not to texelFetch and storage images.
        Raise UnsupportedError for what the device does not support, OutOfMemoryError.
        """
    def __repr__(self) -> str:
        ...
    def close(self) -> None:
        """
        Free the memory once the work in flight has finished. Idempotent.
        """
    def numpy(self) -> np.typing.NDArray[typing.Any]:
        """
        Return a copy of the texels in the shape of the image, after waiting for the work submitted so far.
        """
    def upload(self, array: np.typing.NDArray[typing.Any]) -> None:
        """
        Overwrite the texels after the work submitted so far. The array must have the same shape and exactly convertible elements. Raise BindingError.
        """
    @property
    def address(self) -> str:
        ...
    @property
    def closed(self) -> bool:
        ...
    @property
    def context(self) -> Context:
        ...
    @property
    def dimensions(self) -> int:
        """
        Number of axes without the channels, 1 to 3.
        """
    @property
    def dtype(self) -> np.dtype[typing.Any]:
        ...
    @property
    def filter(self) -> str:
        ...
    @property
    def format(self) -> str:
        ...
    @property
    def normalized(self) -> bool:
        ...
    @property
    def shape(self) -> tuple[int, ...]:
        ...
class ShaderOptions:
    """
    The compilation target of a shader. Explicit data, so that compiling needs no GPU.
    """
    __hash__: typing.ClassVar[None]  # type: ignore[assignment]
    def __eq__(self, other: object) -> bool:
        ...
    def __init__(self, *, storage: str = 'fp32', fp16_arithmetic: bool = False, fp16_uniform: bool = False, int8_storage: bool = False, int8_packed: bool = False, int8_arithmetic: bool = False, int8_uniform: bool = False, int16_storage: bool = False, int16_packed: bool = False, shader_local_memory: bool = False, generation: str = 'current', image_storage: bool = False, subgroup: collections.abc.Set[str] = set(), int64: bool = True, int16: bool = True, int8: bool = True, storage_16bit: bool = True, fp16_rounds_to_even: bool = False, vulkan_minor: typing.SupportsInt | typing.SupportsIndex = 1, profile: collections.abc.Mapping[str, str] = {}, debug: bool = False, guard: bool = True) -> None:
        """
        storage: 'fp32', 'fp16', 'fp16_packed', 'bf16' or 'bf16_packed'.
        fp16_arithmetic: afp is fp16.
        fp16_uniform: lfp is fp16 too.
        int8_*, int16_*: the integer families; _storage takes precedence over _packed.
        generation: 'current', or '2024' with images, pack8 and sfp2lfp, where the sfp of packed storage is a 4-byte float (currently two elements share a word).
        image_storage, subgroup: for generation '2024'; subgroup: 'basic', 'vote', 'ballot', 'shuffle'.
        int64 to fp16_rounds_to_even: device capabilities.
        vulkan_minor: the target, Vulkan 1.x.
        profile: device macros, name -> text.
        debug: check accesses, as with Kernel(debug=True).
        guard: False compiles a source without a local size as is, without the engine's push constants. It then checks its own bounds and is launched in whole workgroups, of one invocation unless local_size= is given.
        """
    def __repr__(self) -> str:
        ...
    @property
    def generation(self) -> str:
        ...
    @property
    def preamble(self) -> str:
        """
        The complete GLSL extension source for these options; a shader gets only the parts that it uses.
        """
    @property
    def profile(self) -> dict[str, str]:
        ...
    @property
    def storage(self) -> str:
        ...
class Shader:
    """
    A compiled shader and its interface, reflected from the SPIR-V.
    """
    @staticmethod
    def _repr_html_(obj: typing.Any) -> str:
        ...
    def __repr__(self) -> str:
        ...
    def disassemble(self) -> str:
        """
        Return the SPIR-V disassembly.
        """
    @property
    def interface(self) -> dict[str, typing.Any]:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def options(self) -> ShaderOptions:
        ...
    @property
    def preamble(self) -> str:
        """
        The source prepended to the shader's own.
        """
    @property
    def report(self) -> dict[str, str]:
        """
        Device macros of the profile withheld from the shader because the shader compiler lacks their GLSL extension: macro -> reason.
        """
    @property
    def spirv(self) -> bytes:
        ...
    @property
    def warnings(self) -> list[str]:
        ...
class CompileCounts:
    """
    Numbers of shaders that this process compiled or found in the caches.
    """
    @property
    def compiled(self) -> int:
        ...
    @property
    def from_disk(self) -> int:
        ...
    @property
    def from_memory(self) -> int:
        ...
class Message:
    """
    A message printed by an invocation of a kernel.
    """
    def __repr__(self) -> str:
        ...
    def __str__(self) -> str:
        ...
    @property
    def file(self) -> str:
        ...
    @property
    def invocation(self) -> tuple[int, int, int]:
        """
        gl_GlobalInvocationID of the invocation, (x, y, z).
        """
    @property
    def line(self) -> int:
        ...
    @property
    def text(self) -> str:
        ...
class BoundKernel:
    """
    A kernel with bound arguments, for CommandList.dispatch().
    """
    def __repr__(self) -> str:
        ...
    @property
    def groups(self) -> typing.Annotated[list[int], "FixedSize(3)"] | None:
        """
        Number of workgroups per axis; None if the device reads them from a tensor.
        """
class Kernel:
    """
    A GLSL compute shader with the extension's types, called with arguments by name.
    """
    def __init__(self, source: str, context: Context, name: str = 'kernel', macros: collections.abc.Mapping[str, str] = {}, spec: dict[str, typing.Any] = {}, includes: collections.abc.Mapping[str, str] | None = None, options: None | ShaderOptions | dict[str, typing.Any] = None, include_dirs: collections.abc.Sequence[str] = [], path: str = '', debug: bool = False, message_bytes: typing.SupportsInt | typing.SupportsIndex = 1048576, local_size: None | typing.SupportsInt | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = None, spirv: bytes = b'') -> None:
        """
        Compile a kernel.
        source: GLSL source.
        macros: names -> text.
        spec: specialization constants -> values.
        includes: paths -> source.
        options: ShaderOptions that replace those derived from the device and the arrays, which then need the types declared in the shader; or a dict of keywords to change only these.
        include_dirs: folders searched by #include.
        path: file of the source.
        debug: check bounds.
        message_bytes: size of the printf ring buffer.
        local_size: workgroup size, for sources that declare none.
        spirv: a SPIR-V module to use instead of the source.
        Raise ShaderCompileError, UnsupportedError, BindingError.
        """
    def __repr__(self) -> str:
        ...
    def _driver_record(self, storage: str | None = None) -> dict[str, typing.Any]:
        """
        Return the driver's statistics for a build, by default the plain one.
        """
    def _layout(self, name: str) -> typing.Any:
        """
        Return the sizes of a buffer's element, or of its block, in the fp32 build: (without padding, with padding, the same for members by name). None if there are too many members.
        """
    def _replace(self, other: Kernel) -> None:
        """
        Replace this kernel with another one.
        """
    def bind(self, *args: typing.Any, **kwargs: typing.Any) -> BoundKernel:
        """
        Return a BoundKernel for command lists, from Tensors, Images and push constants by name, and threads= or groups=.
        """
    def disassemble(self) -> str:
        """
        Return the SPIR-V disassembly of the fp32 build, or of the one for the given options.
        """
    def dtype(self, name: str, length: typing.SupportsInt | typing.SupportsIndex | None = None) -> np.dtype[typing.Any]:
        """
        Return the NumPy dtype of one element of a buffer's array in the fp32 build. Structs have the shader's offsets, and a vec3 includes its padding (4 numbers), so numpy.zeros(n, dtype) has the right layout. A block with other members besides an array returns the dtype of the whole block.
        length: length of the runtime-sized array at the end of the block.
        Raise BindingError.
        """
    def run(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        """
        Run the kernel once and wait. Takes arguments by name, and threads= or groups=. Arguments are Tensors, NumPy arrays (copied to the device, and back if the kernel writes them), Images, and push constants: numbers, sequences for vectors, matrices (by column) and arrays, dicts for structs.
        timeout: in seconds; None: unlimited.
        The first call with given array types is slower: it builds a kernel, which some drivers compile at its first dispatch.
        """
    def take_messages(self) -> list[Message]:
        """
        Return and clear the messages.
        """
    @property
    def messages(self) -> list[Message]:
        """
        The printf messages of executions waited for since take_messages(), at most the latest 100,000.
        """
    @property
    def messages_lost(self) -> int:
        """
        Number of messages lost since take_messages() because the ring buffer was full.
        """
    @property
    def name(self) -> str:
        ...
    @property
    def shader(self) -> Shader:
        """
        The fp32 build, or the one for the given options.
        """
    @property
    def source(self) -> str:
        ...
    @property
    def variants(self) -> dict[str, Shader]:
        """
        The builds so far: storage name -> Shader. A call adds the one that its arrays need.
        """
class BindingProperties:
    """
    The numbers of descriptors and bytes that must be bound to a dispatchable.
    """
    __hash__: typing.ClassVar[None]  # type: ignore[assignment]
    def __eq__(self, other: object) -> bool:
        ...
    def __repr__(self) -> str:
        ...
    @property
    def descriptors(self) -> int:
        ...
    @property
    def persistent_bytes(self) -> int:
        ...
    @property
    def temporary_bytes(self) -> int:
        ...
class Slot:
    """
    An input or output of a dispatchable.
    """
    def __repr__(self) -> str:
        ...
    @property
    def desc(self) -> TensorDesc | None:
        """
        The TensorDesc; None for an omitted optional tensor.
        """
    @property
    def name(self) -> str:
        ...
class Dispatchable:
    """
    Base class of compiled operators, compiled graphs and initializers.
    """
    def supports_in_place(self, input: typing.SupportsIndex = 0, output: typing.SupportsIndex = 0) -> bool:
        """
        Return whether this output may be bound to the range of this input, provided that both have the same description.
        """
    @property
    def binding_properties(self) -> BindingProperties:
        """
        The BindingProperties. Resetting an initializer changes them.
        """
    @property
    def context(self) -> Context:
        ...
    @property
    def inputs(self) -> list[Slot]:
        """
        The input Slots in order; an initializer has one per operator.
        """
    @property
    def name(self) -> str:
        ...
    @property
    def outputs(self) -> list[Slot]:
        ...
class BindingTable:
    """
    The bindings of a dispatchable. Checks every binding rule at the call; a failed call (BindingError) changes nothing. Not thread-safe.
    """
    def __init__(self, dispatchable: Dispatchable, descriptors: typing.SupportsIndex | None = None) -> None:
        """
        Create a table for a dispatchable.
        descriptors: maximum number of descriptors; None: as many as required.
        Raise BindingError (C10).
        """
    def __repr__(self) -> str:
        ...
    def bind(self, **kwargs: typing.Any) -> None:
        """
        Bind all inputs and outputs by slot name; unnamed slots are unbound. Raise BindingError.
        """
    def bind_inputs(self, bindings: typing.Any) -> None:
        """
        Bind each input to None, a Tensor, a Buffer or a BufferRange, or for an initializer to a list of these per operator. None or an empty list unbinds all. Raise BindingError.
        """
    def bind_outputs(self, bindings: typing.Any) -> None:
        """
        Bind each output like bind_inputs(). The outputs of an initializer are the operators' persistent resources. Raise BindingError.
        """
    def bind_persistent(self, binding: typing.Any) -> None:
        """
        Bind the persistent resource to a Buffer, a BufferRange or a Tensor; None unbinds it. Raise BindingError.
        """
    def bind_temporary(self, binding: typing.Any) -> None:
        """
        Bind the temporary resource to a Buffer, a BufferRange or a Tensor; None unbinds it. Raise BindingError.
        """
    def reset(self, dispatchable: Dispatchable, descriptors: typing.SupportsIndex | None = None) -> None:
        """
        Unbind everything and switch to another dispatchable. Raise BindingError.
        """
    def time_bindings(self, inputs: typing.Any, outputs: typing.Any, runs: typing.SupportsIndex) -> list[float]:
        """
        Return the seconds of each of `runs` bindings of both lists, measured in C++ without Python in between. The lists are copied each time.
        """
    def unbind(self) -> None:
        ...
    @property
    def dispatchable(self) -> Dispatchable:
        ...
class Submission:
    """
    An execution in flight or finished. int() returns its id on the context's timeline.
    """
    def __index__(self) -> int:
        ...
    def __int__(self) -> int:
        ...
    def __repr__(self) -> str:
        ...
    def wait(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Wait until the execution has finished.
        timeout: in seconds.
        Raise TimeoutError, DeviceLostError, OutOfBoundsError.
        """
    @property
    def cold(self) -> bool:
        """
        Whether a kernel ran for the first time in this execution; its time may then include compilation by the driver.
        """
    @property
    def device_seconds(self) -> float | None:
        """
        Device time in seconds; None if not committed with timing or not finished.
        """
    @property
    def device_time(self) -> float | None:
        """
        Same as device_seconds.
        """
    @property
    def done(self) -> bool:
        ...
    @property
    def id(self) -> int:
        ...
class DispatchTime:
    """
    Device time of one dispatch.
    """
    def __repr__(self) -> str:
        ...
    @property
    def cold(self) -> bool:
        """
        Whether the kernel ran for the first time; the time may then include compilation by the driver.
        """
    @property
    def label(self) -> str:
        """
        Name of the node, or of the kernel.
        """
    @property
    def seconds(self) -> float:
        ...
class CommandList:
    """
    A list of dispatches and copies: recorded, committed once, executed many times. Barriers are inserted automatically.
    """
    def __init__(self, context: Context) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def commit(self, timing: bool = False, profile: bool = False) -> None:
        """
        End the recording.
        timing: measure the device time of each execution.
        profile: measure the device time of each dispatch.
        """
    def copy(self, source: typing.Any, target: typing.Any) -> None:
        ...
    @typing.overload
    def dispatch(self, dispatchable: Dispatchable, table: BindingTable) -> None:
        """
        Record a dispatch. The table is read now, or at every exec() if the dispatchable was compiled with DESCRIPTORS_VOLATILE. Raise BindingError.
        """
    @typing.overload
    def dispatch(self, kernel: BoundKernel) -> None:
        ...
    def exec(self) -> Submission:
        """
        Submit the list once without waiting. The first dispatch of a kernel may include compilation by the driver: Submission.cold reports this, and warm_up() avoids it.
        """
    def time(self, runs: typing.SupportsIndex, warm_up: typing.SupportsIndex | None = None) -> list[float]:
        """
        Return the seconds from exec to result of each of `runs` executions, measured in C++ without Python in between.
        warm_up: number of unmeasured executions before; None: one if a kernel of the list has not run yet, since some drivers compile it at its first dispatch.
        """
    def wait(self, id: typing.SupportsIndex, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Wait for the execution with this id.
        timeout: in seconds.
        Raise StateError (L7) if no execution has this id, TimeoutError, DeviceLostError, OutOfBoundsError.
        """
    def warm_up(self, runs: typing.SupportsIndex = 1) -> None:
        """
        Execute the list and wait, so that later times exclude compilation by the driver at the first dispatch. Raise the errors of exec and wait.
        """
    @property
    def barriers(self) -> int:
        ...
    @property
    def committed(self) -> bool:
        ...
    @property
    def dispatch_times(self) -> list[DispatchTime]:
        """
        A DispatchTime for each dispatch of the last execution. Requires commit(profile=True).
        """
    @property
    def dispatches(self) -> int:
        ...
class PrecisionSupport:
    """
    How a device runs operators at a precision.
    """
    def __repr__(self) -> str:
        ...
    @property
    def lacks(self) -> list[str]:
        """
        Device features and shader compiler extensions missing for native storage and cooperative matrices.
        """
    @property
    def matrices(self) -> bool:
        """
        Whether cooperative matrices support this precision with float32 accumulation.
        """
    @property
    def precision(self) -> str:
        ...
    @property
    def storage(self) -> str:
        """
        Internal storage type of floats: 'fp32', 'fp16', 'fp16_packed', 'bf16' or 'bf16_packed'.
        """
class ValueRole:
    """
    An input or output of an operator.
    """
    def __repr__(self) -> str:
        ...
    @property
    def dtypes(self) -> list[str]:
        """
        Supported element types; empty if the value exists in ONNX but the engine does not support it.
        """
    @property
    def name(self) -> str:
        ...
    @property
    def optional(self) -> bool:
        ...
    @property
    def type(self) -> str:
        """
        Letter shared by values of the same element type; empty if its type is independent.
        """
    @property
    def variadic(self) -> bool:
        """
        Whether it stands for any number of values.
        """
class AttributeSchema:
    """
    An attribute of an operator.
    """
    def __repr__(self) -> str:
        ...
    @property
    def choices(self) -> list[typing.Any]:
        """
        Supported values; empty: any.
        """
    @property
    def default(self) -> typing.Any:
        """
        Default value; None if the attribute is required or may be omitted.
        """
    @property
    def kind(self) -> str:
        """
        'int', 'float', 'string', 'ints', 'floats', 'strings' or 'tensor'.
        """
    @property
    def name(self) -> str:
        ...
    @property
    def required(self) -> bool:
        ...
class OperatorRow:
    """
    A row of the operator table, for the newest version of its ONNX operator.
    """
    def __repr__(self) -> str:
        ...
    @property
    def attributes(self) -> list[AttributeSchema]:
        ...
    @property
    def definition(self) -> str:
        """
        The operator as the body of a function of ONNX operators, in ONNX's text format; empty if ONNX or a rule of validation defines it.
        """
    @property
    def expression(self) -> str:
        """
        The expression computed by an elementwise operator; empty for others.
        """
    @property
    def host_inputs(self) -> list[int]:
        """
        Inputs whose values must be known on the host: axes, shapes, counts.
        """
    @property
    def in_place(self) -> list[tuple[str, str]]:
        """
        (input, output) pairs that may share memory if the operator is one dispatch.
        """
    @property
    def index_input(self) -> int | None:
        """
        The input of indices or lengths that check_indices=True checks for out-of-range values; None if there is none.
        """
    @property
    def inputs(self) -> list[ValueRole]:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def outputs(self) -> list[ValueRole]:
        ...
    @property
    def ranks(self) -> tuple[int, int]:
        """
        Minimum and maximum rank of the first input.
        """
    @property
    def skeleton(self) -> str:
        """
        The kind of kernel that the operator lowers to.
        """
class Expression:
    """
    A typed scalar expression over named parameters: the definition of an elementwise operator.
    """
    def __init__(self, text: str) -> None:
        """
        Parse an expression. Raise Error with the position of a syntax error.
        """
    def evaluate(self, values: dict[str, typing.Any]) -> int | float:
        """
        Evaluate one element on the host: exactly for integers, otherwise in double precision.
        """
    def glsl(self, types: collections.abc.Mapping[str, str]) -> tuple[str, str]:
        """
        Return (source, GLSL type of the result) for these dtypes of the names.
        """
    def substitute(self, replacements: collections.abc.Mapping[str, Expression]) -> Expression:
        ...
    def weight(self, has_doubles: bool = False) -> int:
        """
        Return the cost of compiling its GLSL: about the number of instructions its functions expand to, in double or float arithmetic.
        """
    @property
    def names(self) -> list[str]:
        """
        Free names, in order of first use.
        """
class CompiledOperator(Dispatchable):
    """
    An operator or a whole graph, compiled for a device and a precision.
    """
class Initializer(Dispatchable):
    """
    Initializer of compiled operators: copies their owned weights to the persistent resource, once.
    """
    def __init__(self, context: Context, operators: collections.abc.Sequence[CompiledOperator]) -> None:
        ...
    def reset(self, operators: collections.abc.Sequence[CompiledOperator]) -> None:
        """
        Switch to other operators; existing tables and lists become invalid. Raise BindingError (I6) while an earlier initialisation is running.
        """
class Operator:
    """
    An operator described by name, tensors and attributes, independent of a device.
    """
    def __init__(self, name: str, inputs: collections.abc.Iterable[TensorDesc | np.typing.NDArray[typing.Any] | typing.SupportsInt | typing.SupportsIndex | typing.SupportsFloat | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] | None], outputs: collections.abc.Sequence[TensorDesc | None], activation: None | str | tuple[str, dict[str, typing.Any]] = None, **kwargs: typing.Any) -> None:
        """
        Describe an operator. Further keywords are attributes.
        inputs, outputs: a TensorDesc, or None for an omitted optional tensor. Inputs listed in host_inputs by operators() (axes, shapes, counts) are given as values: an array, or a number or list of numbers (int64 or float32). Their slots are left unbound.
        activation: applied to each result before it is rounded and stored: the name of an elementwise operator of one float ('Relu'), or a pair of name and attributes, ('LeakyRelu', {'alpha': 0.1}).
        Raise UnsupportedError (in compile() if the kernels do not support an activation), GraphError, BindingError (K5) for arrays of a dtype that tensors do not support.
        """
    def compile(self, context: Context, precision: str | None = None, flags: collections.abc.Sequence[str] = []) -> CompiledOperator:
        """
        Compile the operator for a context.
        precision: internal type of 16-bit and 32-bit floats, "fp32", "fp16" or "bf16", with float32 accumulation. Bound tensors keep their described dtypes and are converted on load and store; owned tensors are converted once, by the initializer. None: the described dtypes.
        flags: names of execution flags. DESCRIPTORS_VOLATILE: bindings may change after a dispatch until the list is executed, at the cost of re-recording. ALLOW_HALF_PRECISION_COMPUTATION: precision fp16 instead of fp32 or None. DISABLE_META_COMMANDS: no effect, since there are no vendor kernels. DETERMINISTIC: apply repeated updates of an element by ScatterElements, ScatterND or MaxUnpool in order.
        Raise UnsupportedError.
        """
    @property
    def name(self) -> str:
        ...
class ProgramValue:
    """
    An input or output of a program.
    """
    def __repr__(self) -> str:
        ...
    @property
    def dimension_names(self) -> list[str]:
        """
        Symbolic names of the sizes; empty for unnamed ones.
        """
    @property
    def dtype(self) -> str:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """
        The sizes, None for unknown ones; None if the rank is unknown.
        """
class ProgramRun:
    """
    An execution of a program started by Program.run_async(), in flight or finished.
    """
    def __int__(self) -> int:
        ...
    def __repr__(self) -> str:
        ...
    def result(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> tuple[np.typing.NDArray[typing.Any], ...]:
        """
        Wait, and return the outputs as new arrays in graph order.
        """
    def wait(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Wait until the execution has finished.
        timeout: in seconds.
        Raise TimeoutError, DeviceLostError.
        """
    @property
    def cold(self) -> bool:
        """
        Whether a kernel ran for the first time in this execution; its time may then include compilation by the driver.
        """
    @property
    def device_seconds(self) -> float | None:
        """
        Device time in seconds; None if not measured or not finished.
        """
    @property
    def device_time(self) -> float | None:
        """
        Same as device_seconds.
        """
    @property
    def done(self) -> bool:
        ...
    @property
    def id(self) -> int:
        """
        Id of the execution on the context's timeline.
        """
class Program:
    """
    A graph compiled once, bound per input shape, and executed many times. Thread-safe. Also a context manager.
    """
    def __call__(self, inputs: dict[str, typing.Any], timeout: typing.SupportsFloat | typing.SupportsIndex | None = None, loop_timeout: typing.SupportsFloat | typing.SupportsIndex | None = 2.0, filled: bool = False) -> dict[str, np.typing.NDArray[typing.Any]]:
        """
        Run the program on arrays by name and return arrays by name.
        timeout: for the whole run, in seconds.
        loop_timeout: seconds per WHILE each time it is entered, at most 15; None: unlimited.
        filled: fill temporary memory and results with NaN bits (in every float type) before the run, to expose results that are not computed.
        Raise TimeoutError, after which the program remains usable, or BindingError with the input, the expected and the given value.
        """
    def __enter__(self) -> Program:
        ...
    def __exit__(self, *args: typing.Any) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def arena(self, shapes: collections.abc.Sequence[typing.Any]) -> dict[str, int]:
        """
        Return statistics for these input shapes: bytes of temporary memory, their lower bound, and what is recorded.
        """
    def burst(self) -> Burst:
        """
        Create a Burst of this program.
        """
    def call(self, inputs: tuple[typing.Any, ...], timeout: typing.SupportsFloat | typing.SupportsIndex | None = None, loop_timeout: typing.SupportsFloat | typing.SupportsIndex | None = 2.0, out: collections.abc.Sequence[np.typing.NDArray[typing.Any] | None] | None = None, filled: bool = False) -> tuple[np.typing.NDArray[typing.Any], ...]:
        """
        Run the program on arrays in graph order and return arrays in graph order.
        out: for each output a writable, C-contiguous array of its dtype and shape, not overlapping the others, or None.
        filled: see __call__.
        Raise BindingError.
        """
    def close(self) -> None:
        """
        Free the device memory. Idempotent.
        """
    def compiled(self, shapes: collections.abc.Sequence[typing.Any]) -> CompiledOperator:
        """
        Return the operator for these input shapes, for binding tables. It shares the program's initialised persistent resource.
        """
    def execution(self, measure: bool = False, filled: bool = False) -> Execution:
        """
        Create an Execution of this program.
        measure: measure times, for Execution.timing.
        filled: see __call__.
        """
    def observe(self, inputs: tuple[typing.Any, ...], names: collections.abc.Set[str] | None = None, steps: typing.SupportsInt | typing.SupportsIndex | None = None) -> dict[str, typing.Any]:
        """
        Run the program once on arrays in graph order, with its usual plan, arena and kernels, and copy each tensor after the step that completes it.
        Return `outputs` by name and `tensors`, all tensors stored by kernels: name, node and kernel that stored it, reads (tensors read by this node's kernels), array (in the stored dtype), bytes, and additions, as in plan().
        names: tensors to copy; others have no array.
        steps: stop after this many steps of plan(), without copies in between and without outputs; tensors that are then complete and in memory have an array.
        Raise UnsupportedError for control flow and host sync points, BindingError.
        """
    def observe_runs(self, inputs: tuple[typing.Any, ...], max_runs: typing.SupportsInt | typing.SupportsIndex = 2, loop_timeout: typing.SupportsFloat | typing.SupportsIndex | None = 2.0, *, most: typing.SupportsInt | typing.SupportsIndex | None = None) -> dict[str, typing.Any]:
        """
        Do the same as observe() for a program with control flow or host sync points, which has one list of dispatches per region.
        Return runs: the first `max_runs` runs of each region, with graph (its name), number, inputs by name, tensors, as in observe(), and differing, the outputs whose bits differ from the run without copies; outputs by name; regions: graph, runs and observed of each; single_loops: loops that run in one kernel.
        The host drives all other loops and branches. Each observed run is an extra run on the same inputs. `most` is the old name of
        `max_runs`.
        Raise UnsupportedError for a program with a single list, TimeoutError.
        """
    def plan(self, shapes: collections.abc.Sequence[typing.Any]) -> list[dict[str, typing.Any]]:
        """
        Return each dispatch for these input shapes: label, kernel, wave, whether a barrier precedes it, byte ranges of its operands, workgroups per axis ('groups'), and whether the grid was folded to fit the device's limits ('folded').
        """
    def profile(self, inputs: tuple[typing.Any, ...]) -> list[DispatchTime]:
        """
        Run once and return a DispatchTime for each dispatch, labelled with its node. An unmeasured run first compiles kernels that have not run yet.
        """
    def report(self) -> list[dict[str, typing.Any]]:
        """
        Return a row per node with the kernel and precision that run it, and why: node, op, kernel, precision, note.
        """
    def run_async(self, inputs: tuple[typing.Any, ...], loop_timeout: typing.SupportsFloat | typing.SupportsIndex | None = 2.0) -> ProgramRun:
        """
        Start an execution on arrays in graph order and return immediately. A program with control flow or host sync points returns only when it has finished; execution().start() does not wait.
        loop_timeout: see __call__.
        """
    @property
    def checks_indices(self) -> bool:
        """
        Whether the program was compiled with check_indices and has indices that only the device knows.
        """
    @property
    def closed(self) -> bool:
        ...
    @property
    def context(self) -> Context:
        ...
    @property
    def has_control_flow(self) -> bool:
        """
        Whether the program has several lists of dispatches, between which the host branches or reads values.
        """
    @property
    def inputs(self) -> list[ProgramValue]:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def outputs(self) -> list[ProgramValue]:
        ...
    @property
    def persistent(self) -> BufferRange:
        """
        The buffer range of the weights.
        """
class Event:
    """
    Completion of an execution started with Execution.start().
    """
    def wait(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Wait for at most `timeout` seconds. Raise TimeoutError, or the error of the execution.
        """
    @property
    def done(self) -> bool:
        ...
class Execution:
    """
    A reusable execution of a program. Calls during a run raise StateError; otherwise thread-safe.
    """
    def __repr__(self) -> str:
        ...
    def compute(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None, loop_timeout: typing.SupportsFloat | typing.SupportsIndex | None = 2.0) -> dict[str, np.typing.NDArray[typing.Any]]:
        """
        Run the program and return the outputs by name.
        timeout: for the whole run, in seconds.
        loop_timeout: see Program.__call__.
        Raise StateError, BindingError, TimeoutError, GraphError, or OutputSizeError if an array of set_output() is too small.
        """
    def output_shape(self, name: str) -> tuple[int, ...]:
        """
        Return the actual shape of an output, even after OutputSizeError. Raise StateError if the execution has not finished or has failed otherwise.
        """
    def set(self, name: str, array: typing.Any) -> None:
        """
        Set an input. A contiguous array is read when the execution runs; any other is copied now. Raise BindingError for an unknown input or a wrong dtype.
        """
    def set_output(self, name: str, array: np.typing.NDArray[typing.Any] | None) -> None:
        """
        Set the array that an output is written to, starting at its first element. It must be writable, contiguous and of the output's dtype; None allocates new arrays. Raise BindingError.
        """
    def start(self, wait_for: collections.abc.Sequence[Event] = [], timeout: typing.SupportsFloat | typing.SupportsIndex | None = None, duration: typing.SupportsFloat | typing.SupportsIndex | None = None, loop_timeout: typing.SupportsFloat | typing.SupportsIndex | None = 2.0) -> Event:
        """
        Return an Event immediately, and run the program once all events in `wait_for` have ended. If one of them fails or has failed, this execution fails with its error.
        timeout: seconds from this call.
        duration: seconds from the end of the last event in `wait_for`.
        Raise BindingError if an output has an unknown shape and no array.
        """
    @property
    def outputs(self) -> dict[str, np.typing.NDArray[typing.Any]]:
        """
        The outputs by name. Raises StateError if the execution has not finished or has failed.
        """
    @property
    def program(self) -> Program:
        ...
    @property
    def report(self) -> dict[str, typing.Any]:
        """
        Counts of the last run: submissions, dispatches, host_syncs, and read_backs (the host_syncs that read elements which shapes depend on); per entered loop: node, kind, entries, trips, host_syncs, wasted_iterations.
        """
    @property
    def state(self) -> str:
        """
        'preparation', 'computation' or 'completed'.
        """
    @property
    def timing(self) -> dict[str, float]:
        """
        Times of the last run in seconds: on_device, in_driver (includes on_device), and both with _after_fence, measured from the end of the last event waited for. Raises StateError without program.execution(measure=True).
        """
class Burst:
    """
    A sequence of executions of one program, one at a time.
    """
    def compute(self, execution: Execution, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None, loop_timeout: typing.SupportsFloat | typing.SupportsIndex | None = 2.0) -> dict[str, np.typing.NDArray[typing.Any]]:
        """
        Run an execution like Execution.compute(). Raise StateError while another execution of this burst is running, BindingError if the execution belongs to another program.
        """
class UploadMemory:
    """
    Memory for a graph's constants: host staging memory and device memory. Large allocations run in the background, and Graph.compile() waits for them. Not thread-safe.
    bytes: size of the constants as far as known.
    """
    def __init__(self, context: Context, bytes: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    def expect(self, device_bytes: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Announce about how many bytes of constants the device will store; Graph.compile() does so itself.
        """
class Value:
    """
    A value of a Graph: an input, a constant or the output of a node.
    """
    def __eq__(self, other: object) -> bool:
        ...
    def __hash__(self) -> int:
        ...
    def __repr__(self) -> str:
        ...
    @property
    def channel_axis(self) -> int | None:
        ...
    @property
    def constant(self) -> np.typing.NDArray[typing.Any] | None:
        """
        A copy of a constant's elements; None for other values.
        """
    @property
    def dtype(self) -> str:
        ...
    @property
    def graph(self) -> Graph:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def scale(self) -> None | float | tuple[float, ...]:
        """
        The scale of a quantised tensor, a number or one per channel: real = (integer - zero_point) * scale.
        """
    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """
        The sizes, None for unknown ones; None if the rank is unknown.
        """
    @property
    def zero_point(self) -> int | None:
        ...
class Node:
    """
    A node of a Graph.
    """
    def __repr__(self) -> str:
        ...
    @property
    def attributes(self) -> dict[str, typing.Any]:
        """
        The attributes that were given, by name; tensors as arrays.
        """
    @property
    def inputs(self) -> list[Value | None]:
        """
        The inputs; None for omitted optional inputs.
        """
    @property
    def name(self) -> str:
        ...
    @property
    def op(self) -> str:
        """
        Operator name: 'Conv', 'If', 'While', ...
        """
    @property
    def outputs(self) -> list[Value]:
        ...
class Graph:
    """
    Values and nodes, checked when they are added. Compiles to a Program. Not thread-safe until finished.
    """
    def __init__(self, name: str | None = None) -> None:
        ...
    def __len__(self) -> int:
        """
        Return the number of nodes.
        """
    def __repr__(self) -> str:
        ...
    def add(self, op: str, *args: typing.Any, outputs: typing.SupportsIndex = 1, name: str = '', output_names: collections.abc.Sequence[str] = [], **kwargs: typing.Any) -> typing.Any:
        """
        Add a node by its ONNX operator name. Return a Value for one output, or a tuple for several.
        inputs: Values, arrays (constants), or None for omitted optional inputs.
        attributes: by name.
        NNAPI operations ('nnapi::ADD') take NNAPI's operands in NNAPI's order: numbers and lists of numbers are int32, float32 or bool constants; scale, zero_point and dtype describe the output. 'nnapi::IF' takes a condition, two Graphs and their inputs. 'nnapi::WHILE' takes the condition and body Graphs, then the carried values (as many as outputs), the body's states, and the invariant values.
        Raise UnsupportedError for an unknown operator or dtype, GraphError for wrong inputs, attributes or known shapes.
        """
    def compile(self, context: Context, precision: str | None = None, keep_all: bool = False, fuse: bool | list[str] = True, progress: collections.abc.Callable[[str, int, int], None] | None = None, memory: UploadMemory | None = None, check_indices: bool = False, deterministic: bool = False, float32_nodes: collections.abc.Sequence[str] = [], measured: collections.abc.Mapping[str, str] | None = None, list_variants: bool = False) -> Program:
        """
        Compile the graph to a Program.
        precision: 'fp32', 'fp16' or 'bf16'; defaults to the one of relaxed_precision.
        keep_all: make the outputs of all nodes outputs of the program, and fuse nothing.
        fuse: whether to fuse nodes, or the names of the allowed fusions; see fusions().
        progress: called regularly with the phase ('weights', 'kernels'), the amount done and the total.
        memory: an UploadMemory of the same context, already allocating.
        check_indices: raise IndexRangeError at calls if an index that only the device knows is out of range. Every call then waits, and the host drives all control flow.
        deterministic: apply repeated updates of an element by ScatterElements, ScatterND and MaxUnpool in order, for bitwise reproducible results.
        float32_nodes: names of nodes, as in report(), to compute in float32 at any precision, including the nodes in their IF and WHILE graphs. Other nodes round what they read from them.
        measured: kind of step -> variant to use where possible, as named by plan(); report() shows the choice.
        list_variants: plan() lists all variants of steps that have several.
        Raise UnsupportedError listing everything unsupported, GraphError for an unknown node name.
        """
    def compile_operator(self, context: Context, precision: str | None = None, flags: collections.abc.Sequence[str] = []) -> CompiledOperator:
        """
        Compile the whole graph to one operator for binding tables, initializers and command lists, with a slot per input, by name. Owned inputs and constants go to the persistent resource, intermediate values to the temporary one. All input sizes must be known.
        flags: see Operator.compile.
        Raise GraphError, or UnsupportedError naming the nodes that need the host.
        """
    def constant(self, array: np.typing.NDArray[typing.Any], name: str = '', scale: None | typing.SupportsFloat | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] = None, zero_point: typing.SupportsIndex | None = None, channel_axis: typing.SupportsIndex | None = None) -> Value:
        """
        Add a constant with the array's elements.
        scale, zero_point, channel_axis: see input().
        Raise GraphError.
        """
    def constant_bytes(self, raw: typing.Any, dtype: typing.Any, shape: collections.abc.Sequence[typing.SupportsIndex], name: str = '') -> Value:
        """
        Add a constant from bytes, without a copy. Large ones from a MappedFile are read only when they are uploaded.
        raw: elements as in ONNX files: row-major, little-endian, 4-bit elements two per byte.
        Raise GraphError.
        """
    def expect(self, value: Value, shape: collections.abc.Sequence[typing.SupportsIndex | None]) -> None:
        """
        Suggest likely values for unknown sizes of a value (None: no suggestion). The graph still accepts other sizes at run time.
        """
    def finish(self) -> None:
        """
        Finish the graph: later changes raise StateError. Idempotent.
        """
    def graft(self, value: Value, inputs: collections.abc.Sequence[typing.Any], stem: str) -> Value:
        """
        Copy the nodes that compute a value of another Graph (without IF and WHILE), with `inputs` in place of that graph's inputs. Node names are derived from `stem`. Raise GraphError if the nodes cannot take these inputs.
        """
    def if_(self, condition: typing.Any, then: typing.Any, orelse: typing.Any, inputs: collections.abc.Sequence[typing.Any] = [], name: str = '', output_names: collections.abc.Sequence[str] = []) -> tuple[Value, ...]:
        """
        Add an IF node: run the Graph `then` if the condition (bool, shape [1]) is true, or else `orelse`. Both take the inputs and return the results; this call finishes them. With condition=None the node fails at run time.
        Raise GraphError and StateError with the rule id (pumice.graph_rules()).
        """
    def input(self, name: str, dtype: typing.Any, shape: collections.abc.Sequence[typing.SupportsIndex | None] | None, dimension_names: collections.abc.Sequence[str] | None = None, owned: bool = False, scale: None | typing.SupportsFloat | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] = None, zero_point: typing.SupportsIndex | None = None, channel_axis: typing.SupportsIndex | None = None, assumed: bool = False) -> Value:
        """
        Add an input to the graph.
        shape: None or 0 for an unknown size; shape=None for an unknown rank.
        dimension_names: symbolic names of the sizes.
        owned: a weight that is read by the initializer of a compiled operator only, not by executions.
        scale, zero_point: quantisation, real = (integer - zero_point) * scale; scale is a number, or one per channel of channel_axis.
        assumed: sizes may differ when a node runs this graph.
        Raise GraphError.
        """
    def node_names(self, first: typing.SupportsInt | typing.SupportsIndex) -> list[str]:
        """
        Return the names of the nodes from index `first` on.
        """
    def output(self, name: str, value: typing.Any, shape: collections.abc.Sequence[typing.SupportsIndex | None] | None = None, dtype: typing.Any | None = None, scale: None | typing.SupportsFloat | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] = None, zero_point: typing.SupportsIndex | None = None) -> None:
        """
        Make a value an output of the graph.
        shape, dtype, scale, zero_point: the declared type; None or 0 in shape means any size. Unknown sizes are assumed to be as declared and checked when a program is bound.
        Raise GraphError, also at binding, if the value does not match.
        """
    def shape_sources(self, value: Value, elements: bool = False) -> list[Value] | None:
        """
        Return the inputs whose elements determine the shape of a value (or its elements, if `elements`), in addition to the shapes of all inputs. Return None if it also depends on results of a device-only operator, IF or WHILE.
        """
    def while_(self, condition: typing.Any, body: typing.Any, carried: collections.abc.Sequence[typing.Any], state: collections.abc.Sequence[typing.Any] = [], invariant: collections.abc.Sequence[typing.Any] = [], name: str = '', output_names: collections.abc.Sequence[str] = []) -> tuple[Value, ...]:
        """
        Add a WHILE node: run the Graph `body` while the Graph `condition` returns true (bool, shape [1]), evaluated before every iteration. Both take the carried, state and invariant values in this order; the body returns the next carried and state values. The results are the final carried values, or the initial ones after zero iterations.
        Raise GraphError and StateError with the rule id (pumice.graph_rules()).
        """
    @property
    def exact(self) -> bool:
        """
        Whether all sizes are known and none depends on results of the device.
        """
    @property
    def finished(self) -> bool:
        ...
    @property
    def inputs(self) -> list[Value]:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def nodes(self) -> list[Node]:
        """
        The nodes in topological order.
        """
    @property
    def outputs(self) -> dict[str, Value]:
        ...
    @property
    def relaxed_precision(self) -> bool:
        """
        Whether compile() without a precision uses 'fp16' instead of 'fp32'. Graphs of IF and WHILE nodes follow the compiled graph.
        """
    @relaxed_precision.setter
    def relaxed_precision(self, arg1: bool) -> None:
        ...
class NnapiOperand(ValueRole):
    """
    An operand of an NNAPI operation.
    """
    @property
    def kind(self) -> str:
        """
        'tensor', 'list' (int32 vector), 'pairs' (two-column matrix), 'scalar' (constant number of rank 0) or 'graph' (run by IF and WHILE).
        """
class NnapiOperation:
    """
    An NNAPI operation, with operands in NNAPI's order.
    """
    def __repr__(self) -> str:
        ...
    @property
    def implicit(self) -> list[NnapiOperand]:
        """
        The inputs of the form with a padding scheme instead of four paddings; empty if there is no such form.
        """
    @property
    def inputs(self) -> list[NnapiOperand]:
        ...
    @property
    def level(self) -> int:
        """
        The feature level that introduced it; 2**31 - 1 if experimental.
        """
    @property
    def name(self) -> str:
        ...
    @property
    def outputs(self) -> list[NnapiOperand]:
        ...
    @property
    def summary(self) -> str:
        ...
class DvContext:
    """
    A device for dv commands.
    """
    def __enter__(self) -> typing.Any:
        ...
    def __exit__(self, *args: typing.Any) -> None:
        ...
    def __init__(self, device: Context, strict: bool = False, separate: bool = False) -> None:
        ...
    def close(self) -> None:
        """
        Release the object. Objects created from it keep it alive. Idempotent.
        """
    def device_exists(self, dev_type_id: typing.SupportsInt | typing.SupportsIndex) -> bool:
        """
        Return whether a device of this kind exists. Raise BindingError for an unknown kind.
        """
    @property
    def closed(self) -> bool:
        ...
    @property
    def device(self) -> Context:
        """
        The underlying Context.
        """
    @property
    def info(self) -> dict[str, int]:
        """
        Properties of the device by name.
        """
    @property
    def info_string(self) -> str:
        ...
    @property
    def last_error(self) -> str:
        """
        Text of the last error in its memories and lists; initially empty.
        """
    @property
    def strict(self) -> bool:
        """
        Whether lists reject commands that the vendor's hardware does not support.
        """
class DvMemory:
    """
    Page-granular memory that commands refer to and the host can map.
    """
    def __enter__(self) -> typing.Any:
        ...
    def __exit__(self, *args: typing.Any) -> None:
        ...
    def __init__(self, context: DvContext, size: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Allocate memory with undefined content.
        size: in bytes.
        Raise BindingError if it is 0, OutOfMemoryError.
        """
    def close(self) -> None:
        """
        Release the object. Objects created from it keep it alive. Idempotent.
        """
    def map(self) -> np.typing.NDArray[np.uint8]:
        """
        Map the memory and return all of it as a uint8 NumPy array. Repeated calls return the same memory until unmap().
        """
    def sync_end(self) -> None:
        """
        End host access and make host writes visible to the device.
        """
    def sync_start(self, read: bool = True, write: bool = True) -> None:
        """
        Begin host access and make device writes visible to the host. Raise BindingError if the memory is not mapped, or if neither read nor write is requested.
        """
    def to_cpu(self, offset: typing.SupportsInt | typing.SupportsIndex, size: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Make a byte range written by the device visible to the host immediately. Raise BindingError if it is out of range or the memory is not mapped.
        """
    def to_device(self, offset: typing.SupportsInt | typing.SupportsIndex, size: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Make a byte range written by the host visible to the device immediately. Raise BindingError if it is out of range or the memory is not mapped.
        """
    def unmap(self) -> None:
        """
        End any sync and unmap the memory. Idempotent.
        """
    @property
    def closed(self) -> bool:
        ...
    @property
    def handle(self) -> int:
        """
        Handle of the memory in raw commands.
        """
    @property
    def mapped(self) -> bool:
        ...
    @property
    def size(self) -> int:
        """
        Size in bytes, a multiple of 4096.
        """
class DvCommandList:
    """
    A list of commands: checked when added, committed once, executed many times.
    """
    def __enter__(self) -> typing.Any:
        ...
    def __exit__(self, *args: typing.Any) -> None:
        ...
    def __init__(self, context: DvContext) -> None:
        ...
    def __len__(self) -> int:
        ...
    def add_raw(self, raw: bytes) -> None:
        """
        Check and add a raw command, and keep its memories alive. Raise BindingError naming the run and the field.
        """
    def close(self) -> None:
        """
        Release the object. Objects created from it keep it alive. Idempotent.
        """
    def commit(self) -> None:
        """
        Prepare the list for execution and unpack weights. Executions unpack them again if the host has published their memory since (sync_end, to_device, unmap). Weights written by device commands, in this list or another, are unpacked on the device at every execution.
        Raise StateError if called twice, BindingError if the list is empty.
        """
    def exec(self) -> int:
        """
        Enqueue one execution and return its id. Raise StateError before commit().
        """
    def wait(self, exec_id: typing.SupportsInt | typing.SupportsIndex, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Wait for an execution.
        timeout: in seconds.
        Raise TimeoutError, DeviceLostError, BindingError for an unknown id.
        """
    @property
    def closed(self) -> bool:
        ...
    @property
    def committed(self) -> bool:
        ...
    @property
    def dispatch_count(self) -> int:
        """
        Number of kernels in an execution.
        """
    @property
    def last_exec_seconds(self) -> float:
        """
        Device time in seconds of the execution waited for last; initially 0.
        """
    @property
    def last_exec_time(self) -> int:
        """
        last_exec_seconds in whole microseconds, like the vendor's function of this name.
        """
class UnpackedWeights:
    """
    The unpacked weights of a layer.
    """
    @property
    def bias(self) -> np.typing.NDArray[typing.Any]:
        """
        float16 biases, one per output.
        """
    @property
    def indices(self) -> np.typing.NDArray[typing.Any] | None:
        """
        uint8 indices into the table; None without a table.
        """
    @property
    def prelu(self) -> np.typing.NDArray[typing.Any] | None:
        """
        float16 PReLU slopes, one per kernel; None if there are none.
        """
    @property
    def table(self) -> np.typing.NDArray[typing.Any] | None:
        """
        The table, float16 [256]; None if there is none.
        """
    @property
    def weights(self) -> np.typing.NDArray[typing.Any]:
        """
        float16 weights, with the table applied.
        """
class TimeoutError(Error, builtins.TimeoutError):
    """
    A wait, loop or execution timed out. Attribute: transient, whether a retry may succeed.
    """
    transient: bool
def _is_profiling() -> bool:
    """
    Return whether a profile is active.
    """
def _profile_event(kind: str, name: str, begin: typing.SupportsInt | typing.SupportsIndex, end: typing.SupportsInt | typing.SupportsIndex, bytes: typing.SupportsInt | typing.SupportsIndex = 0) -> None:
    """
    Add a host event; times are integers in the unit of Python's finest performance counter.
    """
def _set_trial_sizes(sizes: typing.Annotated[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], "FixedSize(8)"] | None = None, batches: typing.Annotated[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], "FixedSize(8)"] | None = None) -> None:
    """
    Set the sizes that shape inference tries for unknown axes, and for unknown first axes; None restores the default. For tests.
    """
def _start_profile(level: str, every: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Start a profile: timestamp the first and every `every`th execution of each recording at this level, and all others as a whole. Raise StateError if a profile is active.
    """
def _stop_profile() -> dict[str, typing.Any]:
    """
    Stop the profile and return its `host` events and its `runs`, the executions with timestamps.
    """
def another_context(context: Context, without: collections.abc.Sequence[str] = []) -> Context:
    """
    Create another context of the same device with the same options (without, limits, quirks), and disable these features and extensions too.
    """
def begin_order(ready: SharedTimeline, value: typing.SupportsInt | typing.SupportsIndex, done: SharedTimeline) -> None:
    """
    Begin an order: until end_order(), submissions of this thread wait for `ready` to reach the value and signal `done` with their ids.
    """
def binding_rules() -> dict[str, str]:
    """
    Return the rules of operators, initializers, binding tables, kernels and the dv interface by id; BindingError.rule contains the id.
    """
def buffer_size(dtype: typing.Any, shape: collections.abc.Sequence[typing.SupportsIndex], strides: collections.abc.Sequence[typing.SupportsIndex] | None = None) -> int:
    """
    Return the bytes from element 0 to the last element reached, rounded up to 4; 0 if any size is 0, one element for rank 0.
    Raise GraphError (R8) on 64-bit overflow, a rank above 8, more than 2**32 - 1 elements, or negative strides.
    """
def build_cached_graph(structure: dict[str, typing.Any], files: list[typing.Any]) -> Graph:
    """
    Return the finished Graph of a cached model whose nodes become one engine node each.
    structure: as in pumice.importer.load_graph; files: the bytes of the entry's own constants, of the model file, and of its weights files.
    Raise an error of any type if the structure is not of this kind.
    """
def cache_directory() -> str | None:
    """
    Return the cache folder: `pumice` in PUMICE_CACHE_DIR, or else in XDG_CACHE_HOME, or else in ~/.cache; None if PUMICE_NO_CACHE is set (and not "0").
    """
def cache_entries(kind: str, folder: str = '') -> list[str]:
    """
    Return the sorted names of the entries of a kind.
    folder: return only entries in this folder of a nested kind.
    """
def cache_state() -> CacheState | None:
    """
    Return the state of the on-disk cache; None if PUMICE_NO_CACHE is set.
    """
def choose_device(devices: collections.abc.Sequence[DeviceInfo], variables: collections.abc.Mapping[str, str], nvml: str, kfd: str, wanted: str, environment: str) -> tuple[int, str]:
    """
    Return the index of the device that a Context would choose, and the reason.
    environment: value of PUMICE_DEVICE.
    Raise DeviceError.
    """
def compile(source: str, options: ShaderOptions = ..., macros: collections.abc.Mapping[str, str] = {}, name: str = 'shader', includes: collections.abc.Mapping[str, str] | None = None, profile: collections.abc.Mapping[str, str] | None = None, include_dirs: collections.abc.Sequence[str] = [], local_size: None | typing.SupportsInt | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = None) -> Shader:
    """
    Compile GLSL source to a Shader.
    macros: names (with parameters) -> text.
    includes: paths -> source.
    include_dirs: folders searched after `includes`.
    profile: device macros that replace the options' macros.
    local_size: workgroup size, one to three numbers, for a source that declares none. Excess invocations are guarded, unless the source uses shared memory, barriers or subgroup operations. A source without any local size is compiled as is, with a local size of 1.
    Raise ShaderCompileError, UnsupportedError, BindingError (K2: local_size).
    """
def compile_counts() -> CompileCounts:
    """
    Return how many shaders this process compiled and how many it found in the caches.
    """
def device_list() -> tuple[list[DeviceInfo], list[DeviceInfo], str]:
    """
    Return devices(), the devices hidden by CUDA_VISIBLE_DEVICES and similar variables, and the reason as text.
    """
def device_macros(context: Context) -> dict[str, str]:
    """
    Return the device macros of the GLSL extension, ncnn_<name> -> text, for extensions, features, properties and limits. Use them as the profile of compile() and ShaderOptions.
    """
def devices() -> list[DeviceInfo]:
    """
    Return the Vulkan devices that the environment makes visible to this process; empty if there is no loader or driver.
    """
def distinct_pipelines() -> list[str]:
    """
    Return a key for each distinct pipeline (shader, constants, subgroup size) that this process has created, i.e. that a driver had to compile.
    """
def dv_constants() -> dict[str, int]:
    """
    Return the constants used in command fields, by name.
    """
def dv_required_bytes(raw: bytes, strict: bool = False) -> list[tuple[str, int]]:
    ...
def dv_run_outputs(raw: bytes, strict: bool = False) -> list[tuple[int, int, int]]:
    ...
def dv_structures() -> dict[str, tuple[int, dict[str, tuple[int, str, int]]]]:
    """
    Return the size and fields of each raw structure by name; each field has an offset, format and count.
    """
def dv_total_size() -> int:
    """
    Return the total bytes of all dv memories in this process.
    """
def dv_version_string() -> str:
    ...
def embedded_shader(path: str) -> str:
    ...
def embedded_shaders() -> list[str]:
    """
    Return the paths of the engine's embedded shaders.
    """
def empty(shape: typing.Any, dtype: typing.Any, context: Context) -> Tensor:
    """
    Allocate a tensor with undefined content.
    """
def empty_host(shape: typing.Any, dtype: typing.Any, context: Context) -> np.typing.NDArray[typing.Any]:
    """
    Allocate a NumPy array with undefined content in device-accessible host memory.
    """
def empty_shared(shape: typing.Any, dtype: typing.Any, context: Context) -> Tensor:
    """
    Allocate a tensor with undefined content in exportable memory. Raise UnsupportedError naming the missing feature.
    """
def end_order() -> int:
    """
    End the thread's innermost order and return the id of its last submission, 0 if there was none.
    """
def evaluate_on_host(op: str, inputs: collections.abc.Iterable[TensorDesc | np.typing.NDArray[typing.Any] | typing.SupportsInt | typing.SupportsIndex | typing.SupportsFloat | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] | None], outputs: typing.SupportsInt | typing.SupportsIndex = 1, **kwargs: typing.Any) -> list[np.typing.NDArray[typing.Any]] | None:
    """
    Return the values of the outputs as arrays; None if the host cannot compute them.
    """
def forward_log() -> None:
    """
    Forward the engine's log messages since the last call to the logger "pumice".
    """
def from_dlpack(array: typing.Any, context: Context, copy: bool | None = None) -> Tensor:
    ...
def from_host(array: np.typing.NDArray[typing.Any], context: Context) -> Tensor:
    """
    Create a tensor on the array's memory, without a copy.
    """
def from_whc8(values: np.typing.NDArray[typing.Any], shape: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], layout: str | None = None) -> np.typing.NDArray[typing.Any]:
    """
    Convert WHC8 values to a new array of this shape, with axes as in layout. Inverse of to_whc8(), with the same errors.
    """
def fusions() -> dict[str, str]:
    """
    Return the fusions that compile() can apply: name, as accepted by `fuse`, -> summary.
    """
def glslang_accepts(extension: str) -> bool:
    """
    Return whether the shader compiler supports a GLSL extension.
    """
def glslang_version() -> str:
    """
    Return the version of the shader compiler, without loading anything.
    """
def graph_rules() -> dict[str, str]:
    """
    Return the rules of IF and WHILE by id; GraphError.rule contains the id.
    """
def has_operator(name: str, domain: str = '') -> bool:
    """
    Return whether the operator table has this operator in this domain (by default ONNX's).
    """
def included_files(source: str, name: str, includes: collections.abc.Mapping[str, str], include_dirs: collections.abc.Sequence[str]) -> list[str]:
    """
    Return the paths of all files that the shader file `name` includes, even conditionally, and the paths that were not found.
    """
def keep_spare(context: Context, spare: Context) -> None:
    """
    Keep an idle context as a spare until take_spare() returns it or `context` is closed, which closes the spare too. Only the latest spare is kept; a replaced or unusable one is closed, and so is the spare of an unusable context. Raise StateError if both contexts are the same.
    """
def log_pipelines(path: str, skipped: collections.abc.Set[str] = set()) -> None:
    """
    Append a line to a file before and after each pipeline is created in a compile-only context. Pipelines that fail, or whose key is in `skipped`, are left out of recordings instead of raising. For compile-check.
    """
def lose_device_after(context: Context, submissions: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Simulate a lost device: the queue reports it lost after this many further submissions. For tests.
    """
def nnapi_operations() -> list[NnapiOperation]:
    """
    Return all supported NNAPI operations, sorted by name.
    """
def nnapi_rules() -> dict[str, str]:
    """
    Return the rules of NNAPI operations by id; GraphError.rule contains the id.
    """
def onnx_skeleton(data: typing.Any, location: str) -> bytes | None:
    """
    Return the bytes of an ONNX file with the elements of large tensors replaced by external data at `location`; None if it is not a ModelProto or is very small. Raise Error if the file has been truncated.
    """
def operators() -> list[OperatorRow]:
    """
    Return all operators, sorted by name.
    """
def output_descs(op: str, inputs: collections.abc.Iterable[TensorDesc | np.typing.NDArray[typing.Any] | typing.SupportsInt | typing.SupportsIndex | typing.SupportsFloat | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] | None], outputs: typing.SupportsIndex = 1, **kwargs: typing.Any) -> list[TensorDesc | None]:
    """
    Return the packed TensorDescs of an operator's outputs, as Operator expects them; None for an omitted output.
    inputs: for each a TensorDesc, an array (known values), or None if omitted.
    outputs: number of outputs.
    attributes: by name.
    Raise GraphError, UnsupportedError.
    """
def pack_conv_weights(weights: np.typing.NDArray[typing.Any], bias: np.typing.NDArray[typing.Any] | None = None, *, table: np.typing.NDArray[typing.Any] | None = None, prelu: np.typing.NDArray[typing.Any] | None = None) -> bytes:
    """
    Pack the weights of a convolution or deconvolution.
    weights: float16 [kernels, channels, ky, kx] with kernel sides of 1 to 7 and 1 channel if depthwise; with `table`, uint8 indices.
    table: float16 [256]. Entry 0 should be 0.0, since padding has index 0.
    bias, prelu: float16 [kernels]; bias=None means zeros.
    Raise BindingError (D1, D3).
    """
def pack_dil_weights(weights: np.typing.NDArray[typing.Any], bias: np.typing.NDArray[typing.Any] | None = None, *, table: np.typing.NDArray[typing.Any] | None = None, prelu: np.typing.NDArray[typing.Any] | None = None) -> bytes:
    """
    Pack the weights of a dilated convolution.
    weights: float16 [kernels, channels, ky, kx] with kernel sides of 1 to 7 and 1 channel if depthwise; with `table`, uint8 indices.
    table: float16 [256]. Entry 0 should be 0.0, since padding has index 0.
    bias, prelu: float16 [kernels]; bias=None means zeros.
    Raise BindingError (D1, D3).
    """
def pack_fc_weights(weights: np.typing.NDArray[typing.Any], bias: np.typing.NDArray[typing.Any] | None = None, *, table: np.typing.NDArray[typing.Any] | None = None) -> bytes:
    """
    Pack the weights of a fully connected layer.
    weights: float16, or uint8 indices if there is a table, [outputs, inputs], [outputs, c, h, w] or [c, h, w, c, h, w]; outputs and inputs are reordered to WHC8.
    table: float16 [256].
    bias: float16 [outputs], not reordered; None: zeros.
    Raise BindingError (D1, D3).
    """
def precision_support(device: DeviceInfo) -> list[PrecisionSupport]:
    """
    Return how a device runs operators at each precision.
    device: from devices(), or the info of a context.
    """
def prune_cache() -> None:
    """
    Remove the least recently used entries if the cache exceeds its limit, and temporary files of killed writers. Keep files that pumice has not written.
    """
def quantize_weights(weights: np.typing.NDArray[typing.Any]) -> tuple[np.typing.NDArray[typing.Any], np.typing.NDArray[typing.Any]]:
    """
    Quantise weights to (indices, table) as the packers expect them: uint8 indices of the weights' shape and a float16 table [256].
    Entries 1 to 255 of the table are, in ascending order, the values that minimise the sum of squared errors (exact 1D k-means), rounded to float16; each weight maps to the nearest one. Entry 0 is 0.0, for weights of exactly 0. Up to 255 distinct float16 values are preserved.
    weights: float16, or float32, which is rounded.
    Raise BindingError (D3; D7 for NaN, infinity and values out of float16 range).
    """
def read_cache_entry(kind: str, name: str) -> bytes | None:
    """
    Return the payload of an entry; None if it is missing, truncated, corrupt, owned by another user, or writable by others.
    """
def reflect(spirv: bytes) -> dict[str, typing.Any]:
    """
    Return the interface of a SPIR-V module. Raise ShaderCompileError if it is malformed or stripped.
    """
def sha256(*args: typing.Any) -> str:
    """
    Return the SHA-256 of the concatenated parts, as 64 hexadecimal digits.
    """
def shared_tensor(context: Context, address: typing.SupportsInt | typing.SupportsIndex, dtype: typing.Any, shape: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], strides: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> Tensor | None:
    """
    Return the tensor at an address of the other API in this context's shared memory; None for any other address.
    """
def simulate_spills(patterns: collections.abc.Sequence[str]) -> None:
    """
    Treat kernel variants whose names match one of these wildcard patterns as spilling registers, in later plans of this process. For tests.
    """
def strides(shape: collections.abc.Sequence[typing.SupportsIndex], layout: str, broadcast: collections.abc.Sequence[bool] = []) -> tuple[int, ...]:
    """
    Return the strides of a layout in elements. Inverse of TensorDesc.layout.
    shape: in logical order.
    layout: 'NCHW', 'NHWC', 'NCDHW', 'NDHWC', any permutation of the letters of NCDHW, or of the letters from 'a' on, which name the axes in order ('acb').
    broadcast: marks axes of size 1 in memory, which get stride 0.
    Raise GraphError.
    """
def summarize_statistics(statistics: collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex]]) -> dict[str, typing.Any]:
    """
    Return the summary that the engine makes of these driver statistics. For tests.
    """
def take_log() -> list[tuple[int, str]]:
    """
    Return the engine's log messages since the last call: (level of the logging module, text).
    """
def take_spare(context: Context) -> Context:
    """
    Return the spare context kept for this device and hand over its ownership; None if there is no usable spare. Raise StateError if the context is closed, DeviceLostError if its device is lost.
    """
def take_validation_messages() -> list[str]:
    """
    Return the messages of the Khronos validation layer since the last call (needs PUMICE_VALIDATION=1).
    """
def tensor(array: np.typing.NDArray[typing.Any], context: Context) -> Tensor:
    """
    Create a row-major tensor from a copy of the array's elements.
    """
def to_whc8(array: np.typing.NDArray[typing.Any], layout: str | None = None) -> np.typing.NDArray[typing.Any]:
    """
    Return activations in WHC8 order, one image after another, as a 1D array of the same dtype.
    layout: axes of the array, the letters C, H, W and, for a batch, N in any order; None: 'CHW' or 'NCHW' by rank.
    Raise BindingError (D6), UnsupportedError for elements that are not 1, 2, 4 or 8 bytes.
    """
def unpack_conv_weights(packed: bytes | np.typing.NDArray[typing.Any], shape: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], *, quantized: bool = False, prelu: bool = False) -> UnpackedWeights:
    """
    Unpack the weights, biases and slopes packed by pack_conv_weights().
    packed: bytes, or a uint8 array; bytes after the packed weights are not read.
    shape: (kernels, channels, ky, kx).
    Raise BindingError (D1, D2, D3).
    """
def unpack_dil_weights(packed: bytes | np.typing.NDArray[typing.Any], shape: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], *, quantized: bool = False, prelu: bool = False) -> UnpackedWeights:
    """
    Unpack the weights, biases and slopes packed by pack_dil_weights().
    packed: bytes, or a uint8 array; bytes after the packed weights are not read.
    shape: (kernels, channels, ky, kx).
    Raise BindingError (D1, D2, D3).
    """
def unpack_fc_weights(packed: bytes | np.typing.NDArray[typing.Any], shape: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], *, quantized: bool = False) -> UnpackedWeights:
    """
    Unpack the weights and biases packed by pack_fc_weights().
    packed: as in unpack_conv_weights().
    shape: the shape of the weights, as in pack_fc_weights().
    Raise BindingError (D1, D2, D3).
    """
def visible_places(devices: collections.abc.Sequence[DeviceInfo], variables: collections.abc.Mapping[str, str], nvml: str, kfd: str) -> tuple[list[int], str]:
    """
    Return the indices of the devices that environment variables leave visible, in the order of devices(), and the reason as text.
    nvml: path of NVIDIA's management library.
    kfd: folder with the nodes of the kernel's compute topology.
    """
def whc8_index(shape: typing.Annotated[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], "FixedSize(3)"], channel: typing.SupportsInt | typing.SupportsIndex, y: typing.SupportsInt | typing.SupportsIndex, x: typing.SupportsInt | typing.SupportsIndex) -> int:
    """
    Return the index of an element of one image in WHC8.
    shape: (channels, height, width).
    Raise BindingError (D6).
    """
def write_cache_entry(kind: str, name: str, payload: bytes) -> bool:
    """
    Replace an entry atomically. Return False if the file could not be written.
    """
__version__: str = '0.1.0'
