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
from .cuda_driver import ImportedMemory, ImportedSemaphore, Primary, driver


class _Stream:
    """One CUDA stream, and the timeline that it signals. Each stream has its own, because signals of several streams would be out of
    order.
    """

    def __init__(self, context: Context, primary: Primary) -> None:
        self.ready = _pumice.SharedTimeline(context)
        self.signalled = ImportedSemaphore(primary, self.ready.export_semaphore())
        self.lock = threading.Lock()
        self.value = 0


class CudaSide:
    """The CUDA objects for one context: the GPU's primary context, and the shared timelines."""

    def __init__(self, context: Context) -> None:
        """Create the objects. Raise UnsupportedError naming the missing driver, device or function."""
        self.primary = Primary(driver(), context.info.uuid)
        self._lock = threading.Lock()
        self._streams: dict[int, _Stream] = {}
        self._finished: tuple[Any, ImportedSemaphore] | None = None

    def share(self, tensor: Tensor) -> None:
        """Map the memory of a tensor from empty_shared into CUDA's address space."""
        buffer = tensor.buffer
        size = buffer._allocated_bytes
        memory = ImportedMemory(self.primary, buffer._export_memory(), size)
        buffer._set_mapping(memory.address, self.primary.number, memory)

    def finished(self, context: Context) -> tuple[Any, ImportedSemaphore]:
        """Return the timeline that receives the ids of ordered submissions, as seen by the context and by CUDA."""
        if (known := self._finished) is not None:
            return known
        with self._lock:
            if self._finished is None:
                timeline = _pumice.SharedTimeline(context)
                self._finished = (timeline, ImportedSemaphore(self.primary, timeline.export_semaphore()))
            return self._finished

    def stream(self, handle: int, context: Context) -> _Stream:
        """Return the state of a stream, keyed by its CUDA stream id, because a handle may be reused after the stream is destroyed."""
        number = c_uint64()
        self.primary.cuda.call("cuStreamGetId", handle, byref(number))
        if (known := self._streams.get(number.value)) is not None:
            return known
        with self._lock:
            if number.value not in self._streams:
                self._streams[number.value] = _Stream(context, self.primary)
            return self._streams[number.value]


_sides: WeakKeyDictionary[Context, CudaSide] = WeakKeyDictionary()
_lock = threading.Lock()


def cuda_side(context: Context) -> CudaSide:
    """Return the CUDA objects of a context, created on first use. Raise UnsupportedError naming the missing driver, device or function."""
    with _lock:
        if (side := _sides.get(context)) is None:
            side = _sides[context] = CudaSide(context)
        return side


def empty_shared(shape: int | Sequence[int], dtype: npt.DTypeLike, context: Context) -> Tensor:
    """Return an uninitialized tensor in memory shared with CUDA. Raise the errors of pumice.empty."""
    side = cuda_side(context)
    made = _pumice.empty_shared(shape, dtype, context)
    side.share(made)
    return made


class _Open(threading.local):
    """The active orders of a thread as pairs (context, stream handle), innermost last."""

    def __init__(self) -> None:
        self.all: list[tuple[Context, int]] = []


_open = _Open()


class Order:
    """Order the thread's submissions in a `with` block after the stream's current work, and the stream's later work after them. The host
    does not wait.
    """

    def __init__(self, context: Context, stream: int) -> None:
        """stream: the handle of a stream of the context's GPU; 0 for CUDA's default stream. Raise UnsupportedError like `cuda_side`."""
        self._context = context
        self._side = cuda_side(context)
        self._handle = stream
        self._done, self._awaited = self._side.finished(context)

    def __enter__(self) -> Order:
        for context, handle in _open.all:
            if context is self._context and handle != self._handle:
                raise StateError(
                    "an order of this context with another stream has begun on this thread; end that one first"
                )
        primary = self._side.primary
        if primary.is_current():
            self._signal()
        else:
            with primary.current():
                self._signal()
        _open.all.append((self._context, self._handle))
        return self

    def _signal(self) -> None:
        if self._side.primary.is_capturing(self._handle):
            raise StateError(
                "expected a stream whose work runs, given one that is being captured into a graph of CUDA's: the graph would not hold"
                " what is submitted here"
            )
        stream = self._side.stream(self._handle, self._context)
        with stream.lock:
            stream.signalled.signal(stream.value + 1, self._handle)
            stream.value += 1
            value = stream.value
        _pumice.begin_order(stream.ready, value, self._done)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _open.all.pop()
        last = _pumice.end_order()
        if not last:
            return
        primary = self._side.primary
        if primary.is_current():
            self._awaited.wait(last, self._handle)
            return
        with primary.current():
            self._awaited.wait(last, self._handle)
