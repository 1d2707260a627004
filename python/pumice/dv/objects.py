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

    `device` is a pumice.Context, the name of a device (`pumice.Context(name)`), or None for the default context.
    `strict`: lists refuse what the vendor's hardware does not take. `separate`: the host maps copies of memories, as
    it does on a device with memory of its own, so that a missing sync shows anywhere. Raises DeviceError.
    """

    _is_made = False  # lets a traceback show the object before the extension has made its part

    def __init__(
        self, device: _pumice.Context | str | None = None, *, strict: bool = False, separate: bool = False
    ) -> None:
        if isinstance(device, str):
            device = _pumice.Context(device)
        super().__init__(device or default_context(), strict, separate)
        self._is_made = True

    def memory(self, size: int) -> Memory:
        """Memory of at least `size` bytes. Raises BindingError for 0 bytes, OutOfMemoryError."""
        return Memory(self, size)

    def command_list(self) -> CommandList:
        """An empty CommandList of this context."""
        return CommandList(self)

    def __repr__(self) -> str:
        if not self._is_made:
            return "<dv.Context, not made>"
        return "<dv.Context, closed>" if self.closed else f"<dv.Context on '{self.device.info.name}'>"


class Memory(_pumice.DvMemory):
    """Whole pages of memory, of undefined content; a context manager.

    `memory + offset` names a place in it. Raises BindingError for 0 bytes, OutOfMemoryError.
    """

    def __add__(self, offset: int) -> tuple[Memory, int]:
        return self, offset

    def array(self, dtype: npt.DTypeLike, shape: int | Sequence[int], offset: int = 0) -> npt.NDArray[Any]:
        """An array on the bytes from `offset` on, which keeps the memory alive; maps the memory.

        Raises BindingError where the memory is smaller.
        """
        wanted = np.dtype(dtype)
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        count = int(np.prod(sizes, dtype=np.int64))
        if offset < 0 or offset + count * wanted.itemsize > self.size:
            given = f"{count * wanted.itemsize} bytes at {offset}"
            raise binding_error("D4", "offset", f"a range of at most {self.size} bytes", given, kind="argument")
        return np.frombuffer(self.map(), wanted, count, offset).reshape(sizes)

    @contextmanager
    def sync(self, read: bool = True, write: bool = True) -> Iterator[npt.NDArray[np.uint8]]:
        """Maps the memory and starts a sync for access by the host; the sync ends with the block, the mapping stays."""
        view = self.map()
        self.sync_start(read, write)
        try:
            yield view
        finally:
            self.sync_end()

    def write(self, values: npt.ArrayLike | bytes, offset: int = 0) -> None:
        """Copies the bytes of an array to `offset` in the memory and shows them to the device. Raises BindingError."""
        if isinstance(values, bytes):
            data = np.frombuffer(values, np.uint8)
        else:
            data = np.ascontiguousarray(as_array(values, "values", "an array or bytes", "argument"))
        self.array(data.dtype, data.shape, offset)[...] = data
        self.to_device(offset, data.nbytes)

    def read(self, dtype: npt.DTypeLike, shape: int | Sequence[int], offset: int = 0) -> npt.NDArray[Any]:
        """A copy of the elements that the device has from `offset` on. Raises BindingError."""
        view = self.array(dtype, shape, offset)
        self.to_cpu(offset, view.nbytes)
        return view.copy()

    def __repr__(self) -> str:
        return "<dv.Memory, closed>" if self.closed else f"<dv.Memory of {self.size} bytes>"


class CommandList(_pumice.DvCommandList):
    """Commands that run one after the other: added, committed once, executed many times; a context manager.

    Adding and committing are for one thread; `exec` and `wait` are for any.
    """

    _last = 0

    def add(self, command: SupportsBytes | bytes) -> None:
        """Checks a command, or the bytes of a raw one, and keeps the memories that it names.

        Raises BindingError naming the run and the field; StateError after `commit`.
        """
        self.add_raw(bytes(command))

    def exec(self) -> int:
        """Queues one execution and returns its id. Raises StateError before `commit`."""
        self._last = super().exec()
        return self._last

    def wait(
        self,
        exec_id: SupportsInt | SupportsIndex | None = None,
        timeout: SupportsFloat | SupportsIndex | None = None,
    ) -> None:
        """Waits for an execution, by default the last one; timeout in seconds.

        Raises TimeoutError, DeviceLostError, BindingError for an id that was not given, StateError before `commit`.
        """
        super().wait(self._last if exec_id is None else exec_id, timeout)

    def run(self, timeout: float | None = None) -> None:
        """Executes the list once and waits."""
        self.wait(self.exec(), timeout)

    def __repr__(self) -> str:
        return "<dv.CommandList, closed>" if self.closed else f"<dv.CommandList of {len(self)} commands>"


def total_size() -> int:
    """Bytes of all dv memories of the process."""
    return _pumice.dv_total_size()


def get_version_string() -> str:
    """The interface's version: the hardware's major and minor number, and a date."""
    return _pumice.dv_version_string()
