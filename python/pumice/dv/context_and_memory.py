"""Contexts, memory and command lists of the dv interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, SupportsBytes, SupportsFloat, SupportsIndex, SupportsInt

import numpy as np
import numpy.typing as npt

import pumice._pumice as _pumice

from ..base.errors import binding_error
from ..base.host_arrays import as_array
from ..device.context import default_context


class Context(_pumice.DvContext):
    """A device for dv commands; a context manager.

    `device` is a pumice.Context, a device name (`pumice.Context(name)`), or None for the default context. `strict`: lists reject
    commands that the vendor's hardware does not support. `separate`: the host maps copies of memories, as on a device with
    dedicated memory, so that a missing sync shows on every device. Raise DeviceError if the device does not exist or cannot be
    opened.
    """

    _is_initialized = False  # allows repr() in a traceback before the base class is initialized

    def __init__(
        self, device: _pumice.Context | str | None = None, *, strict: bool = False, separate: bool = False
    ) -> None:
        if isinstance(device, str):
            device = _pumice.Context(device)
        super().__init__(device or default_context(), strict, separate)
        self._is_initialized = True

    def memory(self, size: int) -> Memory:
        """Allocate memory of at least `size` bytes. Raise BindingError for 0 bytes, OutOfMemoryError if the allocation fails."""
        return Memory(self, size)

    def command_list(self) -> CommandList:
        """Create an empty CommandList of this context."""
        return CommandList(self)

    def __repr__(self) -> str:
        if not self._is_initialized:
            return "<dv.Context, not made>"
        return "<dv.Context, closed>" if self.closed else f"<dv.Context on '{self.device.info.name}'>"


class Memory(_pumice.DvMemory):
    """Whole pages of uninitialized memory; a context manager.

    `memory + offset` is the location at a byte offset in it. Raise BindingError for 0 bytes, OutOfMemoryError if the allocation fails.
    """

    def __add__(self, offset: int) -> tuple[Memory, int]:
        return self, offset

    def array(self, dtype: npt.DTypeLike, shape: int | Sequence[int], offset: int = 0) -> npt.NDArray[Any]:
        """Map the memory and return an array view from `offset` on, which keeps the memory alive.

        Raise BindingError if the memory is too small.
        """
        element_type = np.dtype(dtype)
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        count = int(np.prod(sizes, dtype=np.int64))
        if offset < 0 or offset + count * element_type.itemsize > self.size:
            requested_range = f"{count * element_type.itemsize} bytes at {offset}"
            raise binding_error(
                "D4", "offset", f"a range of at most {self.size} bytes", requested_range, kind="argument"
            )
        return np.frombuffer(self.map(), element_type, count, offset).reshape(sizes)

    @contextmanager
    def sync(self, read: bool = True, write: bool = True) -> Iterator[npt.NDArray[np.uint8]]:
        """Map the memory and start a sync for host access; the sync ends with the block, while the mapping remains."""
        view = self.map()
        self.sync_start(read, write)
        try:
            yield view
        finally:
            self.sync_end()

    def write(self, values: npt.ArrayLike | bytes, offset: int = 0) -> None:
        """Copy the bytes of an array to `offset` in the memory and publish them to the device. Raise BindingError if they do not fit."""
        if isinstance(values, bytes):
            data = np.frombuffer(values, np.uint8)
        else:
            data = np.ascontiguousarray(as_array(values, "values", "an array or bytes", "argument"))
        self.array(data.dtype, data.shape, offset)[...] = data
        self.to_device(offset, data.nbytes)

    def read(self, dtype: npt.DTypeLike, shape: int | Sequence[int], offset: int = 0) -> npt.NDArray[Any]:
        """Return a copy of the device's elements from `offset` on. Raise BindingError if the memory is too small."""
        view = self.array(dtype, shape, offset)
        self.to_cpu(offset, view.nbytes)
        return view.copy()

    def __repr__(self) -> str:
        return "<dv.Memory, closed>" if self.closed else f"<dv.Memory of {self.size} bytes>"


class CommandList(_pumice.DvCommandList):
    """A sequence of commands, committed once and executed many times; a context manager.

    `add` and `commit` are not thread-safe; `exec` and `wait` are.
    """

    _last_exec_id = 0

    def add(self, command: SupportsBytes | bytes) -> None:
        """Check and add a command, or the bytes of a raw one, and keep its memories alive.

        Raise BindingError naming the run and the field; StateError after `commit`.
        """
        self.add_raw(bytes(command))

    def exec(self) -> int:
        """Queue one execution and return its id. Raise StateError before `commit`."""
        self._last_exec_id = super().exec()
        return self._last_exec_id

    def wait(
        self,
        exec_id: SupportsInt | SupportsIndex | None = None,
        timeout: SupportsFloat | SupportsIndex | None = None,
    ) -> None:
        """Wait for an execution, by default the last one; timeout in seconds.

        Raise TimeoutError if the timeout expires, DeviceLostError if the device is lost, BindingError for an unknown id, StateError before
        `commit`.
        """
        super().wait(self._last_exec_id if exec_id is None else exec_id, timeout)

    def run(self, timeout: float | None = None) -> None:
        """Execute the list once and wait."""
        self.wait(self.exec(), timeout)

    def __repr__(self) -> str:
        return "<dv.CommandList, closed>" if self.closed else f"<dv.CommandList of {len(self)} commands>"


def total_size() -> int:
    """Return the total bytes of all dv memories of the process."""
    return _pumice.dv_total_size()


def get_version_string() -> str:
    """Return the interface's version: the hardware's major and minor number, and a date."""
    return _pumice.dv_version_string()
