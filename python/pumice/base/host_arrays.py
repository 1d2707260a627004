"""Convert arguments to NumPy arrays."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from .element_types import Array
from .errors import binding_error
from .torch_tensors import plain_inside

if TYPE_CHECKING:
    import numpy.typing as npt
else:
    from . import lazy_numpy_typing as npt

_COPIED = 4096  # compare arrays of up to this many bytes through copies


def unmasked(value: Any, name: str, kind: str = "input") -> Any:
    """Return the value. Raise BindingError (K5) for a masked array, whose mask would be lost."""
    # NumPy imports numpy.ma lazily, which takes 8 ms. If it is not loaded, no value can be a masked array.
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())
    if isinstance(value, masked):
        expected, hint = "an array without a mask", ".filled(value) makes one"
        raise binding_error("K5", name, expected, "a masked array", hint, kind=kind)
    return value


def numpy_of(value: Any, name: str, expected: str, kind: str = "input", dtype: npt.DTypeLike | None = None) -> Array:
    """Convert the value to a NumPy array, optionally of `dtype`.

    Raise BindingError (K5) for a masked array, and for a value that cannot be converted; the message ends with the error message from NumPy
    or the value's own library (e.g. for a tensor on another device). Raise UnsupportedError for a torch tensor that requires a gradient.
    """
    unmasked(value, name, kind)
    given = plain_inside(value, name)
    try:
        return np.asarray(given, dtype)
    except MemoryError:
        raise
    except Exception as error:  # other libraries have their own error classes
        raise binding_error("K5", name, expected, f"{type(value).__name__}: {error}", kind=kind) from error


def as_array(value: Any, name: str, expected: str, kind: str = "input") -> Array:
    """Convert the value to a NumPy array like numpy_of, but also raise BindingError (K5) for object arrays."""
    array = numpy_of(value, name, expected, kind)
    if array.dtype == object:
        raise binding_error("K5", name, expected, type(value).__name__, kind=kind)
    return array


def element_bytes(array: Array) -> Array:
    """Return each element as a row of bytes: NaN then equals NaN with the same payload, and -0 differs from 0."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype == object:  # NumPy string dtypes lose trailing NULs
        flat = np.array([repr(one) for one in flat.tolist()])
    return flat.view(np.uint8).reshape(flat.size, -1) if flat.size else np.zeros((0, 1), np.uint8)


def same_bits(one: Array, other: Array) -> bool:
    """Return whether two arrays have the same shape, dtype and bytes."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype == object:
        return np.array_equal(one, other)
    if one.nbytes <= _COPIED:  # for few bytes a copy is faster than views
        return one.tobytes() == other.tobytes()
    return np.array_equal(_words(one), _words(other))


def differing(one: Array, other: Array) -> Array:
    """Return a mask of elements that differ in any bit; all True if the shapes or dtypes differ."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return np.ones(one.shape, bool)
    if one.dtype == object:
        return np.asarray(one != other)
    return np.asarray((element_bytes(one) != element_bytes(other)).any(axis=1).reshape(one.shape))


def _words(array: Array) -> Array:
    """View the bytes of an array as integers: 64-bit if the size is a multiple of 8, else 8-bit."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat.view(np.uint64) if flat.size % 8 == 0 else flat
