"""Makes NumPy arrays of arguments: of arrays, and of anything else that NumPy converts."""

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
    from . import lazy_typing as npt

_COPIED = 4096  # bytes


def unmasked(value: Any, name: str, kind: str = "input") -> Any:
    """The value itself. Raises BindingError (K5) for a masked array, whose mask would be lost."""
    # NumPy imports its masked arrays when they are first asked for, which takes 8 ms: before that no value is one.
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())
    if isinstance(value, masked):
        expected, hint = "an array without a mask", ".filled(value) makes one"
        raise binding_error("K5", name, expected, "a masked array", hint, kind=kind)
    return value


def numpy_of(value: Any, name: str, expected: str, kind: str = "input", dtype: npt.DTypeLike | None = None) -> Array:
    """The value as a NumPy array, of `dtype` where one is given.

    Raises BindingError (K5) for a masked array, and for a value that cannot be converted. The message ends with the
    reason that NumPy or the value's own library gives: a tensor lies on another device. Raises UnsupportedError for a
    tensor of torch that a gradient is asked for.
    """
    unmasked(value, name, kind)
    given = plain_inside(value, name)
    try:
        return np.asarray(given, dtype)
    except MemoryError:
        raise
    except Exception as error:  # other libraries raise errors of their own classes
        raise binding_error("K5", name, expected, f"{type(value).__name__}: {error}", kind=kind) from error


def as_array(value: Any, name: str, expected: str, kind: str = "input") -> Array:
    """The value as a NumPy array, as numpy_of makes it. Raises BindingError (K5) for an array of objects as well."""
    array = numpy_of(value, name, expected, kind)
    if array.dtype == object:
        raise binding_error("K5", name, expected, type(value).__name__, kind=kind)
    return array


def element_bytes(array: Array) -> Array:
    """The elements as rows of bytes, so that NaN equals NaN of the same payload, and -0 is not 0."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype == object:  # strings, of which NumPy's own lose a NUL at the end
        flat = np.array([repr(one) for one in flat.tolist()])
    return flat.view(np.uint8).reshape(flat.size, -1) if flat.size else np.zeros((0, 1), np.uint8)


def same_bits(one: Array, other: Array) -> bool:
    """Whether two arrays have the same shape, dtype and bytes."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype == object:
        return np.array_equal(one, other)
    if one.nbytes <= _COPIED:  # to copy few bytes is quicker than to make views of them
        return one.tobytes() == other.tobytes()
    return np.array_equal(_words(one), _words(other))


def differing(one: Array, other: Array) -> Array:
    """Which elements differ in a bit; all of them where the shapes do."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return np.ones(one.shape, bool)
    if one.dtype == object:
        return np.asarray(one != other)
    return np.asarray((element_bytes(one) != element_bytes(other)).any(axis=1).reshape(one.shape))


def _words(array: Array) -> Array:
    """The bytes of an array as integers, of 64 bits where these take all of it."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat.view(np.uint64) if flat.size % 8 == 0 else flat
