"""The default context, and the engine's nouns that use it where they are given none."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _pumice
from ._pumice import Context, ShaderOptions, Tensor
from .log import forward_log


class _Default:
    """The context that is made on first use, in each process anew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context: Context | None = None
        self._process = 0

    def get(self) -> Context:
        context = self._context
        if context is not None and self._process == os.getpid() and not context.closed:
            return context
        with self._lock:
            if self._context is None or self._process != os.getpid() or self._context.closed:
                self._context = Context()
                self._process = os.getpid()
            context = self._context
        forward_log()
        return context


_default = _Default()
os.register_at_fork(after_in_child=lambda: setattr(_default, "_lock", threading.Lock()))


def default_context() -> Context:
    """The context of everything that is given none: PUMICE_DEVICE's device, else the best one; `.choice` says why.

    Made on first use, and again after it was closed or in a forked child. Raises DeviceError.
    """
    return _default.get()


def empty(shape: int | Sequence[int], dtype: npt.DTypeLike, context: Context | None = None) -> Tensor:
    """A tensor of undefined content."""
    return _pumice.empty(shape, dtype, context or default_context())


def tensor(array: npt.ArrayLike, context: Context | None = None) -> Tensor:
    """A tensor with a copy of the array's elements, row-major."""
    return _pumice.tensor(np.asarray(array), context or default_context())


class Kernel(_pumice.Kernel):
    """A compute shader in GLSL with the extension's types; called with its arguments by name."""

    def __init__(
        self,
        source: str,
        context: Context | None = None,
        name: str = "kernel",
        macros: Mapping[str, str] | None = None,
        spec: Mapping[str, float] | None = None,
        includes: Mapping[str, str] | None = None,
        options: ShaderOptions | None = None,
    ) -> None:
        """Macros: names -> text. spec: specialization constants -> values. includes: paths -> text. options: in place of
        those that follow from the device and the arrays, which are then of the types that the shader declares.

        Raises ShaderCompileError, UnsupportedError.
        """
        optional: dict[str, Any] = {} if includes is None else {"includes": dict(includes)}
        optional |= {} if options is None else {"options": options}
        super().__init__(source, context or default_context(), name, dict(macros or {}), dict(spec or {}), **optional)
        forward_log()
