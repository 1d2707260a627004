"""Arrays as a caller gives them: NumPy's, or what another library has that NumPy makes an array of."""

from __future__ import annotations

from typing import Any

import numpy as np

from .element_types import Array
from .errors import binding_error


def unmasked(value: Any, name: str, kind: str = "input") -> Any:
    """The value itself. Raises BindingError (K5) for a masked array, whose mask would be lost."""
    if isinstance(value, np.ma.MaskedArray):
        expected, hint = "an array without a mask", ".filled(value) makes one"
        raise binding_error("K5", name, expected, "a masked array", hint, kind=kind)
    return value


def as_array(value: Any, name: str, expected: str, kind: str = "input") -> Array:
    """What NumPy makes of a value. Raises BindingError (K5) for a masked array and where it makes nothing, with the reason.

    A library says in an error of its own why it gives no array: that a tensor needs grad, or lies on another device.
    """
    unmasked(value, name, kind)
    try:
        array = np.asarray(value)
    except MemoryError:
        raise
    except Exception as error:  # of the library's own classes
        raise binding_error("K5", name, expected, f"{type(value).__name__}: {error}", kind=kind) from error
    if array.dtype == object:
        raise binding_error("K5", name, expected, type(value).__name__, kind=kind)
    return array
