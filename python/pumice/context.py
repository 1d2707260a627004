"""The default context, and the engine's nouns that use it where they are given none."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from . import _pumice
from ._pumice import Context, Image, Tensor
from .errors import binding_error
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


def image(
    array: npt.ArrayLike,
    format: str,
    context: Context | None = None,
    *,
    filter: str = "nearest",
    address: str = "clamp",
    normalized: bool | None = None,
) -> Image:
    """An image with a copy of the array's elements as texels: (depth, height, width), without those it has not, and 4 channels
    last in the formats "rgba16f" and "rgba32f"; "r16f" and "r32f" have none. The rest as for Image.

    Raises BindingError for elements that the format does not hold exactly, UnsupportedError for a shape or format that the
    device does not take.
    """
    try:
        given = np.asarray(array)
    except ValueError as error:  # ragged lists
        raise binding_error("K5", "array", "an array", type(array).__name__, str(error), kind="argument") from None
    made = Image(
        context or default_context(), format, given.shape, filter=filter, address=address, normalized=normalized
    )
    made.upload(given)
    return made
