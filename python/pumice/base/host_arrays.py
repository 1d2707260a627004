"""Convert arguments to NumPy arrays."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from .element_types import Array
from .errors import binding_error
from .torch_tensors import convert_nested_torch_tensors

if TYPE_CHECKING:
    import numpy.typing as npt
else:
    from . import lazy_numpy_typing as npt

_MAX_COPY_BYTES = 4096  # up to this size bitwise_equal compares byte copies, which is faster than creating views


def reject_masked(value: Any, name: str, kind: str = "input") -> Any:
    """Return the value unchanged. Raise BindingError (K5) if it is a masked array, because its mask would be lost."""
    # Importing numpy.ma takes 8 ms. If it is not loaded yet, no value can be a masked array.
    masked_array_type = getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())
    if isinstance(value, masked_array_type):
        expected, hint = "an array without a mask", ".filled(value) makes one"
        raise binding_error("K5", name, expected, "a masked array", hint, kind=kind)
    return value


def to_numpy(value: Any, name: str, expected: str, kind: str = "input", dtype: npt.DTypeLike | None = None) -> Array:
    """Convert the value to a NumPy array, optionally of `dtype`.

    Raise BindingError (K5) for a masked array, and for a value that cannot be converted; the message ends with the error message from NumPy
    or the value's own library (e.g. for a tensor on another device). Raise UnsupportedError for a torch tensor that requires a gradient.
    """
    reject_masked(value, name, kind)
    converted = convert_nested_torch_tensors(value, name)
    try:
        return np.asarray(converted, dtype)
    except MemoryError:
        raise
    except Exception as error:  # other libraries have their own error classes
        raise binding_error("K5", name, expected, f"{type(value).__name__}: {error}", kind=kind) from error


def as_array(value: Any, name: str, expected: str, kind: str = "input") -> Array:
    """Convert the value to a NumPy array like to_numpy, but also raise BindingError (K5) for object arrays."""
    array = to_numpy(value, name, expected, kind)
    if array.dtype == object:
        raise binding_error("K5", name, expected, type(value).__name__, kind=kind)
    return array


def view_element_bytes(array: Array) -> Array:
    """Return the elements as uint8 [size, itemsize]. In this form NaNs with equal payloads are equal, and -0 differs from 0."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype == object:  # NumPy string dtypes lose trailing NULs
        flat = np.array([repr(element) for element in flat.tolist()])
    return flat.view(np.uint8).reshape(flat.size, -1) if flat.size else np.zeros((0, 1), np.uint8)


def bitwise_equal(a: Array, b: Array) -> bool:
    """Return whether two arrays have the same shape, dtype and bytes."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype == object:
        return np.array_equal(a, b)
    if a.nbytes <= _MAX_COPY_BYTES:
        return a.tobytes() == b.tobytes()
    return np.array_equal(_view_as_integers(a), _view_as_integers(b))


def find_bit_differences(a: Array, b: Array) -> Array:
    """Return a bool mask of the elements that differ in any bit; all True if the shapes or dtypes differ."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return np.ones(a.shape, bool)
    if a.dtype == object:
        return np.asarray(a != b)
    return np.asarray((view_element_bytes(a) != view_element_bytes(b)).any(axis=1).reshape(a.shape))


def _view_as_integers(array: Array) -> Array:
    """View the bytes of an array as integers: 64-bit if the size is a multiple of 8, else 8-bit."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat.view(np.uint64) if flat.size % 8 == 0 else flat
