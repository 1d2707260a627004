"""NumPy views of torch's tensors on the CPU, and tensors that view NumPy arrays, both without a copy."""

from __future__ import annotations

from typing import Any

import torch

from .._pumice import UnsupportedError
from ..base.element_types import Array

# dtypes that NumPy does not know: an integer of the same width, and the name in ml_dtypes
_NARROW = {torch.bfloat16: (torch.int16, "bfloat16")}
_NARROW_NAMES = {name: dtype for dtype, (_, name) in _NARROW.items()}


def array_of_tensor(tensor: Any, name: str) -> Array:
    """The elements of a tensor of the CPU as an array that shares its memory.

    Raises UnsupportedError, which names the tensor, for one of another device, and for one that is not strided.
    """
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"'{name}' lies on the device '{tensor.device}'; expected a tensor of the CPU")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise UnsupportedError(
            f"'{name}' has the layout {tensor.layout}; expected a strided tensor that is not quantized"
        )
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dtype not in _NARROW:
        return plain.numpy()  # type: ignore[no-any-return]
    import ml_dtypes

    integer, known = _NARROW[plain.dtype]
    return plain.view(integer).numpy().view(getattr(ml_dtypes, known))  # type: ignore[no-any-return]


def tensor_of_array(array: Array) -> Any:
    """A tensor that shares the memory of a NumPy array, which is writable."""
    if array.dtype.name in _NARROW_NAMES:
        narrow = _NARROW_NAMES[array.dtype.name]
        return torch.from_numpy(array.view("int16")).view(narrow)
    return torch.from_numpy(array)
