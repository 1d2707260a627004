"""
The pumice engine: compute kernels and neural networks on any Vulkan device.
"""
from __future__ import annotations
import builtins
import collections.abc
import numpy as np
import numpy.typing
import typing
__all__: list[str] = ['AttributeSchema', 'BindingError', 'BindingProperties', 'BindingTable', 'BoundKernel', 'Buffer', 'BufferRange', 'Burst', 'CacheState', 'CommandList', 'CompileCounts', 'CompiledOperator', 'Context', 'DeviceError', 'DeviceInfo', 'DeviceLostError', 'DispatchTime', 'Dispatchable', 'DriverQuirk', 'DvCommandList', 'DvContext', 'DvMemory', 'Error', 'Event', 'Execution', 'Expression', 'Graph', 'GraphError', 'Image', 'IndexRangeError', 'Initializer', 'Kernel', 'MappedFile', 'MatrixShape', 'MemoryCounts', 'Message', 'NnapiOperand', 'NnapiOperation', 'Node', 'Operator', 'OperatorRow', 'OutOfBoundsError', 'OutOfMemoryError', 'OutputSizeError', 'PrecisionSupport', 'Program', 'ProgramRun', 'ProgramValue', 'Shader', 'ShaderCompileError', 'ShaderOptions', 'SharedTimeline', 'Slot', 'StateError', 'Submission', 'Tensor', 'TensorDesc', 'TimeoutError', 'UnpackedWeights', 'UnsupportedError', 'UploadMemory', 'Value', 'ValueRole', 'another_context', 'begin_order', 'binding_rules', 'buffer_size', 'cache_directory', 'cache_entries', 'cache_state', 'choose_device', 'compile', 'compile_counts', 'device_list', 'device_macros', 'devices', 'distinct_pipelines', 'dv_constants', 'dv_required_bytes', 'dv_run_outputs', 'dv_structures', 'dv_total_size', 'dv_version_string', 'embedded_shader', 'embedded_shaders', 'empty', 'empty_host', 'empty_shared', 'end_order', 'evaluate_on_host', 'forward_log', 'from_dlpack', 'from_host', 'from_whc8', 'fusions', 'glslang_accepts', 'glslang_version', 'graph_rules', 'has_operator', 'included_files', 'json_text', 'keep_spare', 'lose_device_after', 'nnapi_operations', 'nnapi_rules', 'onnx_skeleton', 'operators', 'output_descs', 'pack_conv_weights', 'pack_dil_weights', 'pack_fc_weights', 'parse_json', 'precision_support', 'prune_cache', 'quantize_weights', 'read_cache_entry', 'reflect', 'sha256', 'shared_tensor', 'spills_of', 'strides', 'take_log', 'take_spare', 'take_validation_messages', 'tensor', 'to_whc8', 'unpack_conv_weights', 'unpack_dil_weights', 'unpack_fc_weights', 'visible_places', 'whc8_index', 'write_cache_entry']
class Error(Exception):
    """
    Root of every error that pumice raises on purpose.
    """
class DeviceError(Error):
    """
    Vulkan refused, or there is no loader, driver or matching device.
    """
class DeviceLostError(DeviceError):
    """
    The context is dead, the process is not: a new Context works.
    """
class OutOfMemoryError(DeviceError, MemoryError):
    """
    Says how many bytes, of what, and the heap's budget.
    """
class ShaderCompileError(Error, ValueError):
    """
    The shader's text is wrong: file, line, message, the line and a caret.
    """
    messages: collections.abc.Sequence[str]
class BindingError(Error, ValueError):
    """
    A refused binding or argument: rule, slot, tensor, expected, given.
    """
    expected: str
    given: str
    rule: str
    slot: str
    tensor: str
class GraphError(Error, ValueError):
    """
    A graph or a model file breaks a rule: node, rule.
    """
    node: str
    rule: str
class UnsupportedError(Error, NotImplementedError):
    """
    Lists all that is not supported, in items.
    """
    items: collections.abc.Sequence[str]
class StateError(Error, RuntimeError):
    """
    A call in the wrong state: use after close, recording into a committed list; rule.
    """
    rule: str
class OutputSizeError(Error, ValueError):
    """
    The caller's array is too small for an output: output, and its true shape.
    """
    output: str
    shape: collections.abc.Sequence[str]
class OutOfBoundsError(Error, IndexError):
    """
    A kernel with debug=True reached past an array in a buffer: kernel, file, line, buffer, index, size, invocation of the first access; count of all.
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
    A program with check_indices=True has met an index out of range, or a call has handed one to an operation of NNAPI: node, value (the name of the indices), index and element of the first; count of all.
    """
    count: int
    element: collections.abc.Sequence[str]
    index: int
    node: str
    value: str
class MappedFile:
    """
    A file as read-only bytes, read as they are needed.
    """
    def __init__(self, descriptor: typing.SupportsInt | typing.SupportsIndex, name: str) -> None:
        """
        descriptor: an open regular file, which may be closed afterwards. name: what messages call the file. Raises Error.
        """
    def view(self) -> memoryview:
        """
        The file's bytes, read-only and not copied.
        """
class TensorDesc:
    """
    What a tensor looks like in memory: dtype, shape, strides in elements. A value: it is immutable and can be
    compared, hashed and pickled.
    """
    @staticmethod
    def _repr_html_(shown: typing.Any) -> str:
        ...
    @staticmethod
    def with_layout(dtype: typing.Any, shape: collections.abc.Sequence[typing.SupportsIndex], layout: str, broadcast: collections.abc.Sequence[bool] = []) -> TensorDesc:
        """
        A TensorDesc with the strides that pumice.strides gives for the layout. Raises GraphError.
        """
    def __eq__(self, other: object) -> bool:
        ...
    def __getstate__(self) -> tuple[typing.Any, ...]:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, dtype: typing.Any, shape: collections.abc.Sequence[typing.SupportsIndex], strides: collections.abc.Sequence[typing.SupportsIndex] | None = None, owned: bool = False, alignment: typing.SupportsIndex = 0, scale: None | typing.SupportsFloat | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] = None, zero_point: typing.SupportsIndex | None = None, channel_axis: typing.SupportsIndex | None = None, total_bytes: typing.SupportsIndex | None = None) -> None:
        """
        shape and strides in elements (packed row-major unless given; 0 broadcasts). owned: bound at initialisation only. alignment: guaranteed base
        offset in bytes. scale, zero_point: of a quantized tensor; scale is a number, or one for each channel of channel_axis. total_bytes: size of
        the whole tensor, padding after its last element included; None: what sizes and strides reach over.
        Raises GraphError (rules R4, R5, R6, R8).
        """
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple[typing.Any, ...]) -> None:
        ...
    def broadcast_to(self, shape: collections.abc.Sequence[typing.SupportsIndex]) -> TensorDesc:
        """
        A TensorDesc of this shape, as numpy.broadcast_to makes one: the new axes have stride 0. Raises GraphError.
        """
    def packed(self) -> TensorDesc:
        """
        A TensorDesc of the same sizes with packed strides.
        """
    def packed_strides(self) -> tuple[int, ...]:
        ...
    def pad_rows(self, multiple: typing.SupportsIndex) -> TensorDesc:
        """
        A TensorDesc that is packed again, with rows (the innermost axis in memory) a multiple of so many elements apart; the order of axes stays.
        """
    def permute(self, axes: collections.abc.Sequence[typing.SupportsIndex]) -> TensorDesc:
        """
        A TensorDesc with its axes in another order, as numpy.transpose; negative axes count from the end. Raises GraphError.
        """
    @property
    def alignment(self) -> int:
        ...
    @property
    def bytes(self) -> int:
        """
        Size in bytes: total_bytes, or where none was given from element 0 to the last one reached, rounded up to 4; 0 where a size is 0.
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
        Whether the strides are row-major without gaps; axes of size 1 may have any stride.
        """
    @property
    def layout(self) -> str | None:
        """
        The name that pumice.strides gives these strides for, axes of stride 0 taken as broadcast; None where there is none.
        """
    @property
    def overlaps(self) -> bool:
        """
        Whether two indices reach one element (rule R9).
        """
    @property
    def owned(self) -> bool:
        ...
    @property
    def physical_shape(self) -> tuple[int, ...]:
        """
        The shape in memory: axes of stride 0 are of size 1.
        """
    @property
    def rank(self) -> int:
        ...
    @property
    def required_alignment(self) -> int:
        """
        Alignment in bytes: the offset at which the tensor is bound is a multiple of it (rule R3).
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
    The cache on disk: shaders, pipelines, graphs and measurements.
    """
    def __repr__(self) -> str:
        ...
    @property
    def bytes(self) -> int:
        """
        The disk space that the entries occupy.
        """
    @property
    def files(self) -> int:
        """
        The number of entries. Files that pumice has not written are not counted.
        """
    @property
    def folder(self) -> str:
        ...
    @property
    def limit(self) -> int:
        """
        The maximum size in bytes. Above it the least recently used entries are removed. PUMICE_CACHE_MB sets it.
        """
class MatrixShape:
    """
    One cooperative-matrix shape at subgroup scope: [m, k] x [k, n] -> [m, n].
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
    Identity, kind, features and limits of a Vulkan device: a value, which can be compared, hashed and pickled.
    """
    @staticmethod
    def _repr_html_(shown: typing.Any) -> str:
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
        The Vulkan version, 'major.minor.patch'.
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
        The driver's VkDriverId.
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
        Vulkan extension names -> spec version.
        """
    @property
    def features(self) -> dict[str, bool]:
        """
        Vulkan feature names -> available.
        """
    @property
    def index(self) -> int:
        """
        The device's position in devices(); -1 for one that the environment hides.
        """
    @property
    def kind(self) -> str:
        """
        'discrete', 'integrated', 'virtual', 'software' or 'other'.
        """
    @property
    def limits(self) -> dict[str, int]:
        """
        Vulkan limit names -> value; arrays as name_0, name_1, ...
        """
    @property
    def matrices(self) -> list[MatrixShape]:
        """
        Cooperative-matrix shapes, empty where the device has none.
        """
    @property
    def memory_bytes(self) -> int:
        """
        Bytes of the largest device-local heap.
        """
    @property
    def name(self) -> str:
        ...
    @property
    def pci(self) -> str:
        """
        PCI address ('0000:3b:00.0'), empty where unknown.
        """
    @property
    def uuid(self) -> str:
        """
        The device's UUID, 32 hexadecimal digits, stable across processes.
        """
    @property
    def vendor_id(self) -> int:
        ...
class DriverQuirk:
    """
    A way in which a driver does otherwise than Vulkan says, or than the engine could wish.
    """
    def __repr__(self) -> str:
        ...
    @property
    def answer(self) -> str:
        """
        A sentence that says what the engine does about the quirk.
        """
    @property
    def name(self) -> str:
        ...
    @property
    def shown(self) -> bool:
        """
        Whether a trial of this driver has shown the quirk; else the driver is known for it, or the Context was told to assume it.
        """
    @property
    def summary(self) -> str:
        """
        A sentence that says what the driver does.
        """
    @property
    def test(self) -> str:
        """
        The test of the engine's suite that shows the quirk.
        """
class MemoryCounts:
    """
    Live device memory of a Context.
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
    One logical device with its queue, timeline, allocator and features. Thread-safe; a context manager.
    """
    @staticmethod
    def _repr_html_(shown: typing.Any) -> str:
        ...
    def __enter__(self) -> Context:
        ...
    def __exit__(self, *args: typing.Any) -> None:
        ...
    @typing.overload
    def __init__(self, device: str = '', without: collections.abc.Sequence[str] = [], limits: collections.abc.Mapping[str, typing.SupportsInt | typing.SupportsIndex] = {}, quirks: collections.abc.Sequence[str] = []) -> None:
        """
        device: '' (PUMICE_DEVICE, else the best one), 'uuid:...', 'pci:...', an index, a kind ('discrete', 'software') or part of a name.
        without: features and extensions to do without, so that fallbacks can be tested.
        limits: Vulkan limit names -> values to keep to instead of the device's own, so that what is done on lesser devices can be tested; 'maxComputeWorkGroupCount' stands for all three axes, 'maxComputeWorkGroupCount_1' for one.
        quirks: names of DriverQuirks that the driver is taken to have, so that what is done about them can be tested.
        Raises DeviceError listing the devices there are, UnsupportedError for a name that the engine does not know or decide by, or a limit that the device does not have.
        """
    @typing.overload
    def __init__(self, index: typing.SupportsIndex) -> None:
        """
        The device at this position of devices().
        """
    def __repr__(self) -> str:
        ...
    def close(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Waits for the work in flight and frees the device. Idempotent. Where no execution finishes for `timeout` seconds (None: patience) the context is abandoned, which the logger "pumice" says as an error. Ctrl-C interrupts, and the context stays open then.
        """
    def feature(self, name: str) -> bool:
        """
        Whether a Vulkan feature is enabled.
        """
    def limit(self, name: str) -> int:
        """
        A Vulkan limit by name.
        """
    def wait(self, id: typing.SupportsIndex, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Waits for an execution by its id; timeout in seconds. Raises StateError (L7) for an id that was never given, TimeoutError,
        DeviceLostError, OutOfBoundsError.
        """
    def wait_idle(self) -> None:
        """
        Waits for everything submitted so far. Raises DeviceLostError, and OutOfBoundsError of a debugged kernel's execution that no wait has raised.
        """
    @property
    def abandoned(self) -> bool:
        """
        Whether close() gave up an execution that did not end: what the device may still use is never freed, and whatever needs the device raises DeviceLostError.
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
    def completed(self) -> int:
        """
        Id of the last execution that has finished.
        """
    @property
    def driver_quirks(self) -> list[DriverQuirk]:
        """
        The ways in which this driver does otherwise than Vulkan says, each with the engine's answer. The trial of the driver runs now where it has not run yet.
        """
    @property
    def info(self) -> DeviceInfo:
        """
        The device, with its features as enabled here.
        """
    @property
    def memory(self) -> MemoryCounts:
        """
        Counts of live buffers, images and device allocations.
        """
    @property
    def patience(self) -> float:
        """
        Seconds without any execution finishing after which close() and the end of the process abandon the context: PUMICE_ABANDON_SECONDS (30 where it is not set), and on top the longest execution that was waited for.
        """
    @property
    def pipelines_created(self) -> int:
        ...
    @property
    def submitted(self) -> int:
        """
        Id of the last execution submitted.
        """
    @property
    def without(self) -> list[str]:
        """
        The features and extensions that the context does without.
        """
class Buffer:
    """
    A byte range of device memory; a context manager.
    """
    def __enter__(self) -> Buffer:
        ...
    def __exit__(self, *args: typing.Any) -> None:
        ...
    def __init__(self, context: Context, bytes: typing.SupportsIndex, heap: str = 'default') -> None:
        """
        bytes of memory in the heap 'default' (device), 'upload' (host writes) or 'readback' (host reads); content undefined. Raises OutOfMemoryError, BindingError (M5) for a negative number.
        """
    def __repr__(self) -> str:
        ...
    def _export_memory(self) -> int:
        """
        A new file descriptor of a shared buffer's memory, which the caller owns.
        """
    def _set_mapping(self, address: typing.SupportsInt | typing.SupportsIndex, device: typing.SupportsInt | typing.SupportsIndex, owner: typing.Any) -> None:
        """
        Notes where the other interface has the memory. The owner is kept as long as the memory is.
        """
    def close(self) -> None:
        """
        Frees the memory once the work in flight has finished. Idempotent.
        """
    def map(self) -> np.typing.NDArray[np.uint8]:
        """
        The whole buffer as a NumPy array of uint8, without a copy. Raises StateError where the host cannot see the memory.
        """
    def sync_end(self) -> None:
        ...
    def sync_start(self, read: bool = True, write: bool = True) -> None:
        """
        Marks the start of host access; reading waits for the work submitted so far.
        """
    def unmap(self) -> None:
        """
        Ends host access. Idempotent.
        """
    @property
    def _allocated_bytes(self) -> int:
        """
        The size of the allocation, which an import states.
        """
    @property
    def _mapping(self) -> tuple[int, int] | None:
        """
        The address of a shared buffer in the other interface, and that interface's number of the device; None for any other buffer.
        """
    @property
    def _views(self) -> int:
        """
        Arrays of others that see the buffer's memory and keep it.
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
        The number by which refusals name the buffer.
        """
    @property
    def mappable(self) -> bool:
        ...
    @property
    def mapped(self) -> bool:
        ...
class BufferRange:
    """
    A part of a buffer, in bytes.
    """
    def __init__(self, buffer: Buffer, offset: typing.SupportsIndex = 0, bytes: typing.SupportsIndex | None = None) -> None:
        """
        offset and size in bytes; None: up to the end of the buffer. Whether the range lies inside the buffer is checked where it is bound.
        Raises BindingError (R1) for a negative number.
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
    A TensorDesc and the buffer that holds it; views share the buffer and keep it alive. While the buffer is mapped the
    buffer protocol gives the memory itself. Arithmetic, comparisons and bitwise operators are NumPy's: they run on the
    device, broadcast, and give a new Tensor of the dtype that NumPy gives; the type of a Python number gives way to the
    tensor's. == compares elements and gives a Tensor of bool, so that tensors have no hash.
    """
    __array_priority__: typing.ClassVar[float] = 1000.0
    __hash__: typing.ClassVar[None]  # type: ignore[assignment]
    @staticmethod
    def _repr_html_(shown: typing.Any) -> str:
        ...
    def __abs__(self) -> Tensor:
        ...
    def __add__(self, arg0: typing.Any) -> Tensor:
        ...
    def __and__(self, arg0: typing.Any) -> Tensor:
        ...
    def __array__(self, dtype: typing.Any = None, copy: typing.Any = None) -> typing.Any:
        """
        The elements that numpy() gives, converted to dtype on the host. Raises ValueError for copy=False.
        """
    def __bool__(self) -> bool:
        ...
    def __contains__(self, value: typing.Any) -> bool:
        ...
    def __divmod__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __dlpack__(self, *, stream: typing.Any = None, max_version: tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex] | None = None, dl_device: tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex] | None = None, copy: bool | None = None) -> typing.Any:
        """
        A DLPack capsule of the elements as an array of the CPU, when the work submitted so far is done. It shares the tensor's memory
        where the host sees that and copy is not True; else it holds a copy. From max_version 1 on the capsule is versioned.
        Memory that empty(share="cuda") made is exported as an array of CUDA; stream=-1 leaves out the wait.
        Raises BufferError for another device, a stream, a 4-bit dtype, and copy=False where a copy is needed.
        """
    def __dlpack_device__(self) -> tuple[int, int]:
        """
        (1, 0): the CPU; (2, number) for memory shared with a CUDA device.
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
        A view: integers drop an axis, slices with steps from 1 on keep it, None adds one. Raises IndexError, and GraphError for what no
        strides from 0 on express: a negative step, arrays.
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
        offset: place of the first element in the buffer, in elements. Raises BindingError (R1) where the buffer is too small.
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
        Overwrites the elements of the view [key] with a number, or with an array or Tensor of the same dtype that broadcasts to its
        shape. Raises as upload and fill do.
        """
    def __sub__(self, arg0: typing.Any) -> Tensor:
        ...
    def __truediv__(self, arg0: typing.Any) -> Tensor:
        ...
    def __xor__(self, arg0: typing.Any) -> Tensor:
        ...
    def all(self) -> bool:
        """
        Whether no element is zero; True where there are no elements.
        """
    def any(self) -> bool:
        """
        Whether an element is not zero; False where there are no elements.
        """
    def broadcast_to(self, shape: collections.abc.Sequence[typing.SupportsIndex]) -> Tensor:
        """
        A view with strides of 0, as numpy.broadcast_to. Raises GraphError.
        """
    def contiguous(self) -> Tensor:
        """
        The tensor itself where is_contiguous, else a copy.
        """
    def copy(self) -> Tensor:
        """
        A packed copy with memory of its own, made on the device (4-bit dtypes: through the host).
        """
    def expand_dims(self, axis: typing.SupportsIndex) -> Tensor:
        """
        A view with a new axis of size 1 at this place. Raises GraphError.
        """
    def fill(self, value: typing.Any) -> None:
        """
        Sets all elements to a number. Raises BindingError (K6) where an integer dtype does not hold it.
        """
    def item(self) -> typing.Any:
        """
        The one element as a Python number. Raises BindingError (K5) where there are more or none.
        """
    def numpy(self, out: np.typing.NDArray[typing.Any] | None = None) -> np.typing.NDArray[typing.Any]:
        """
        A NumPy array with the tensor's elements, row-major; waits for the work submitted so far. Elements that NumPy lacks are those
        of ml_dtypes. out: the array, of the tensor's dtype and shape, writable and C-contiguous; None: a new one. Raises BindingError
        (K5) for another one.
        """
    def reshape(self, shape: typing.Any) -> Tensor:
        """
        A view of another shape, one size of which may be -1. Raises GraphError where elements would have to be moved.
        """
    def squeeze(self, axis: typing.SupportsIndex | collections.abc.Sequence[typing.SupportsIndex] | None = None) -> Tensor:
        """
        A view without axes of size 1: all, or those named. Raises GraphError.
        """
    def to(self, dtype: typing.Any) -> Tensor:
        """
        A packed copy of another dtype, converted on the device as the operator Cast does: floats are rounded to nearest even. The tensor
        itself where the dtype is the same. Raises UnsupportedError naming a dtype that Cast does not take.
        """
    def tolist(self) -> typing.Any:
        """
        The elements as nested lists of Python numbers.
        """
    def transpose(self, axes: collections.abc.Sequence[typing.SupportsIndex] | None = None) -> Tensor:
        """
        A view with the axes in another order; reversed where none is given.
        """
    def upload(self, array: np.typing.NDArray[typing.Any]) -> None:
        """
        Overwrites the elements, ordered after the work submitted so far. array: same dtype and shape, any strides and byte order.
        Raises BindingError (K5), GraphError where elements of this view share memory, UnsupportedError for strided 4-bit views.
        """
    @property
    def T(self) -> Tensor:
        """
        A view with the axes reversed.
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
        Whether the elements are row-major and begin at an offset that every kernel takes: .contiguous() is the tensor itself then.
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
        Place of the first element in the buffer, in elements.
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
    A timeline semaphore of a context that another interface imports by a file descriptor.
    """
    def __init__(self, context: Context) -> None:
        """
        Raises UnsupportedError naming what is missing.
        """
    def export_semaphore(self) -> int:
        """
        A new file descriptor, which the caller owns.
        """
    @property
    def value(self) -> int:
        ...
class Image:
    """
    Texels in device memory, for the images of kernels; a context manager.
    """
    def __array__(self, dtype: typing.Any = None, copy: typing.Any = None) -> typing.Any:
        ...
    def __enter__(self) -> Image:
        ...
    def __exit__(self, *args: typing.Any) -> None:
        ...
    def __init__(self, context: Context, format: typing.Any, shape: typing.Any, *, filter: typing.Any = 'nearest', address: typing.Any = 'clamp', normalized: typing.Any = None) -> None:
        """
        format: as GLSL names it: floats 'r32f', 'rg32f', 'rgba32f', 'r16f', 'rg16f', 'rgba16f'; bytes that a shader sees as floats from 0 to 1 'r8', 'rg8', 'rgba8'; whole numbers 'r32ui', 'rg32ui', 'rgba32ui', 'r16ui', 'r8ui', 'rgba8ui', 'r32i', 'rg32i', 'rgba32i', 'r16i', 'r8i'. shape: [width], [height, width] or [depth, height, width], as an array with the texels has it, with 2 or 4 channels last in the rg and rgba formats; a shader's position is (x, y, z) = (width, height, depth). The content is undefined.
        The sampler serves texture functions; texelFetch and storage images do not use it. filter: 'nearest' or 'linear'. address: 'clamp', 'repeat' or 'border' (zeros). normalized: whether its coordinates are 0 to 1, or in texels; None: in texels where that is possible, which is in one and two dimensions without 'repeat'.
        Raises UnsupportedError for what the device does not take, OutOfMemoryError.
        """
    def __repr__(self) -> str:
        ...
    def close(self) -> None:
        """
        Frees the memory once the work in flight has finished. Idempotent.
        """
    def numpy(self) -> np.typing.NDArray[typing.Any]:
        """
        A copy of the texels, of the image's shape; waits for the work submitted so far.
        """
    def upload(self, array: np.typing.NDArray[typing.Any]) -> None:
        """
        Overwrites the texels; same shape, elements that convert exactly. Ordered after the work submitted so far. Raises BindingError.
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
        The number of axes without the channels, 1 to 3.
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
    The target that a shader is compiled for, as explicit data: compiling needs no GPU.
    """
    __hash__: typing.ClassVar[None]  # type: ignore[assignment]
    def __eq__(self, other: object) -> bool:
        ...
    def __init__(self, *, storage: str = 'fp32', fp16_arithmetic: bool = False, fp16_uniform: bool = False, int8_storage: bool = False, int8_packed: bool = False, int8_arithmetic: bool = False, int8_uniform: bool = False, int16_storage: bool = False, int16_packed: bool = False, shader_local_memory: bool = False, generation: str = 'current', image_storage: bool = False, subgroup: collections.abc.Set[str] = set(), int64: bool = True, int16: bool = True, int8: bool = True, storage_16bit: bool = True, fp16_rounds_to_even: bool = False, vulkan_minor: typing.SupportsInt | typing.SupportsIndex = 1, profile: collections.abc.Mapping[str, str] = {}, debug: bool = False, guard: bool = True) -> None:
        """
        storage: 'fp32', 'fp16', 'fp16_packed', 'bf16' or 'bf16_packed'; fp16_arithmetic: afp is half; fp16_uniform: so is lfp.
        int8_*, int16_*: the integer families; _storage goes before _packed.
        generation: 'current', or '2024' with images, pack8 and sfp2lfp, where the sfp of a packed storage is a float of 4 bytes
        (in the current one two elements share a word); image_storage and subgroup ('basic', 'vote', 'ballot', 'shuffle') are of 2024.
        int64 to fp16_rounds_to_even: what the device can do; vulkan_minor: the target, Vulkan 1.x; profile: device macros, name -> text.
        debug: accesses are checked, as Kernel(debug=True) says.
        guard: False compiles a text without a local size as it stands, without push constants of the engine's own: it checks its
        bounds itself, and is launched by whole workgroups, of one invocation where local_size= says nothing.
        """
    def __repr__(self) -> str:
        ...
    @property
    def generation(self) -> str:
        ...
    @property
    def preamble(self) -> str:
        """
        The whole text of the GLSL extension for these options; a shader gets the parts that it names.
        """
    @property
    def profile(self) -> dict[str, str]:
        ...
    @property
    def storage(self) -> str:
        ...
class Shader:
    """
    A compiled shader and its interface, read from the SPIR-V.
    """
    @staticmethod
    def _repr_html_(shown: typing.Any) -> str:
        ...
    def __repr__(self) -> str:
        ...
    def disassemble(self) -> str:
        """
        The SPIR-V as text.
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
        The text that stood before the shader's own.
        """
    @property
    def report(self) -> dict[str, str]:
        """
        Device macros of the profile that the shader did not see, since the shader compiler lacks their GLSL extension: macro -> why.
        """
    @property
    def spirv(self) -> bytes:
        ...
    @property
    def warnings(self) -> list[str]:
        ...
class CompileCounts:
    """
    Shaders of this process: compiled, and found in the caches.
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
    A message that one invocation of a kernel printed.
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
        The invocation's gl_GlobalInvocationID, (x, y, z).
        """
    @property
    def line(self) -> int:
        ...
    @property
    def text(self) -> str:
        ...
class BoundKernel:
    """
    A kernel with its arguments; CommandList.dispatch records it.
    """
    def __repr__(self) -> str:
        ...
    @property
    def groups(self) -> typing.Annotated[list[int], "FixedSize(3)"] | None:
        """
        The workgroups on each axis; None where the device reads them from a tensor.
        """
class Kernel:
    """
    A compute shader in GLSL with the extension's types; called with its arguments by name.
    """
    def __init__(self, source: str, context: Context, name: str = 'kernel', macros: collections.abc.Mapping[str, str] = {}, spec: dict[str, typing.Any] = {}, includes: collections.abc.Mapping[str, str] | None = None, options: None | ShaderOptions | dict[str, typing.Any] = None, include_dirs: collections.abc.Sequence[str] = [], path: str = '', debug: bool = False, message_bytes: typing.SupportsInt | typing.SupportsIndex = 1048576, local_size: None | typing.SupportsInt | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = None, spirv: bytes = b'') -> None:
        """
        source: GLSL text. macros: names -> text. spec: specialization constants -> values. includes: paths -> text. options: ShaderOptions replace those that follow from the device and the arrays; arrays are then of the types that the shader declares. A dict of some of their keywords changes these alone. include_dirs: folders that #include looks into. path: the file that the source is from. debug: bounds are checked. message_bytes: size of the ring for printf. local_size: invocations of a workgroup, for a text that declares none. spirv: a module in place of the source.
        Raises ShaderCompileError, UnsupportedError, BindingError.
        """
    def __repr__(self) -> str:
        ...
    def _driver_record(self, storage: str | None = None) -> dict[str, typing.Any]:
        """
        What the driver tells of one build, by default the plain one.
        """
    def _layout(self, name: str) -> typing.Any:
        """
        The sizes of a buffer's element, or of its block, in the fp32 build: (without gaps, with gaps, the same of members by name). None where there are more members than can be told.
        """
    def _replace(self, other: Kernel) -> None:
        """
        Makes this kernel what the other one is.
        """
    def bind(self, *args: typing.Any, **kwargs: typing.Any) -> BoundKernel:
        """
        A BoundKernel for command lists: Tensors, Images and push constants by name, and threads= or groups=.
        """
    def disassemble(self) -> str:
        """
        The SPIR-V of the fp32 build (or that of the given options) as text.
        """
    def dtype(self, name: str, length: typing.SupportsInt | typing.SupportsIndex | None = None) -> np.dtype[typing.Any]:
        """
        The NumPy dtype of one element of an array in a buffer, in the fp32 build. A structure has the offsets that the shader has, and a vec3 the gap behind it (4 numbers), so that numpy.zeros(n, dtype) has the right shape. A block with more members than an array gives the dtype of the whole block; length: that of the array of any length at its end.
        Raises BindingError.
        """
    def run(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        """
        Runs the kernel once and waits, for `timeout` seconds at most (None: without an end). Arguments by name: Tensors, NumPy arrays (copied in, and back where the kernel writes them), Images, and push constants: numbers, sequences of them for vectors, matrices (by columns) and arrays, dicts for structures; threads= or groups=. The first call with arrays of some types makes a kernel, which some drivers compile at its first dispatch: it takes longer than all others.
        """
    def take_messages(self) -> list[Message]:
        """
        The messages, which are then forgotten.
        """
    @property
    def messages(self) -> list[Message]:
        """
        The messages that printf wrote in executions that were waited for, until take_messages(); the latest 100,000.
        """
    @property
    def messages_lost(self) -> int:
        """
        The number of messages that found no room, since take_messages().
        """
    @property
    def name(self) -> str:
        ...
    @property
    def shader(self) -> Shader:
        """
        The fp32 build (or that of the given options).
        """
    @property
    def source(self) -> str:
        ...
    @property
    def variants(self) -> dict[str, Shader]:
        """
        The builds so far: storage name -> Shader. A call makes the one that its arrays need.
        """
class BindingProperties:
    """
    The numbers of descriptors and bytes that a dispatchable needs bound.
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
        The TensorDesc; None for an optional tensor that is described as absent.
        """
    @property
    def name(self) -> str:
        ...
class Dispatchable:
    """
    Compiled operators, compiled graphs and initializers.
    """
    def supports_in_place(self, input: typing.SupportsIndex = 0, output: typing.SupportsIndex = 0) -> bool:
        """
        Whether that output may be bound to the range of that input, where both have one description.
        """
    @property
    def binding_properties(self) -> BindingProperties:
        """
        The BindingProperties, which a reset of an initializer changes.
        """
    @property
    def context(self) -> Context:
        ...
    @property
    def inputs(self) -> list[Slot]:
        """
        The Slots in order; an initializer has one for each operator.
        """
    @property
    def name(self) -> str:
        ...
    @property
    def outputs(self) -> list[Slot]:
        ...
class BindingTable:
    """
    Checks every binding rule at the call; a refused call (BindingError) changes nothing. Not thread-safe.
    """
    def __init__(self, dispatchable: Dispatchable, descriptors: typing.SupportsIndex | None = None) -> None:
        """
        A table for a dispatchable. descriptors: how many the table may use; None: as many as are needed. Raises BindingError (C10).
        """
    def __repr__(self) -> str:
        ...
    def bind(self, **kwargs: typing.Any) -> None:
        """
        Binds all inputs and outputs at once, by the names of their slots; those not named are bound to nothing. Raises BindingError.
        """
    def bind_inputs(self, bindings: typing.Any) -> None:
        """
        Binds every input to None, a Tensor, a Buffer or a BufferRange; those of an initializer to a list of these for every operator. None or an empty list unbinds all. Raises BindingError.
        """
    def bind_outputs(self, bindings: typing.Any) -> None:
        """
        Binds every output, as bind_inputs does; those of an initializer are the persistent resources of the operators. Raises BindingError.
        """
    def bind_persistent(self, binding: typing.Any) -> None:
        """
        Binds the resource to a Buffer, a BufferRange or a Tensor; None unbinds it. Raises BindingError.
        """
    def bind_temporary(self, binding: typing.Any) -> None:
        """
        Binds the resource to a Buffer, a BufferRange or a Tensor; None unbinds it. Raises BindingError.
        """
    def reset(self, dispatchable: Dispatchable, descriptors: typing.SupportsIndex | None = None) -> None:
        """
        Unbinds all and serves another dispatchable. Raises BindingError.
        """
    def time_bindings(self, inputs: typing.Any, outputs: typing.Any, runs: typing.SupportsIndex) -> list[float]:
        """
        Seconds of each of `runs` bindings of both lists, measured without Python in between; the lists are copied each time.
        """
    def unbind(self) -> None:
        ...
    @property
    def dispatchable(self) -> Dispatchable:
        ...
class Submission:
    """
    One execution in flight or finished; int() gives its id on the context's timeline.
    """
    def __index__(self) -> int:
        ...
    def __int__(self) -> int:
        ...
    def __repr__(self) -> str:
        ...
    def wait(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Waits until the execution has finished; timeout in seconds. Raises TimeoutError, DeviceLostError, OutOfBoundsError.
        """
    @property
    def cold(self) -> bool:
        """
        Whether a kernel ran for the first time in this execution, whose time may then include the driver's compilation.
        """
    @property
    def device_seconds(self) -> float | None:
        """
        Time on the device; None unless committed with timing and finished.
        """
    @property
    def device_time(self) -> float | None:
        """
        Time on the device, as device_seconds.
        """
    @property
    def done(self) -> bool:
        ...
    @property
    def id(self) -> int:
        ...
class DispatchTime:
    """
    How long the device took for one dispatch.
    """
    def __repr__(self) -> str:
        ...
    @property
    def cold(self) -> bool:
        """
        Whether the dispatch's kernel ran for the first time; the time may then include the driver's compilation.
        """
    @property
    def label(self) -> str:
        """
        The node's name, or the kernel's.
        """
    @property
    def seconds(self) -> float:
        ...
class CommandList:
    """
    A list of dispatches and copies: recorded, committed once, executed many times. Barriers are derived.
    """
    def __init__(self, context: Context) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def commit(self, timing: bool = False, profile: bool = False) -> None:
        """
        Ends the recording. timing: the device time of an execution is measured. profile: that of every dispatch is.
        """
    def copy(self, source: typing.Any, target: typing.Any) -> None:
        ...
    @typing.overload
    def dispatch(self, dispatchable: Dispatchable, table: BindingTable) -> None:
        """
        Records a dispatch. The table is read at once; where the dispatchable was compiled with DESCRIPTORS_VOLATILE, at every exec. Raises BindingError.
        """
    @typing.overload
    def dispatch(self, kernel: BoundKernel) -> None:
        ...
    def exec(self) -> Submission:
        """
        Submits the list once, and returns at once. The first dispatch of a kernel may have the driver's compilation in it, which
        Submission.cold tells and warm_up() has done beforehand.
        """
    def time(self, runs: typing.SupportsIndex, warm_up: typing.SupportsIndex | None = None) -> list[float]:
        """
        Seconds from exec to result of each of `runs` executions, measured without Python in between: the device's own submit
        and wait. warm_up: executions before them that are not measured; None: one where a kernel of the list has not run yet,
        which some drivers compile at its first dispatch.
        """
    def wait(self, id: typing.SupportsIndex, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Waits for an execution by its id; timeout in seconds. Raises StateError (L7) for an id that was never given, TimeoutError,
        DeviceLostError, OutOfBoundsError.
        """
    def warm_up(self, runs: typing.SupportsIndex = 1) -> None:
        """
        Executes the list and waits, so that what a driver compiles at a first dispatch is not in later times. Raises as exec
        and wait do.
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
        A DispatchTime of every dispatch of the last execution; needs commit(profile=True).
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
        Features of the device and extensions of the shader compiler that native storage and matrix units would need.
        """
    @property
    def matrices(self) -> bool:
        """
        Whether matrix units multiply numbers of this precision and sum in float32.
        """
    @property
    def precision(self) -> str:
        ...
    @property
    def storage(self) -> str:
        """
        The type that floats are stored as inside: 'fp32', 'fp16', 'fp16_packed', 'bf16' or 'bf16_packed'.
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
        Element types that are supported; none: ONNX has the value, the engine does not.
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
        A letter that the values of one element type share; empty for a type of its own.
        """
    @property
    def variadic(self) -> bool:
        """
        Whether any number of values may stand from here on.
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
        The values that are supported; none: any.
        """
    @property
    def default(self) -> typing.Any:
        """
        The value of an attribute that is not given; None where it is required or may be left out.
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
    One operator of the table, in the newest form of its ONNX operator.
    """
    def __repr__(self) -> str:
        ...
    @property
    def attributes(self) -> list[AttributeSchema]:
        ...
    @property
    def expression(self) -> str:
        """
        The expression that an elementwise operator computes; empty for all others.
        """
    @property
    def host_inputs(self) -> list[int]:
        """
        Inputs whose values have to be known on the host: axes, shapes, counts.
        """
    @property
    def in_place(self) -> list[tuple[str, str]]:
        """
        (input, output) pairs of which the output may be the input's memory, where the operator is one dispatch.
        """
    @property
    def index_input(self) -> int | None:
        """
        The input of indices or lengths, of which check_indices=True reports those that are out of range; None: there is none.
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
        The least and the largest rank of the first input.
        """
    @property
    def skeleton(self) -> str:
        """
        The kind of kernel that the operator lowers to.
        """
class Expression:
    """
    A typed scalar expression over named parameters: the meaning of an elementwise operator.
    """
    def __init__(self, text: str) -> None:
        """
        Raises Error with the position for text that does not parse.
        """
    def evaluate(self, values: dict[str, typing.Any]) -> int | float:
        """
        Evaluates one element on the host: exact for integers, in double precision else.
        """
    def glsl(self, types: collections.abc.Mapping[str, str]) -> tuple[str, str]:
        """
        (text, GLSL type of the result) for the dtypes of the names.
        """
    def substitute(self, replacements: collections.abc.Mapping[str, Expression]) -> Expression:
        ...
    def weight(self, has_doubles: bool = False) -> int:
        """
        The cost of compiling its GLSL: about the instructions that its functions expand to, of doubles or of floats.
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
    Initialises compiled operators: their owned weights go to the persistent resource, once.
    """
    def __init__(self, context: Context, operators: collections.abc.Sequence[CompiledOperator]) -> None:
        ...
    def reset(self, operators: collections.abc.Sequence[CompiledOperator]) -> None:
        """
        Makes it the initializer of other operators; tables and lists made before are void. Raises BindingError (I6) while an earlier initialisation is still running.
        """
class Operator:
    """
    One operator described by its name, tensors and attributes; no device is touched.
    """
    def __init__(self, name: str, inputs: collections.abc.Iterable[TensorDesc | np.typing.NDArray[typing.Any] | typing.SupportsInt | typing.SupportsIndex | typing.SupportsFloat | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] | None], outputs: collections.abc.Sequence[TensorDesc | None], activation: None | str | tuple[str, dict[str, typing.Any]] = None, **kwargs: typing.Any) -> None:
        """
        inputs, outputs: a TensorDesc, or None for an optional tensor left out. An input that operators() lists among host_inputs (axes,
        shapes, counts) is given by its values: an array, or a number or list of numbers, which are int64 or float32. Nothing is bound to
        its slot. activation: what the kernel applies to each result before it is rounded and stored: the name of an elementwise
        operator of one float ('Relu'), or a pair of it and its attributes, ('LeakyRelu', {'alpha': 0.1}). Further keywords are
        attributes. Raises UnsupportedError, also from compile() for an operator whose kernels apply no activation, GraphError;
        BindingError (K5) for an array of a dtype that no tensor has.
        """
    def compile(self, context: Context, precision: str | None = None, flags: collections.abc.Sequence[str] = []) -> CompiledOperator:
        """
        Compiles the operator for a context.
        precision: what floats of 16 and 32 bits are inside, "fp32", "fp16" or "bf16", summed in float32: bound tensors are as they are described, and are converted as they are read and written; owned ones are converted once, by the initializer. None: as they are described.
        flags: names of execution flags. DESCRIPTORS_VOLATILE: bindings may change after a dispatch until the list is executed, which then costs a recording. ALLOW_HALF_PRECISION_COMPUTATION: precision fp16 instead of fp32 or None. DISABLE_META_COMMANDS: nothing, as no kernel is a vendor's. DETERMINISTIC: several updates of one element by ScatterElements, ScatterND or MaxUnpool are taken in their order. Raises UnsupportedError.
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
        Symbolic names of the sizes, empty where there is none.
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
        The sizes, None for unknown ones; None alone for an unknown rank.
        """
class ProgramRun:
    """
    One execution of a program in flight or finished, started by Program.run_async.
    """
    def __int__(self) -> int:
        ...
    def __repr__(self) -> str:
        ...
    def result(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> tuple[np.typing.NDArray[typing.Any], ...]:
        """
        Waits, and gives the outputs as new arrays in graph order.
        """
    def wait(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Waits until the execution has finished; timeout in seconds. Raises TimeoutError, DeviceLostError.
        """
    @property
    def cold(self) -> bool:
        """
        Whether a kernel ran for the first time in this execution, whose time may then include the driver's compilation.
        """
    @property
    def device_seconds(self) -> float | None:
        """
        Time on the device; None where it was not measured or has not finished.
        """
    @property
    def device_time(self) -> float | None:
        """
        Time on the device, as device_seconds.
        """
    @property
    def done(self) -> bool:
        ...
    @property
    def id(self) -> int:
        """
        The execution's id on the context's timeline.
        """
class Program:
    """
    A compiled graph: compiled once, bound per input shape, executed many times. Thread-safe; a context manager.
    """
    def __call__(self, inputs: dict[str, typing.Any], timeout: typing.SupportsFloat | typing.SupportsIndex | None = None, loop_timeout: typing.SupportsFloat | typing.SupportsIndex | None = 2.0, filled: bool = False) -> dict[str, np.typing.NDArray[typing.Any]]:
        """
        Runs the program on arrays by name, and gives arrays by name. timeout: seconds for all of it. loop_timeout: seconds for each WHILE from each time that it is entered, at most 15; None: no limit. filled: temporary memory and results
        are overwritten before the run, with bits that are NaN in all types of floats, so that a result which is not computed shows.
        Raises TimeoutError, after which the program is as usable as before; BindingError naming the input, what it expects and what it was given.
        """
    def __enter__(self) -> Program:
        ...
    def __exit__(self, *args: typing.Any) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def arena(self, shapes: collections.abc.Sequence[typing.Any]) -> dict[str, int]:
        """
        Bytes of temporary memory for these input shapes, the least possible, and what is recorded.
        """
    def burst(self) -> Burst:
        """
        A Burst of this program.
        """
    def call(self, inputs: tuple[typing.Any, ...], timeout: typing.SupportsFloat | typing.SupportsIndex | None = None, loop_timeout: typing.SupportsFloat | typing.SupportsIndex | None = 2.0, out: collections.abc.Sequence[np.typing.NDArray[typing.Any] | None] | None = None, filled: bool = False) -> tuple[np.typing.NDArray[typing.Any], ...]:
        """
        Runs the program on arrays in graph order, and gives arrays in graph order. out: for each output an array that it is written
        to, or None: of the output's dtype and shape, writable, C-contiguous and apart from the others. filled: see __call__. Raises BindingError.
        """
    def close(self) -> None:
        """
        Frees the device memory. Idempotent.
        """
    def compiled(self, shapes: collections.abc.Sequence[typing.Any]) -> CompiledOperator:
        """
        The operator for these input shapes, for binding tables; its persistent resource is this program's and already initialised.
        """
    def execution(self, measure: bool = False, filled: bool = False) -> Execution:
        """
        An Execution of this program; measure: its timing can be read; filled: see __call__.
        """
    def observe(self, inputs: tuple[typing.Any, ...], names: collections.abc.Set[str] | None = None, steps: typing.SupportsInt | typing.SupportsIndex | None = None) -> dict[str, typing.Any]:
        """
        Runs the program once on arrays in graph order, as it ships: its plan, its arena and its kernels, with a copy after each
        step that completes a tensor. Gives the outputs by name, and as tensors every tensor that a kernel stores: name, node and
        kernel that stored it, reads, the tensors that the kernels of this node read, array, in the dtype that the program keeps it
        in, its bytes, and additions, as in plan(). names: of the tensors that are copied; those of the others have no array.
        steps: the run ends after so many steps of plan(), with no copy between them, and gives no outputs; the tensors that are
        complete and in memory then have an array. Raises UnsupportedError for control flow and cuts, BindingError.
        """
    def observe_runs(self, inputs: tuple[typing.Any, ...], most: typing.SupportsInt | typing.SupportsIndex = 2, loop_timeout: typing.SupportsFloat | typing.SupportsIndex | None = 2.0) -> dict[str, typing.Any]:
        """
        The same for a program with control flow or cuts, which is several lists of dispatches, one for each of its regions. Gives runs:
        the first `most` of each region, with the name of its graph, number, inputs by name, tensors, as in observe(), and
        differing, the outputs of the region that have other bits in the run without copies; outputs of the program by name;
        regions: graph, runs and observed of each; single_loops: loops that one kernel runs whole. The host drives all other loops and
        branches; each observed run is one more on the same inputs. Raises UnsupportedError for a program that is one list, TimeoutError.
        """
    def plan(self, shapes: collections.abc.Sequence[typing.Any]) -> list[dict[str, typing.Any]]:
        """
        Every dispatch for these input shapes: label, kernel, wave, whether a barrier precedes it, its operands' byte ranges, its workgroups on each axis ('groups'), and whether these count the workgroups of a grid that the device does not take as it is ('folded').
        """
    def profile(self, inputs: tuple[typing.Any, ...]) -> list[DispatchTime]:
        """
        A DispatchTime, whose label is the node, of every dispatch of one execution. One before it is not measured: kernels that
        run for the first time are compiled there.
        """
    def report(self) -> list[dict[str, typing.Any]]:
        """
        A row for every node that says which kernel and precision run it, and why: node, op, kernel, precision, note.
        """
    def run_async(self, inputs: tuple[typing.Any, ...], loop_timeout: typing.SupportsFloat | typing.SupportsIndex | None = 2.0) -> ProgramRun:
        """
        Starts an execution and returns at once, or where the program has control flow or is cut when it has ended: execution().start() does not wait for that. Arrays in graph order. loop_timeout: see __call__.
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
        Whether it is several lists of dispatches, between which the host decides or reads: also that of a program with cuts.
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
        The range that holds the weights.
        """
class Event:
    """
    The end of an execution that Execution.start has begun.
    """
    def wait(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Waits for at most `timeout` seconds; raises what the execution raised, TimeoutError.
        """
    @property
    def done(self) -> bool:
        ...
class Execution:
    """
    One execution of a program, used as often as wanted. What is called while it computes raises StateError; otherwise thread-safe.
    """
    def __repr__(self) -> str:
        ...
    def compute(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None, loop_timeout: typing.SupportsFloat | typing.SupportsIndex | None = 2.0) -> dict[str, np.typing.NDArray[typing.Any]]:
        """
        Runs the program, and gives the outputs by name. timeout: seconds for all of it. loop_timeout: see Program.__call__.
        Raises StateError, BindingError, TimeoutError, OutputSizeError (an array of set_output is too small), GraphError.
        """
    def output_shape(self, name: str) -> tuple[int, ...]:
        """
        The true shape of an output, after OutputSizeError too. Raises StateError before the end and after another error.
        """
    def set(self, name: str, array: typing.Any) -> None:
        """
        Sets an input. An array that is contiguous is read when the execution computes, another one is copied. Raises BindingError (no such input, another dtype).
        """
    def set_output(self, name: str, array: np.typing.NDArray[typing.Any] | None) -> None:
        """
        Sets the array that an output is written to, from its first element on: writable, contiguous and of the output's dtype. None: new arrays. Raises BindingError.
        """
    def start(self, wait_for: collections.abc.Sequence[Event] = [], timeout: typing.SupportsFloat | typing.SupportsIndex | None = None, duration: typing.SupportsFloat | typing.SupportsIndex | None = None, loop_timeout: typing.SupportsFloat | typing.SupportsIndex | None = 2.0) -> Event:
        """
        Returns an Event at once, and runs the program when all events of `wait_for` have ended. One of them that fails, or had failed, is this one's error. timeout: seconds from this call; duration: seconds from the end of the last event waited for.
        Raises BindingError where an output's shape is unknown and it has no array.
        """
    @property
    def outputs(self) -> dict[str, np.typing.NDArray[typing.Any]]:
        """
        The outputs by name. Raises StateError before the end and after an error.
        """
    @property
    def program(self) -> Program:
        ...
    @property
    def report(self) -> dict[str, typing.Any]:
        """
        Counts of the last computation: submissions, dispatches, host_syncs, of these read_backs (the host waited to read elements that shapes depend on), and for every loop that was entered node, kind, entries, trips, host_syncs, wasted_iterations.
        """
    @property
    def state(self) -> str:
        """
        'preparation', 'computation' or 'completed'.
        """
    @property
    def timing(self) -> dict[str, float]:
        """
        Seconds of the last computation: on_device, in_driver (the device's included), and both _after_fence: from the end of the last event waited for. Raises StateError where program.execution(measure=True) was not asked for.
        """
class Burst:
    """
    Executions of one program, one at a time.
    """
    def compute(self, execution: Execution, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None, loop_timeout: typing.SupportsFloat | typing.SupportsIndex | None = 2.0) -> dict[str, np.typing.NDArray[typing.Any]]:
        """
        Runs an execution, as Execution.compute does. Raises StateError while another execution of this burst runs, BindingError for another program's.
        """
class UploadMemory:
    """
    The memory of a graph's constants: staging memory on the host, and their place on the device. Where they are many it is made in the background, and Graph.compile waits for it. bytes: the size of the constants, as far as it is known yet. Not thread-safe.
    """
    def __init__(self, context: Context, bytes: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    def expect(self, device_bytes: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Says about how many bytes of constants there will be on the device.
        """
class Value:
    """
    A value of a Graph: an input, a constant or a node's output.
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
        The scale of a quantized tensor, whose integers stand for (integer - zero_point) * scale: a number, or one for each channel.
        """
    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """
        The sizes, None for unknown ones; None alone for an unknown rank.
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
        The inputs; None for optional ones that are left out.
        """
    @property
    def name(self) -> str:
        ...
    @property
    def op(self) -> str:
        """
        'Conv', 'If', 'While' ..
        """
    @property
    def outputs(self) -> list[Value]:
        ...
class Graph:
    """
    Values and nodes, checked as they are added; compiled into a Program. Not thread-safe until finished.
    """
    def __init__(self, name: str | None = None) -> None:
        ...
    def __len__(self) -> int:
        """
        The number of nodes.
        """
    def __repr__(self) -> str:
        ...
    def add(self, op: str, *args: typing.Any, outputs: typing.SupportsIndex = 1, name: str = '', output_names: collections.abc.Sequence[str] = [], **kwargs: typing.Any) -> typing.Any:
        """
        Adds a node by its ONNX name. inputs: Values, arrays (constants), None for optional ones left out; attributes by name. One output gives a Value, several a tuple. An operation of NNAPI by its own ('nnapi::ADD') has that system's operands in its own order: numbers and lists of numbers are constants of int32, float32 or bool, and scale, zero_point and dtype are the output's. 'nnapi::IF' takes a condition, two Graphs and their inputs, 'nnapi::WHILE' the Graphs of condition and body, then the carried values, of which there are as many as outputs, the body's states, and what does not change.
        Raises UnsupportedError (no such operator, a dtype that it lacks), GraphError (wrong inputs, attributes, shapes where they are known).
        """
    def compile(self, context: Context, precision: str | None = None, keep_all: bool = False, fuse: bool | list[str] = True, progress: collections.abc.Callable[[str, int, int], None] | None = None, memory: UploadMemory | None = None, check_indices: bool = False, deterministic: bool = False, float32_nodes: collections.abc.Sequence[str] = [], measured: collections.abc.Mapping[str, str] | None = None, list_variants: bool = False) -> Program:
        """
        Compiles the graph for a context. precision: 'fp32', 'fp16' or 'bf16'; by default that of relaxed_precision. keep_all: every node's outputs become outputs of the program, and nothing is fused. fuse: whether nodes become one another's parts; or the names of the fusions that may, of fusions(). progress: called now and then with the work that is being done ('weights', 'kernels'), how much of it is done, and of how much. memory: an UploadMemory of the same context, begun before. check_indices: a call raises IndexRangeError where an index that only the device knows is out of range; every call then waits, and the host drives all control flow. deterministic: ScatterElements, ScatterND and MaxUnpool take several updates of one element in their order, so that every run gives the same bits. float32_nodes: names of nodes, as in report(), that compute in float32 whatever the precision is, with the nodes in the graphs of an IF or WHILE among them; other nodes round what they read of them. measured: variants of steps by kind, as plan() names them, which steps take that can; report() says which. list_variants: plan() lists all variants of each step that has several. Raises UnsupportedError with all that is not supported, GraphError for a name that no node has.
        """
    def compile_operator(self, context: Context, precision: str | None = None, flags: collections.abc.Sequence[str] = []) -> CompiledOperator:
        """
        Compiles the whole graph as one operator for binding tables, initializers and command lists: a slot for every input, by name. Owned inputs and constants go to the persistent resource, intermediate values to the temporary one. All sizes of the inputs have to be known.
        flags: see Operator.compile. Raises GraphError, UnsupportedError (nodes that need the host, by name).
        """
    def constant(self, array: np.typing.NDArray[typing.Any], name: str = '', scale: None | typing.SupportsFloat | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] = None, zero_point: typing.SupportsIndex | None = None, channel_axis: typing.SupportsIndex | None = None) -> Value:
        """
        A constant with the array's elements. scale, zero_point, channel_axis: see input(). Raises GraphError.
        """
    def constant_bytes(self, raw: typing.Any, dtype: typing.Any, shape: collections.abc.Sequence[typing.SupportsIndex], name: str = '') -> Value:
        """
        A constant of bytes. raw: the elements as ONNX files keep them: row-major and little-endian, those of 4 bits two to a byte. They are not copied, and large ones of a MappedFile not read before the device gets them. Raises GraphError.
        """
    def expect(self, value: Value, shape: collections.abc.Sequence[typing.SupportsIndex | None]) -> None:
        """
        Tells the sizes that a value is likely to have, where they are not known (None: nothing more is known): a value of others is as good when the graph runs.
        """
    def finish(self) -> None:
        """
        Ends the graph: later changes raise StateError. Idempotent.
        """
    def graft(self, value: Value, inputs: collections.abc.Sequence[typing.Any], stem: str) -> Value:
        """
        A copy of what makes a value of another Graph, without IF and WHILE, on these values in the place of that one's inputs; its nodes are named after stem. Raises GraphError where they cannot take them.
        """
    def if_(self, condition: typing.Any, then: typing.Any, orelse: typing.Any, inputs: collections.abc.Sequence[typing.Any] = [], name: str = '', output_names: collections.abc.Sequence[str] = []) -> tuple[Value, ...]:
        """
        Runs the Graph `then` where the condition (bool, shape [1]) is true, else `orelse`; both take the inputs and give the results. Without a condition (None) it fails when it runs. A graph that it names is finished.
        Raises GraphError and StateError with the rule's id (pumice.graph_rules()).
        """
    def input(self, name: str, dtype: typing.Any, shape: collections.abc.Sequence[typing.SupportsIndex | None] | None, dimension_names: collections.abc.Sequence[str] | None = None, owned: bool = False, scale: None | typing.SupportsFloat | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] = None, zero_point: typing.SupportsIndex | None = None, channel_axis: typing.SupportsIndex | None = None, assumed: bool = False) -> Value:
        """
        An input of the graph. shape: None or 0 for an unknown size; None alone: unknown rank. dimension_names: symbolic names of the sizes. owned: a weight that the initializer of a compiled operator reads, and executions do not. scale, zero_point: of a quantized tensor, whose integers stand for (integer - zero_point) * scale; scale is a number, or one for each channel of channel_axis. assumed: the sizes may turn out to be others when a node runs this graph. Raises GraphError.
        """
    def node_names(self, first: typing.SupportsInt | typing.SupportsIndex) -> list[str]:
        """
        The names of the nodes from that position on.
        """
    def output(self, name: str, value: typing.Any, shape: collections.abc.Sequence[typing.SupportsIndex | None] | None = None, dtype: typing.Any | None = None, scale: None | typing.SupportsFloat | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] = None, zero_point: typing.SupportsIndex | None = None) -> None:
        """
        Gives a value as an output. shape (None or 0 for any size), dtype, scale and zero_point declare what it is: sizes that are not known are taken to be the declared ones, and looked at when a program is bound. Raises GraphError, then too, where it is not.
        """
    def shape_sources(self, value: Value, elements: bool = False) -> list[Value] | None:
        """
        The inputs whose elements decide about the shape of a value, or about its elements, beside the shapes of all inputs; None where what only a device or an IF or WHILE makes decides about it.
        """
    def while_(self, condition: typing.Any, body: typing.Any, carried: collections.abc.Sequence[typing.Any], state: collections.abc.Sequence[typing.Any] = [], invariant: collections.abc.Sequence[typing.Any] = [], name: str = '', output_names: collections.abc.Sequence[str] = []) -> tuple[Value, ...]:
        """
        Runs the Graph `body` as long as the Graph `condition` gives true (bool, shape [1]), asked before every iteration. Both take carried, state and invariant values in this order; the body gives the next carried and state values. The results are the carried ones, after no iteration as they were given.
        Raises GraphError and StateError with the rule's id (pumice.graph_rules()).
        """
    @property
    def exact(self) -> bool:
        """
        Whether all sizes are known, and none depends on what only a device knows.
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
        The nodes, in an order in which they can run.
        """
    @property
    def outputs(self) -> dict[str, Value]:
        ...
    @property
    def relaxed_precision(self) -> bool:
        """
        Whether floats may be computed in 16 bits where compile() is told no precision: it is 'fp16' then, else 'fp32'. The graphs that an IF or WHILE runs follow the one that is compiled.
        """
    @relaxed_precision.setter
    def relaxed_precision(self, arg1: bool) -> None:
        ...
class NnapiOperand(ValueRole):
    """
    An operand of an operation of NNAPI.
    """
    @property
    def kind(self) -> str:
        """
        'tensor', 'list' (a vector of int32), 'pairs' (a matrix of two columns), 'scalar' (one constant number of rank 0) or 'graph' (what IF and WHILE run).
        """
class NnapiOperation:
    """
    An operation of NNAPI, with its operands in that system's order.
    """
    def __repr__(self) -> str:
        ...
    @property
    def implicit(self) -> list[NnapiOperand]:
        """
        The inputs with a padding scheme in place of four paddings; empty where there is no such form.
        """
    @property
    def inputs(self) -> list[NnapiOperand]:
        ...
    @property
    def level(self) -> int:
        """
        The feature level that brought it; 2**31 - 1 where it is experimental.
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
        Releases the object; whatever is made of it keeps it alive. Idempotent.
        """
    def device_exists(self, dev_type_id: typing.SupportsInt | typing.SupportsIndex) -> bool:
        """
        Whether there is a device of that kind. Raises BindingError for an unknown kind.
        """
    @property
    def closed(self) -> bool:
        ...
    @property
    def device(self) -> Context:
        """
        The engine's context.
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
        The text of the last error of its memories and lists; empty at first.
        """
    @property
    def strict(self) -> bool:
        """
        Whether lists refuse what the vendor's hardware does not take.
        """
class DvMemory:
    """
    Whole pages of memory that commands name and the host maps.
    """
    def __enter__(self) -> typing.Any:
        ...
    def __exit__(self, *args: typing.Any) -> None:
        ...
    def __init__(self, context: DvContext, size: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        size in bytes; content undefined. Raises BindingError for 0, OutOfMemoryError.
        """
    def close(self) -> None:
        """
        Releases the object; whatever is made of it keeps it alive. Idempotent.
        """
    def map(self) -> np.typing.NDArray[np.uint8]:
        """
        Maps the memory, and gives all of it as a NumPy array of uint8; the same memory every time until unmap().
        """
    def sync_end(self) -> None:
        """
        Ends access by the host: what the host wrote is seen by the device.
        """
    def sync_start(self, read: bool = True, write: bool = True) -> None:
        """
        Begins access by the host: what the device made is seen. Raises BindingError where it is not mapped, or for neither.
        """
    def to_cpu(self, offset: typing.SupportsInt | typing.SupportsIndex, size: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Shows the host a range of bytes that the device wrote, at once. Raises BindingError past the end and where the memory is not mapped.
        """
    def to_device(self, offset: typing.SupportsInt | typing.SupportsIndex, size: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Shows the device a range of bytes that the host wrote, at once. Raises BindingError past the end and where the memory is not mapped.
        """
    def unmap(self) -> None:
        """
        Ends a sync and the mapping. Idempotent.
        """
    @property
    def closed(self) -> bool:
        ...
    @property
    def handle(self) -> int:
        """
        The number that stands for the memory in a raw command.
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
    Commands that are checked as they are added, committed once, executed many times.
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
        Checks a raw command and keeps its memories. Raises BindingError naming the run and the field.
        """
    def close(self) -> None:
        """
        Releases the object; whatever is made of it keeps it alive. Idempotent.
        """
    def commit(self) -> None:
        """
        Prepares the list: weights are unpacked. An execution unpacks them again where their memory was published since (sync_end, to_device, unmap); weights that the device writes, by a command of this list or of another, are unpacked by the device at every execution. Raises StateError when called twice, BindingError for an empty list.
        """
    def exec(self) -> int:
        """
        Queues one execution and returns its id. Raises StateError before commit().
        """
    def wait(self, exec_id: typing.SupportsInt | typing.SupportsIndex, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> None:
        """
        Waits for an execution; timeout in seconds. Raises TimeoutError, DeviceLostError, BindingError for an id that was not given.
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
        Kernels that an execution runs.
        """
    @property
    def last_exec_seconds(self) -> float:
        """
        Time on the device of the execution that was waited for last; 0 before that.
        """
    @property
    def last_exec_time(self) -> int:
        """
        last_exec_seconds in whole microseconds, as the vendor's function of this name gives it.
        """
class UnpackedWeights:
    """
    The parts of a layer's packed weights.
    """
    @property
    def bias(self) -> np.typing.NDArray[typing.Any]:
        """
        Biases: float16, one for each output.
        """
    @property
    def indices(self) -> np.typing.NDArray[typing.Any] | None:
        """
        Indices into the table: uint8; None without a table.
        """
    @property
    def prelu(self) -> np.typing.NDArray[typing.Any] | None:
        """
        Slopes: float16, one for each kernel, or None.
        """
    @property
    def table(self) -> np.typing.NDArray[typing.Any] | None:
        """
        The table: float16 of shape (256,), or None.
        """
    @property
    def weights(self) -> np.typing.NDArray[typing.Any]:
        """
        Weights: float16, with the table applied.
        """
class TimeoutError(Error, builtins.TimeoutError):
    """
    A wait, loop or execution ran out of time; transient: trying again may succeed.
    """
    transient: bool
def _is_profiling() -> bool:
    """
    Whether a profile is on.
    """
def _profile_event(kind: str, name: str, begin: typing.SupportsInt | typing.SupportsIndex, end: typing.SupportsInt | typing.SupportsIndex, bytes: typing.SupportsInt | typing.SupportsIndex = 0) -> None:
    """
    Adds a span of the host's time, in whole units of the finest of Python's performance counters.
    """
def _set_trial_sizes(sizes: typing.Annotated[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], "FixedSize(8)"] | None = None, batches: typing.Annotated[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], "FixedSize(8)"] | None = None) -> None:
    """
    Set the sizes that shape inference tries for unknown axes, and for unknown first axes; None restores the default. For tests.
    """
def _start_profile(level: str, every: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Executions are stamped from now on: the first of each recording, and every so many, at this level, others as a whole. Raises StateError where that is so already.
    """
def _stop_profile() -> dict[str, typing.Any]:
    """
    Ends it: host, the spans of the host's time, and runs, the executions with their stamps.
    """
def another_context(context: Context, without: collections.abc.Sequence[str] = []) -> Context:
    """
    Another context of the same device with the same options (without, limits, quirks), which does without these features and extensions as well.
    """
def begin_order(ready: SharedTimeline, value: typing.SupportsInt | typing.SupportsIndex, done: SharedTimeline) -> None:
    """
    From here on the calling thread's submissions come after `ready` has the value, and `done` gets the id of each.
    """
def binding_rules() -> dict[str, str]:
    """
    The rules of operators, initializers, binding tables, kernels and the dv interface by their ids, as BindingError.rule names them.
    """
def buffer_size(dtype: typing.Any, shape: collections.abc.Sequence[typing.SupportsIndex], strides: collections.abc.Sequence[typing.SupportsIndex] | None = None) -> int:
    """
    Bytes from element 0 to the last one reached, rounded up to 4; 0 where a size is 0, one element for rank 0. Raises GraphError
    (rule R8) on overflow of 64 bits, a rank over 8, over 2**32 - 1 elements, negative strides.
    """
def cache_directory() -> str | None:
    """
    The folder `pumice` in PUMICE_CACHE_DIR, else in XDG_CACHE_HOME, else in ~/.cache; None if PUMICE_NO_CACHE is set (and not "0").
    """
def cache_entries(kind: str, folder: str = '') -> list[str]:
    """
    The names of the entries of a kind, sorted; folder: only those in this folder of a nested kind.
    """
def cache_state() -> CacheState | None:
    """
    The state of the cache on disk; None if PUMICE_NO_CACHE is set.
    """
def choose_device(devices: collections.abc.Sequence[DeviceInfo], variables: collections.abc.Mapping[str, str], nvml: str, kfd: str, wanted: str, environment: str) -> tuple[int, str]:
    """
    Which of the given devices a Context takes, as a place in the list, and why. environment: PUMICE_DEVICE. Raises DeviceError.
    """
def compile(source: str, options: ShaderOptions = ..., macros: collections.abc.Mapping[str, str] = {}, name: str = 'shader', includes: collections.abc.Mapping[str, str] | None = None, profile: collections.abc.Mapping[str, str] | None = None, include_dirs: collections.abc.Sequence[str] = [], local_size: None | typing.SupportsInt | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = None) -> Shader:
    """
    Compiles GLSL text to a Shader. macros: names (with parameters) -> text; includes: paths -> text; include_dirs: folders that are looked into next; profile: device macros in place of the options' own.
    local_size: invocations of a workgroup, one to three numbers, for a text that declares none; extra invocations are guarded, unless the text has shared memory, barriers or subgroup operations. A text without any local size is compiled as it stands, with a local size of 1.
    Raises ShaderCompileError, UnsupportedError, BindingError (K2: local_size).
    """
def compile_counts() -> CompileCounts:
    """
    How many shaders this process compiled and how many it found in the caches.
    """
def device_list() -> tuple[list[DeviceInfo], list[DeviceInfo], str]:
    """
    devices(), the devices that CUDA_VISIBLE_DEVICES and its like hide, and why they do in words.
    """
def device_macros(context: Context) -> dict[str, str]:
    """
    The device macros of the GLSL extension: ncnn_<name> -> text, for extensions, features, properties and limits; a profile for compile() and ShaderOptions.
    """
def devices() -> list[DeviceInfo]:
    """
    The Vulkan devices that the environment leaves to this process; empty where there is no loader or no driver.
    """
def distinct_pipelines() -> list[str]:
    """
    A key for each different pipeline (shader, constants, subgroup size) that this process has made: what a driver had to compile.
    """
def dv_constants() -> dict[str, int]:
    """
    Numbers that fields of commands take, by name.
    """
def dv_required_bytes(raw: bytes, strict: bool = False) -> list[tuple[str, int]]:
    ...
def dv_run_outputs(raw: bytes, strict: bool = False) -> list[tuple[int, int, int]]:
    ...
def dv_structures() -> dict[str, tuple[int, dict[str, tuple[int, str, int]]]]:
    """
    By the name of each raw structure its size and its fields: by name their offsets, formats and counts.
    """
def dv_total_size() -> int:
    """
    Bytes of all dv memories of the process.
    """
def dv_version_string() -> str:
    ...
def embedded_shader(path: str) -> str:
    ...
def embedded_shaders() -> list[str]:
    """
    Paths of the shaders that the engine contains.
    """
def empty(shape: typing.Any, dtype: typing.Any, context: Context) -> Tensor:
    """
    A tensor of undefined content.
    """
def empty_host(shape: typing.Any, dtype: typing.Any, context: Context) -> np.typing.NDArray[typing.Any]:
    """
    An array of undefined content in memory that the device reaches by itself.
    """
def empty_shared(shape: typing.Any, dtype: typing.Any, context: Context) -> Tensor:
    """
    A tensor of undefined content in memory that can be exported. Raises UnsupportedError naming what is missing.
    """
def end_order() -> int:
    """
    Ends the innermost order of the thread: the id of its last submission, 0 where there was none.
    """
def evaluate_on_host(op: str, inputs: collections.abc.Iterable[TensorDesc | np.typing.NDArray[typing.Any] | typing.SupportsInt | typing.SupportsIndex | typing.SupportsFloat | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] | None], outputs: typing.SupportsInt | typing.SupportsIndex = 1, **kwargs: typing.Any) -> list[np.typing.NDArray[typing.Any]] | None:
    """
    The outputs' values as arrays; None where the host does not compute them.
    """
def forward_log() -> None:
    """
    Hands what the engine has logged since the last call to the logger "pumice".
    """
def from_dlpack(array: typing.Any, context: Context, copy: bool | None = None) -> Tensor:
    ...
def from_host(array: np.typing.NDArray[typing.Any], context: Context) -> Tensor:
    """
    A tensor on the array's memory itself.
    """
def from_whc8(values: np.typing.NDArray[typing.Any], shape: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], layout: str | None = None) -> np.typing.NDArray[typing.Any]:
    """
    The inverse of to_whc8: a new array of this shape, whose axes layout names. Raises as to_whc8.
    """
def fusions() -> dict[str, str]:
    """
    The fusions that a program may make of several nodes, by the names that `fuse` takes, with what each does.
    """
def glslang_accepts(extension: str) -> bool:
    """
    Whether the shader compiler knows a GLSL extension.
    """
def glslang_version() -> str:
    """
    Version of the shader compiler; nothing is loaded.
    """
def graph_rules() -> dict[str, str]:
    """
    The rules of IF and WHILE and what each says, by id: what GraphError.rule names.
    """
def has_operator(name: str, domain: str = '') -> bool:
    """
    Whether the table has an operator of this name in this domain, by default ONNX's own.
    """
def included_files(source: str, name: str, includes: collections.abc.Mapping[str, str], include_dirs: collections.abc.Sequence[str]) -> list[str]:
    """
    Paths of the files that a shader in the file `name` includes, also under conditions, and of those that were looked for in vain.
    """
def json_text(value: typing.Any, *, sort_keys: bool = False) -> str:
    """
    The text of JSON for a value, as json.dumps makes it. Raises TypeError for values that JSON does not have.
    """
def keep_spare(context: Context, spare: Context) -> None:
    """
    Keeps a context, with which its user is done, idle with another one until take_spare() asks for it. Closing that one closes the spare. One is kept, the latest: another one is closed, and so is a spare where one of both cannot be used any more. Raises StateError where both are the same context.
    """
def lose_device_after(context: Context, submissions: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    The context's queue answers that the device is lost, on purpose, once it has taken so many further submissions: for tests of what is done then.
    """
def nnapi_operations() -> list[NnapiOperation]:
    """
    All operations of NNAPI that there are, by name.
    """
def nnapi_rules() -> dict[str, str]:
    """
    The rules of NNAPI's operations and what each says, by id: what GraphError.rule names.
    """
def onnx_skeleton(data: typing.Any, location: str) -> bytes | None:
    """
    An ONNX file's bytes with the elements of large tensors as external data at `location`; None where they are no ModelProto, or a very small one. Raises Error where the file has become shorter.
    """
def operators() -> list[OperatorRow]:
    """
    All operators that there are, by name.
    """
def output_descs(op: str, inputs: collections.abc.Iterable[TensorDesc | np.typing.NDArray[typing.Any] | typing.SupportsInt | typing.SupportsIndex | typing.SupportsFloat | typing.SupportsIndex | collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] | None], outputs: typing.SupportsIndex = 1, **kwargs: typing.Any) -> list[TensorDesc | None]:
    """
    The TensorDescs of an operator's outputs, packed, as Operator takes them; None for an output that is left out.
    inputs: for each a TensorDesc, an array (its values are known), or None for an optional one left out. outputs: how many are
    wanted. Attributes by name. Raises GraphError, UnsupportedError.
    """
def pack_conv_weights(weights: np.typing.NDArray[typing.Any], bias: np.typing.NDArray[typing.Any] | None = None, *, table: np.typing.NDArray[typing.Any] | None = None, prelu: np.typing.NDArray[typing.Any] | None = None) -> bytes:
    """
    The packed weights of a convolution or deconvolution.
    weights: float16 of shape (kernels, channels, ky, kx), kernels of sides 1 to 7, channels 1 where it is depthwise; with a table,
    float16 of shape (256,), they are uint8 indices into it, and the table's first entry should be 0.0: cells that no weight uses have
    index 0. bias (None: zeros) and prelu, slopes: float16 of shape (kernels,). Raises BindingError (D1, D3).
    """
def pack_dil_weights(weights: np.typing.NDArray[typing.Any], bias: np.typing.NDArray[typing.Any] | None = None, *, table: np.typing.NDArray[typing.Any] | None = None, prelu: np.typing.NDArray[typing.Any] | None = None) -> bytes:
    """
    The packed weights of a dilated convolution.
    weights: float16 of shape (kernels, channels, ky, kx), kernels of sides 1 to 7, channels 1 where it is depthwise; with a table,
    float16 of shape (256,), they are uint8 indices into it, and the table's first entry should be 0.0: cells that no weight uses have
    index 0. bias (None: zeros) and prelu, slopes: float16 of shape (kernels,). Raises BindingError (D1, D3).
    """
def pack_fc_weights(weights: np.typing.NDArray[typing.Any], bias: np.typing.NDArray[typing.Any] | None = None, *, table: np.typing.NDArray[typing.Any] | None = None) -> bytes:
    """
    The packed weights of a fully connected layer. weights: float16, or uint8 indices into a table of shape (256,), of shape
    (outputs, inputs), (outputs, c, h, w) or (c, h, w, c, h, w); outputs and inputs get the order WHC8. bias (None: zeros): float16 of
    shape (outputs,), whose order stays. Raises BindingError (D1, D3).
    """
def parse_json(text: bytes) -> typing.Any:
    """
    The value of a text of JSON, as json.loads makes it. Raises ValueError for text that is none.
    """
def precision_support(device: DeviceInfo) -> list[PrecisionSupport]:
    """
    How a device of devices(), or a context's info, runs operators at each precision.
    """
def prune_cache() -> None:
    """
    Remove the least recently used entries of a cache above its limit, and temporary files of killed writers. Files that pumice has not written stay.
    """
def quantize_weights(weights: np.typing.NDArray[typing.Any]) -> tuple[np.typing.NDArray[typing.Any], np.typing.NDArray[typing.Any]]:
    """
    (indices, table): uint8 of the weights' shape and float16 of shape (256,), as the packers take them. The 255 values from
    entry 1 on, ascending, are those with the least sum of squared errors (k-means on a line, exact), rounded to float16, and
    each weight takes the nearest; entry 0 is 0.0, which weights of exactly 0 take. At most 255 distinct float16 values stay as
    they are. weights: float16, or float32, which is rounded. Raises BindingError (D3; D7 for what float16 does not hold, NaN
    and infinity).
    """
def read_cache_entry(kind: str, name: str) -> bytes | None:
    """
    The payload of an entry; None if it is missing, truncated, corrupt, owned by another user, or writable by others.
    """
def reflect(spirv: bytes) -> dict[str, typing.Any]:
    """
    The interface of a SPIR-V module. Raises ShaderCompileError where it is malformed or stripped.
    """
def sha256(*args: typing.Any) -> str:
    """
    The SHA-256 of the parts one after the other, as 64 hexadecimal digits.
    """
def shared_tensor(context: Context, address: typing.SupportsInt | typing.SupportsIndex, dtype: typing.Any, shape: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], strides: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> Tensor | None:
    """
    The tensor at an address of the other interface, in shared memory of this context; None where the address is in none.
    """
def spills_of(statistics: collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex]]) -> tuple[int | None, int | None]:
    """
    The amount and the bytes that a driver with these statistics has spilled, as the engine reads them: for tests.
    """
def strides(shape: collections.abc.Sequence[typing.SupportsIndex], layout: str, broadcast: collections.abc.Sequence[bool] = []) -> tuple[int, ...]:
    """
    Strides in elements of a layout by name: 'NCHW', 'NHWC', 'NCDHW', 'NDHWC', any permutation of letters of NCDHW, or of the letters
    from 'a' on, which name the axes in order ('acb'). shape is in logical order. broadcast marks axes that are of size 1 in memory:
    they have stride 0. Raises GraphError. TensorDesc.layout is the inverse.
    """
def take_log() -> list[tuple[int, str]]:
    """
    The messages that the engine has logged since the last call: (level of the logging module, text).
    """
def take_spare(context: Context) -> Context:
    """
    The second context of the device that is kept idle with this one, which is the caller's from then on; None where there is none that can be used. Raises StateError where the context is closed, and DeviceLostError where its device is lost.
    """
def take_validation_messages() -> list[str]:
    """
    Messages of the Khronos validation layer since the last call (PUMICE_VALIDATION=1).
    """
def tensor(array: np.typing.NDArray[typing.Any], context: Context) -> Tensor:
    """
    A tensor with a copy of the array's elements, row-major.
    """
def to_whc8(array: np.typing.NDArray[typing.Any], layout: str | None = None) -> np.typing.NDArray[typing.Any]:
    """
    The elements of activations in the order of WHC8, images one after the other: an array of one axis and the same dtype.
    layout: the array's axes, the letters C, H and W and for a batch N in any order; None: 'CHW' or 'NCHW' by rank. Raises
    BindingError (D6), UnsupportedError for elements of other than 1, 2, 4 or 8 bytes.
    """
def unpack_conv_weights(packed: bytes | np.typing.NDArray[typing.Any], shape: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], *, quantized: bool = False, prelu: bool = False) -> UnpackedWeights:
    """
    The weights, biases and slopes that pack_conv_weights packed.
    packed: bytes, or an array of uint8; what is beyond the packed weights is not read. shape: (kernels, channels, ky, kx). Raises
    BindingError (D1, D2, D3).
    """
def unpack_dil_weights(packed: bytes | np.typing.NDArray[typing.Any], shape: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], *, quantized: bool = False, prelu: bool = False) -> UnpackedWeights:
    """
    The weights, biases and slopes that pack_dil_weights packed.
    packed: bytes, or an array of uint8; what is beyond the packed weights is not read. shape: (kernels, channels, ky, kx). Raises
    BindingError (D1, D2, D3).
    """
def unpack_fc_weights(packed: bytes | np.typing.NDArray[typing.Any], shape: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], *, quantized: bool = False) -> UnpackedWeights:
    """
    The weights and biases that pack_fc_weights packed; shape: that of its weights, packed as of unpack_conv_weights. Raises
    BindingError (D1, D2, D3).
    """
def visible_places(devices: collections.abc.Sequence[DeviceInfo], variables: collections.abc.Mapping[str, str], nvml: str, kfd: str) -> tuple[list[int], str]:
    """
    Which of the given devices variables of the environment leave, as places in the list in the order of devices(), and why in words. nvml: the file of NVIDIA's management library. kfd: the folder of the nodes of the kernel's compute topology.
    """
def whc8_index(shape: typing.Annotated[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], "FixedSize(3)"], channel: typing.SupportsInt | typing.SupportsIndex, y: typing.SupportsInt | typing.SupportsIndex, x: typing.SupportsInt | typing.SupportsIndex) -> int:
    """
    Where an element of one image stands in WHC8; shape: (channels, height, width). Raises BindingError (D6).
    """
def write_cache_entry(kind: str, name: str, payload: bytes) -> bool:
    """
    Replace an entry atomically. False if the file could not be written.
    """
__version__: str = '0.1.0'
