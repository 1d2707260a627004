"""Memory shared by a context and CUDA, and the ordering of their work."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from ctypes import byref, c_uint64
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

import numpy.typing as npt

import pumice._pumice as _pumice

from .._pumice import Context, StateError, Tensor
from .cuda_driver import ImportedMemory, ImportedSemaphore, PrimaryContext, get_cuda_driver


class _StreamTimeline:
    """The timeline semaphore of one CUDA stream. Streams do not share a timeline, because their signals would be out of order."""

    def __init__(self, context: Context, primary: PrimaryContext) -> None:
        self.ready = _pumice.SharedTimeline(context)
        self.semaphore = ImportedSemaphore(primary, self.ready.export_semaphore())
        self.lock = threading.Lock()
        self.value = 0


class CudaInterop:
    """The CUDA objects for one context: the GPU's primary context, and the shared timelines."""

    def __init__(self, context: Context) -> None:
        """Create the objects. Raise UnsupportedError naming the missing driver, device or function."""
        self.primary = PrimaryContext(get_cuda_driver(), context.info.uuid)
        self._lock = threading.Lock()
        self._streams: dict[int, _StreamTimeline] = {}
        self._completion: tuple[Any, ImportedSemaphore] | None = None

    def map_memory(self, tensor: Tensor) -> None:
        """Map the memory of a tensor from empty_shared into CUDA's address space."""
        buffer = tensor.buffer
        size = buffer._allocated_bytes
        memory = ImportedMemory(self.primary, buffer._export_memory(), size)
        buffer._set_mapping(memory.address, self.primary.device_index, memory)

    def get_completion_timeline(self, context: Context) -> tuple[Any, ImportedSemaphore]:
        """Return the timeline semaphore whose value is the last completed submission id: the context's object, and its import into CUDA."""
        if (cached := self._completion) is not None:
            return cached
        with self._lock:
            if self._completion is None:
                timeline = _pumice.SharedTimeline(context)
                self._completion = (timeline, ImportedSemaphore(self.primary, timeline.export_semaphore()))
            return self._completion

    def get_stream_timeline(self, handle: int, context: Context) -> _StreamTimeline:
        """Return the timeline of a stream. It is keyed by the CUDA stream id, because handles are reused after a stream is destroyed."""
        number = c_uint64()
        self.primary.cuda.call("cuStreamGetId", handle, byref(number))
        if (cached := self._streams.get(number.value)) is not None:
            return cached
        with self._lock:
            if number.value not in self._streams:
                self._streams[number.value] = _StreamTimeline(context, self.primary)
            return self._streams[number.value]


_interops: WeakKeyDictionary[Context, CudaInterop] = WeakKeyDictionary()
_lock = threading.Lock()


def get_cuda_interop(context: Context) -> CudaInterop:
    """Return the CUDA objects of a context, created on first use. Raise UnsupportedError naming the missing driver, device or function."""
    with _lock:
        if (interop := _interops.get(context)) is None:
            interop = _interops[context] = CudaInterop(context)
        return interop


def empty_shared(shape: int | Sequence[int], dtype: npt.DTypeLike, context: Context) -> Tensor:
    """Return an uninitialized tensor in memory shared with CUDA. Raise the errors of pumice.empty."""
    interop = get_cuda_interop(context)
    shared_tensor = _pumice.empty_shared(shape, dtype, context)
    interop.map_memory(shared_tensor)
    return shared_tensor


class _ActiveStreamScopes(threading.local):
    """The active StreamOrder blocks of a thread as (context, stream handle), innermost last."""

    def __init__(self) -> None:
        self.all: list[tuple[Context, int]] = []


_active_orders = _ActiveStreamScopes()


class StreamOrder:
    """A context manager that orders the thread's submissions after the stream's current work, and the stream's later work after them,
    without waiting on the host.
    """

    def __init__(self, context: Context, stream: int) -> None:
        """stream: handle of a stream of the context's GPU; 0 for CUDA's default stream. Raise UnsupportedError like `get_cuda_interop`."""
        self._context = context
        self._interop = get_cuda_interop(context)
        self._handle = stream
        self._completion_timeline, self._completion_semaphore = self._interop.get_completion_timeline(context)

    def __enter__(self) -> StreamOrder:
        for context, handle in _active_orders.all:
            if context is self._context and handle != self._handle:
                raise StateError(
                    "this thread has already begun an order of this context with another stream; end that one first"
                )
        primary = self._interop.primary
        if primary.is_current():
            self._signal_and_begin_order()
        else:
            with primary.make_current():
                self._signal_and_begin_order()
        _active_orders.all.append((self._context, self._handle))
        return self

    def _signal_and_begin_order(self) -> None:
        if self._interop.primary.is_capturing(self._handle):
            raise StateError(
                "expected a stream that runs its work, given one that is being captured into a CUDA graph: the graph would not "
                "contain what is submitted here"
            )
        stream = self._interop.get_stream_timeline(self._handle, self._context)
        with stream.lock:
            stream.semaphore.signal(stream.value + 1, self._handle)
            stream.value += 1
            value = stream.value
        _pumice.begin_order(stream.ready, value, self._completion_timeline)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _active_orders.all.pop()
        last = _pumice.end_order()
        if not last:
            return
        primary = self._interop.primary
        if primary.is_current():
            self._completion_semaphore.wait(last, self._handle)
            return
        with primary.make_current():
            self._completion_semaphore.wait(last, self._handle)
