"""The default context, and the engine's nouns that use it where they are given none."""

from __future__ import annotations

import os
from _thread import allocate_lock  # threading.Lock, without the rest of threading, whose import takes 0.7 ms
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

import pumice._pumice as _pumice

from .._pumice import Context, DeviceInfo, Image, StateError, Tensor, UnsupportedError
from ..base.errors import binding_error
from ..base.host_arrays import as_array, numpy_of
from ..base.log import forward_log
from ..base.torch_tensors import plain, without_gradient

if TYPE_CHECKING:
    import numpy.typing as npt
else:
    from ..base import lazy_typing as npt

_NUMBERS = "an array of numbers"

Number = float | np.number[Any] | np.bool_


class _Default:
    """Holds the default context, which is made on first use, in each process anew."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._context: Context | None = None
        self._process = 0

    def made(self) -> Context | None:
        """The default context; None where get() has to make it: before its first use, after it was closed, in a
        forked child.
        """
        context = self._context
        return None if context is None or self._process != os.getpid() or context.closed else context

    def get(self) -> Context:
        if (context := self.made()) is not None:
            return context
        with self._lock:
            if (context := self.made()) is None:
                context = self._context = Context()
                self._process = os.getpid()
        forward_log()
        return context

    def replace(self, context: Context | None) -> None:
        with self._lock:
            self._context = context
            self._process = os.getpid()


_default = _Default()
os.register_at_fork(after_in_child=lambda: setattr(_default, "_lock", allocate_lock()))


class Place(NamedTuple):
    """Where a context is, in words that another process understands."""

    device: str  # "uuid:..."
    without: tuple[str, ...]  # features and extensions that the context does without


# contexts that pickled models were on, or came back to
_placed: WeakValueDictionary[Place, Context] = WeakValueDictionary()


def place_of(context: Context) -> Place | None:
    """Where another process finds the context; None for the default context, of which every process has its own.

    Raises StateError for a context that is closed.
    """
    if context is _default.made():
        return None
    if context.closed:
        raise StateError("a context that is closed cannot be found again by its device")
    place = Place(f"uuid:{context.info.uuid}", tuple(sorted(context.without)))
    _placed.setdefault(place, context)
    return place


def context_at(place: Place | None) -> Context:
    """The context at a place: the default one for None, else one of that device that is open already, or a new one.

    Raises DeviceError.
    """
    if place is None:
        return default_context()
    context = _placed.get(place)
    if context is None or context.closed:
        context = _placed[place] = Context(place.device, without=list(place.without))
    return context


class Devices(list[DeviceInfo]):
    """The Vulkan devices that this process may use, in the order of their indices; a table in a notebook.

    hidden: devices that CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES hides, whose index is -1.
    note: which these are and why, in words; "" where nothing is hidden.
    """

    def __init__(self, visible: Iterable[DeviceInfo] = (), hidden: Iterable[DeviceInfo] = (), note: str = "") -> None:
        super().__init__(visible)
        self.hidden = tuple(hidden)
        self.note = note

    def __repr__(self) -> str:
        return f"<{list(self)!r}; {self.note}>" if self.note else super().__repr__()

    def _repr_html_(self) -> str:
        from ..base.html import devices_html

        return devices_html(self, self.note)


def devices() -> Devices:
    """The Vulkan devices that this process may use; empty where there is no loader or no driver.

    What CUDA_VISIBLE_DEVICES and its like hide is left out, and stands in `.hidden` and, with the reason, in `.note`.
    """
    return Devices(*_pumice.device_list())


def default_context() -> Context:
    """The context of everything that is given none: on the device that PUMICE_DEVICE names, else on the best one.

    `.choice` says why it was chosen. It is made on first use, and again after it was closed or in a forked child.
    Raises DeviceError.
    """
    return _default.get()


def made_default_context() -> Context | None:
    """The default context; None where nothing has asked for it yet."""
    return _default.made()


def replace_default_context(context: Context | None) -> None:
    """Makes another context the default one, without closing that before; None: the next use makes one."""
    _default.replace(context)


def checked_context(given: Any) -> Context | None:
    """The argument itself. Raises BindingError (K5) for what is neither a Context nor None, and says how a device is
    named.
    """
    if given is None or isinstance(given, Context):
        return given
    hint = f"pumice.Context({given!r}) opens a device by its name" if isinstance(given, str | int) else ""
    raise binding_error("K5", "context", "a Context", type(given).__name__, hint, kind="argument")


def _context_of(given: Context | None) -> Context:
    return checked_context(given) or default_context()


def empty(
    shape: int | Sequence[int], dtype: npt.DTypeLike, context: Context | None = None, *, share: str | None = None
) -> Tensor:
    """A tensor of undefined content.

    share="cuda": in memory that CUDA sees too, on the same GPU: `torch.from_dlpack(tensor)` is a torch.cuda tensor of the same bytes,
    which live as long as either side holds them. pumice.torch.ordered() orders the work of both. Each such tensor has an allocation of
    its own.
    Raises OutOfMemoryError; UnsupportedError, which names what is missing for share: CUDA's driver, the GPU among its devices, the
    Vulkan extension; BindingError (K5) for another share; DeviceError where a call of CUDA fails.
    """
    if share is None:
        return _pumice.empty(shape, dtype, _context_of(context))
    if share != "cuda":
        raise binding_error("K5", "share", "'cuda' or None", repr(share), kind="argument")
    from .sharing import empty_shared

    return empty_shared(shape, dtype, _context_of(context))


def empty_host(shape: int | Sequence[int], dtype: npt.DTypeLike, context: Context | None = None) -> npt.NDArray[Any]:
    """A NumPy array of undefined content in host memory that the device reaches by itself (pinned memory).

    It is an ordinary array; tensors of its context copy from it and to it (`tensor.upload(array)`, `tensor.numpy(out=array)`), and a call
    of a model takes large inputs from it and puts large outputs into it (`out=`), without a copy by the host on the way; `run_async` and
    `map` copy their inputs. The parts of the array that are contiguous serve as well. The memory is the context's, which lives at least
    as long, and is scarcer than other memory. Raises OutOfMemoryError, GraphError for a shape that is none, and UnsupportedError for
    4-bit dtypes.
    """
    return _pumice.empty_host(shape, dtype, _context_of(context))


def full(
    shape: int | Sequence[int], value: Number, dtype: npt.DTypeLike = "float32", context: Context | None = None
) -> Tensor:
    """A tensor of one number. Raises BindingError (K6) where an integer dtype does not hold it."""
    given = plain(value, "value")
    made = empty(shape, dtype, context)
    made.fill(given.item() if isinstance(given, np.ndarray) and given.ndim == 0 else given)
    return made


def zeros(shape: int | Sequence[int], dtype: npt.DTypeLike = "float32", context: Context | None = None) -> Tensor:
    """A tensor of zeros."""
    return full(shape, 0, dtype, context)


def ones(shape: int | Sequence[int], dtype: npt.DTypeLike = "float32", context: Context | None = None) -> Tensor:
    """A tensor of ones."""
    return full(shape, 1, dtype, context)


def tensor(array: npt.ArrayLike, context: Context | None = None) -> Tensor:
    """A row-major tensor with a copy of the array's elements; the array may have any strides and byte order.

    Raises BindingError (K5) for dtypes that no tensor has (object, structures, text, complex) and for masked arrays.
    """
    return _pumice.tensor(numpy_of(array, "array", _NUMBERS, "argument"), _context_of(context))


def asarray(
    array: Any, dtype: npt.DTypeLike | None = None, context: Context | None = None, *, copy: bool | None = None
) -> Tensor:
    """The argument as a tensor: a Tensor itself, unless copy is True or the dtype differs, else a copy of the
    elements.

    copy=False: no bytes are copied; an array is taken as from_host takes it. dtype: the elements are converted, on
    the device where a Tensor is given. Raises as tensor, from_host and Tensor.to do, UnsupportedError where
    copy=False needs a copy, BindingError (M3) for a tensor of another context.
    """
    if isinstance(array, Tensor):
        if context is not None and array.context is not context:
            raise binding_error("M3", "array", "a tensor of this context", "one of another")
        converted = array if dtype is None else array.to(dtype)
        if copy is False and converted is not array:
            raise UnsupportedError(f"an array of {array.dtype} cannot become one of {converted.dtype} without a copy")
        return array.copy() if copy and converted is array else converted
    if copy is False:
        given = array if isinstance(array, np.ndarray) else numpy_of(array, "array", _NUMBERS, "argument")
        if dtype is not None and given.dtype != dtype:
            raise UnsupportedError(f"an array of {given.dtype} cannot become one of {np.dtype(dtype)} without a copy")
        return from_host(array, context)
    return tensor(numpy_of(array, "array", _NUMBERS, "argument", dtype), context)


def from_host(array: npt.NDArray[Any], context: Context | None = None) -> Tensor:
    """A tensor on the array's own memory, of the same shape and strides.

    The device and the array see what the other writes once the device's work has been waited for. The array stays
    alive until the device is done with it.

    Raises TypeError for anything but an array, and UnsupportedError saying why where its memory cannot be used: no
    extension VK_EXT_external_memory_host, memory that does not begin at a multiple of the device's limit
    "minImportedHostPointerAlignment" (a page) or is no multiple of 16 bytes, a read-only array, negative strides,
    4-bit dtypes. tensor(array) makes a copy of every array.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_host: expected a NumPy array, given {type(array).__name__}")
    return _pumice.from_host(array, _context_of(context))


def from_dlpack(array: Any, context: Context | None = None, *, copy: bool | None = None) -> Tensor:
    """A tensor with a packed copy of another library's array in CPU memory, by DLPack.

    copy=False: the tensor lies on the array's own memory, as from_host's does. An array of CUDA in memory that
    empty(share="cuda") made gives the tensor there, and with copy=True a copy on the device; nothing is waited for.
    Raises UnsupportedError for arrays of other devices, of CUDA's memory that is not shared, of dtypes that no
    tensor has, and for tensors of torch that a gradient is asked for.
    """
    return _pumice.from_dlpack(without_gradient(array, "array"), _context_of(context), copy)


def image(
    array: npt.ArrayLike,
    format: str,
    context: Context | None = None,
    *,
    filter: str = "nearest",
    address: str = "clamp",
    normalized: bool | None = None,
) -> Image:
    """An image whose texels are a copy of the array's elements.

    array: of shape [width], [height, width] or [depth, height, width], with an axis of 2 or 4 channels last in the
    formats that begin with "rg" and "rgba". filter, address, normalized: see Image.

    Raises BindingError for elements that the format does not hold exactly, UnsupportedError for a shape or format
    that the device does not take.
    """
    given = as_array(array, "array", _NUMBERS, "argument")
    made = Image(_context_of(context), format, given.shape, filter=filter, address=address, normalized=normalized)
    made.upload(given)
    return made
