"""The default context, and constructors for tensors and images that use it unless another is passed."""

from __future__ import annotations

import os
from _thread import allocate_lock  # threading.Lock without importing threading, which takes 0.7 ms
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

import pumice._pumice as _pumice

from .._pumice import Context, DeviceInfo, Image, StateError, Tensor, UnsupportedError
from ..base.errors import binding_error
from ..base.host_arrays import as_array, to_numpy
from ..base.log import forward_log
from ..base.torch_tensors import convert_torch_tensor, detach_tensor

if TYPE_CHECKING:
    import numpy.typing as npt
else:
    from ..base import lazy_numpy_typing as npt

_EXPECTED_NUMBERS = "an array of numbers"

Number = float | np.number[Any] | np.bool_


class _DefaultContext:
    """Holds the default context, which is created on first use in each process."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._context: Context | None = None
        self._process = 0

    def get_existing(self) -> Context | None:
        """Return the default context; None before first use, after it was closed, and in a forked child."""
        context = self._context
        return None if context is None or self._process != os.getpid() or context.closed else context

    def get(self) -> Context:
        if (context := self.get_existing()) is not None:
            return context
        with self._lock:
            if (context := self.get_existing()) is None:
                context = self._context = Context()
                self._process = os.getpid()
        forward_log()
        return context

    def replace(self, context: Context | None) -> None:
        with self._lock:
            self._context = context
            self._process = os.getpid()


_default = _DefaultContext()
os.register_at_fork(after_in_child=lambda: setattr(_default, "_lock", allocate_lock()))


class ContextRef(NamedTuple):
    """A description of a context that is valid in other processes."""

    device: str  # device name of the form "uuid:..."
    without: tuple[str, ...]  # features and extensions that are disabled
    compile_only: bool


# contexts of pickled and unpickled models, reused for the same device
_contexts_by_ref: WeakValueDictionary[ContextRef, Context] = WeakValueDictionary()


def make_context_ref(context: Context) -> ContextRef | None:
    """Return a reference by which another process can find the context; None for the default context, which every process has.

    Raise StateError for a closed context.
    """
    if context is _default.get_existing():
        return None
    if context.closed:
        raise StateError("a closed context cannot be found again by its device")
    ref = ContextRef(f"uuid:{context.info.uuid}", tuple(sorted(context.without)), context.compile_only)
    _contexts_by_ref.setdefault(ref, context)
    return ref


def resolve_context_ref(ref: ContextRef | None) -> Context:
    """Return the context that a reference describes: the default context for None, else an open or new context on that device.

    Raise DeviceError if the device does not exist or cannot be opened.
    """
    if ref is None:
        return default_context()
    context = _contexts_by_ref.get(ref)
    if context is None or context.closed:
        context = _contexts_by_ref[ref] = Context(ref.device, without=list(ref.without), compile_only=ref.compile_only)
    return context


class Devices(list[DeviceInfo]):
    """The Vulkan devices available to this process, by index; a table in a notebook.

    hidden: devices hidden by CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES; their index is -1. note: which devices
    are hidden and why; "" if none.
    """

    def __init__(self, visible: Iterable[DeviceInfo] = (), hidden: Iterable[DeviceInfo] = (), note: str = "") -> None:
        super().__init__(visible)
        self.hidden = tuple(hidden)
        self.note = note

    def __repr__(self) -> str:
        return f"<{list(self)!r}; {self.note}>" if self.note else super().__repr__()

    def _repr_html_(self) -> str:
        from ..base.html import render_devices

        return render_devices(self, self.note)


def devices() -> Devices:
    """Return the Vulkan devices available to this process; empty without a loader or driver.

    Devices hidden by CUDA_VISIBLE_DEVICES and the like are in `.hidden`, and the reason in `.note`.
    """
    return Devices(*_pumice.device_list())


def default_context() -> Context:
    """Return the default context: on the device that PUMICE_DEVICE names, else on the best one.

    `.choice` explains the choice. The context is created on first use, and again after it was closed or in a forked child. Raise
    DeviceError if there is no usable device.
    """
    return _default.get()


def get_existing_default_context() -> Context | None:
    """Return the default context, or None if it has not been created yet."""
    return _default.get_existing()


def replace_default_context(context: Context | None) -> None:
    """Make another context the default one, without closing the previous one; with None, the next use creates a context."""
    _default.replace(context)


def validate_context(context_argument: Any) -> Context | None:
    """Return the argument. Raise BindingError (K5), with a hint on how to name devices, if it is neither a Context nor None."""
    if context_argument is None or isinstance(context_argument, Context):
        return context_argument
    hint = (
        f"pumice.Context({context_argument!r}) opens a device by name"
        if isinstance(context_argument, str | int)
        else ""
    )
    raise binding_error("K5", "context", "a Context", type(context_argument).__name__, hint, kind="argument")


def _context_or_default(context_argument: Context | None) -> Context:
    return validate_context(context_argument) or default_context()


def empty(
    shape: int | Sequence[int], dtype: npt.DTypeLike, context: Context | None = None, *, share: str | None = None
) -> Tensor:
    """Return an uninitialized tensor.

    share="cuda": in memory shared with CUDA on the same GPU. `torch.from_dlpack(tensor)` is a torch.cuda tensor of the same bytes, which
    live as long as either side refers to them. pumice.torch.ordered() orders the work of both. Each such tensor has a separate
    allocation.

    Raise OutOfMemoryError; UnsupportedError naming what is missing for sharing: the CUDA driver, the GPU among CUDA's devices, or the
    Vulkan extension; BindingError (K5) for another value of share; DeviceError if a CUDA call fails.
    """
    if share is None:
        return _pumice.empty(shape, dtype, _context_or_default(context))
    if share != "cuda":
        raise binding_error("K5", "share", "'cuda' or None", repr(share), kind="argument")
    from .cuda_sharing import empty_shared

    return empty_shared(shape, dtype, _context_or_default(context))


def empty_host(shape: int | Sequence[int], dtype: npt.DTypeLike, context: Context | None = None) -> npt.NDArray[Any]:
    """Return an uninitialized NumPy array in host memory that the device can access (pinned memory).

    It is an ordinary array. Tensors of its context copy from it and to it (`tensor.upload(array)`, `tensor.numpy(out=array)`), and a
    model call reads large inputs from it and writes large outputs to it (`out=`), without an intermediate copy on the host; `run_async`
    and `map` copy their inputs. Contiguous slices work as well. The memory belongs to the context, which stays alive at least as long,
    and is scarcer than other memory. Raise OutOfMemoryError, GraphError for an invalid shape, and UnsupportedError for 4-bit dtypes.
    """
    return _pumice.empty_host(shape, dtype, _context_or_default(context))


def full(
    shape: int | Sequence[int], value: Number, dtype: npt.DTypeLike = "float32", context: Context | None = None
) -> Tensor:
    """Return a tensor filled with one number. Raise BindingError (K6) if an integer dtype cannot represent it."""
    fill_value = convert_torch_tensor(value, "value")
    result = empty(shape, dtype, context)
    result.fill(fill_value.item() if isinstance(fill_value, np.ndarray) and fill_value.ndim == 0 else fill_value)
    return result


def zeros(shape: int | Sequence[int], dtype: npt.DTypeLike = "float32", context: Context | None = None) -> Tensor:
    """Return a tensor of zeros."""
    return full(shape, 0, dtype, context)


def ones(shape: int | Sequence[int], dtype: npt.DTypeLike = "float32", context: Context | None = None) -> Tensor:
    """Return a tensor of ones."""
    return full(shape, 1, dtype, context)


def tensor(array: npt.ArrayLike, context: Context | None = None) -> Tensor:
    """Copy an array, with any strides and byte order, to a row-major tensor.

    Raise BindingError (K5) for unsupported dtypes (object, structures, text, complex) and for masked arrays.
    """
    return _pumice.tensor(to_numpy(array, "array", _EXPECTED_NUMBERS, "argument"), _context_or_default(context))


def asarray(
    array: Any, dtype: npt.DTypeLike | None = None, context: Context | None = None, *, copy: bool | None = None
) -> Tensor:
    """Convert the argument to a tensor. A Tensor is returned unchanged unless copy is True or the dtype differs; other arrays are copied.

    copy=False: never copy; wrap an array like from_host. dtype: convert the elements, on the device if the argument is a Tensor. Raise the
    errors of tensor, from_host and Tensor.to; UnsupportedError if copy=False would need a copy; BindingError (M3) for a tensor of another
    context.
    """
    if isinstance(array, Tensor):
        if context is not None and array.context is not context:
            raise binding_error("M3", "array", "a tensor of this context", "one of another")
        converted = array if dtype is None else array.to(dtype)
        if copy is False and converted is not array:
            raise UnsupportedError(f"an array of {array.dtype} cannot become one of {converted.dtype} without a copy")
        return array.copy() if copy and converted is array else converted
    if copy is False:
        host_array = array if isinstance(array, np.ndarray) else to_numpy(array, "array", _EXPECTED_NUMBERS, "argument")
        if dtype is not None and host_array.dtype != dtype:
            raise UnsupportedError(
                f"an array of {host_array.dtype} cannot become one of {np.dtype(dtype)} without a copy"
            )
        return from_host(array, context)
    return tensor(to_numpy(array, "array", _EXPECTED_NUMBERS, "argument", dtype), context)


def from_host(array: npt.NDArray[Any], context: Context | None = None) -> Tensor:
    """Wrap an array's memory as a tensor of the same shape and strides.

    The device and the array see each other's writes after a wait for the device's work. The array stays alive until the device is done
    with it.

    Raise TypeError for anything but an array, and UnsupportedError with the reason if its memory cannot be used: no
    VK_EXT_external_memory_host, memory not aligned to the device's "minImportedHostPointerAlignment" (a page) or not a multiple of 16
    bytes, a read-only array, negative strides, 4-bit dtypes. tensor(array) copies any array.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_host: expected a NumPy array, given {type(array).__name__}")
    return _pumice.from_host(array, _context_or_default(context))


def from_dlpack(array: Any, context: Context | None = None, *, copy: bool | None = None) -> Tensor:
    """Copy another library's CPU array to a dense tensor, through DLPack.

    copy=False: wrap the array's memory like from_host. A CUDA array in memory from empty(share="cuda") returns the tensor in that memory,
    or with copy=True a copy on the device, without synchronization.

    Raise UnsupportedError for arrays on other devices, in CUDA memory that is not shared, or with unsupported dtypes, and for torch
    tensors that require a gradient.
    """
    return _pumice.from_dlpack(detach_tensor(array, "array"), _context_or_default(context), copy)


def image(
    array: npt.ArrayLike,
    format: str,
    context: Context | None = None,
    *,
    filter: str = "nearest",
    address: str = "clamp",
    normalized: bool | None = None,
) -> Image:
    """Create an image from a copy of the array's elements.

    array: of shape [width], [height, width] or [depth, height, width], plus a last axis of 2 or 4 channels for formats that begin with
    "rg" and "rgba". filter, address, normalized: see Image.

    Raise BindingError for elements that the format cannot represent exactly, UnsupportedError for a shape or format that the device does
    not support.
    """
    host_array = as_array(array, "array", _EXPECTED_NUMBERS, "argument")
    result = Image(
        _context_or_default(context), format, host_array.shape, filter=filter, address=address, normalized=normalized
    )
    result.upload(host_array)
    return result
